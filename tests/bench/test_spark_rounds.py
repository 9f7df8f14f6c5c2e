"""What the Spark benchmark asks of all systems, with children that only keep count. No timing is asserted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from bench import spark_rounds
from bench.peer_runs import PeerError
from bench.spark import QUICK
from bench.spark_children import Child, Turns
from bench.spark_results import FILTERS, WRITERS, Tables
from tests.bench.turning import PLANNED

SIZE = msgspec.structs.replace(QUICK, blocks=3, appends=4, shared_blocks=2, each=5, planned=PLANNED, asks=3)
Measure = Callable[..., tuple[list[Tables], dict[str, str]]]


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Measure]:
    """Measures fakes; each is given by its name and its fault."""
    monkeypatch.setattr(spark_rounds, "SETTLE", 0.0)
    turns = Turns()

    def run(**faults: str) -> tuple[list[Tables], dict[str, str]]:
        for name, fault in faults.items():
            command = [sys.executable, "-m", "tests.bench.turning", name, str(tmp_path / "notes"), fault]
            failure = RuntimeError if name == "tarnlog" else PeerError
            turns.join(name, Child(command, tmp_path / f"{name}.log", failure, 60))
        return spark_rounds.measured(turns, SIZE, lambda: None), turns.absent

    yield run
    turns.end()


def test_everything_is_asked_of_all(measure: Measure) -> None:
    found, absent = measure(tarnlog="", delta="", iceberg="")
    assert [one.system for one in found] == ["tarnlog", "delta", "iceberg"]
    assert absent == {}
    for one in found:
        assert one.small == [[0.5] * 4] * 3
        assert [(block.appends, block.failed, block.seconds) for block in one.shared] == [(WRITERS * 5, 1, 2.0)] * 2
        assert one.per_second == (WRITERS * 5 - 1) / 2


def test_a_new_version_is_one_that_was_not_planned_before(measure: Measure) -> None:
    """A fake's plan takes as many milliseconds as its table had commits, so the time tells the version."""
    (found,), _ = measure(tarnlog="")
    planned = found.planned
    assert planned.first_ms == 0
    assert tuple(planned.plans) == FILTERS
    news = [version for name in FILTERS for version in planned.plans[name].new_version]
    assert news == [float(number) for number in range(1, len(FILTERS) * SIZE.asks + 1)]
    for plan in planned.plans.values():
        assert plan.again == [plan.new_version[-1]] * SIZE.asks
    assert planned.plans["everything"].found == PLANNED + len(news)


def test_neighbours_in_time_are_of_different_systems(measure: Measure, tmp_path: Path) -> None:
    measure(tarnlog="", delta="")
    notes = [line.split() for line in (tmp_path / "notes").read_text().splitlines()]
    for do in ("append", "append_together", "plan"):
        names = [name for name, asked in notes if asked == do]
        rounds = [names[at : at + 2] for at in range(0, len(names), 2)]
        assert all(sorted(one) == ["delta", "tarnlog"] for one in rounds)
        assert {one[0] for one in rounds} == {"delta", "tarnlog"}


def test_a_peer_that_fails_midway_is_not_measured(measure: Measure) -> None:
    found, absent = measure(tarnlog="", delta="rows", iceberg="")
    assert [one.system for one in found] == ["tarnlog", "iceberg"]
    assert "rows where" in absent["delta"]


@pytest.mark.parametrize("fault, why", [("rows", "rows where 12000 were"), ("files", "tarnlog: the plan 'range")])
def test_what_is_wrong_in_tarnlog_ends_the_benchmark(measure: Measure, fault: str, why: str) -> None:
    with pytest.raises(RuntimeError, match=why):
        measure(tarnlog=fault, delta="")


def test_a_plan_of_an_old_version_is_noticed_at_a_peer_too(measure: Measure) -> None:
    with pytest.raises(RuntimeError, match="delta: the plan"):
        measure(tarnlog="", delta="files")
