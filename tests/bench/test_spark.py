"""The Spark benchmark's own code: what it says of numbers, and the files it makes. No timing is asserted."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from bench.spark import page
from bench.spark_data import ROWS_OF_A_SMALL_FILE, small_files
from bench.spark_report import SparkResult, share, targets
from bench.spark_results import Overhead, Planned, Plans, Raced, Shared, Tables
from tarnlog import Client
from tests.service_process import running_service

FILTERS = ("range 0.1 %", "partition", "everything")


def system(name: str, append: float, plan: float, failed: int = 0) -> Tables:
    plans = {way: Plans(new_version=[plan * 3] * 2, again=[plan] * 2, found=None) for way in FILTERS}
    shared = [Shared(seconds=2.0, appends=8, failed=failed)] * 2
    return Tables(system=name, small=[[append] * 5] * 2, shared=shared, planned=Planned(plan * 2, plans))


def result(**parts: object) -> SparkResult:
    facts = {"date": "2024-01-01", "machine": "2 cores"}
    whole = {"raced": {"scan": Raced(own=[1.0, 2.0, 9.0], native=[1.0, 2.0, 1.0])}, "overhead": Overhead(0.1, 0.1, 6.0)}
    whole |= {"tables": [system("tarnlog", 0.1, 10), system("delta", 0.4, 5, failed=4)]}
    return SparkResult(facts=facts, rounds=3, planned_files=1000, **{**whole, **parts})  # type: ignore[arg-type]


def test_a_round_is_compared_with_its_neighbour() -> None:
    assert share(Raced(own=[1.0, 2.0, 9.0], native=[1.0, 2.0, 1.0])) == 1.0


def test_targets_tell_met_missed_and_not_measured() -> None:
    found = {one.name: one for one in targets(result())}
    assert found["scan, against plain Parquet"].met is True
    assert found["write, against plain Parquet"].met is None
    assert (found["plan and commit of a job of 5 s"].reached, found["plan and commit of a job of 5 s"].met) == (
        "4.0%",
        True,
    )
    assert (found["small appends, against delta"].reached, found["small appends, against delta"].met) == ("4.0 ×", True)
    # Only what landed counts: the peer failed half of its appends.
    assert found["appends of 8 writers, against delta"].reached == "2.0 ×"
    assert found["planning 1,000 files, first, against delta"].reached == "0.5 ×"
    for way in ("new version", "again"):
        for name in FILTERS:
            assert found[f"planning 1,000 files, {name}, {way}, against delta"].met is False
            assert found[f"planning 1,000 files, {name}, {way}, against iceberg"].met is None
    assert found["small appends, against iceberg"].met is None


def test_writes_and_appends_have_their_own_targets() -> None:
    raced = {
        name: Raced(own=[1.0], native=[reached])
        for name, reached in (("write", 0.9), ("append", 0.8), ("partitioned write", 0.99), ("partitioned append", 1.0))
    }
    found = {one.name: (one.wanted, one.met) for one in targets(result(raced=raced))}
    assert found["write, against plain Parquet"] == ("≥ 0.85 ×", True)
    assert found["append, against plain Parquet"] == ("≥ 0.85 ×", False)
    assert found["partitioned write, against plain Parquet"] == ("≥ 1 ×", False)
    assert found["partitioned append, against plain Parquet"] == ("≥ 1 ×", True)


def test_turns_are_compared_with_their_neighbours() -> None:
    """The machine was slower in some turns than in others, for both alike; so the ratio is the same in all of them."""

    def one(name: str, slower: float) -> Tables:
        turns = [slower * speed for speed in (1.0, 4.0, 1.5)]
        plans = {way: Plans(new_version=[3 * spent for spent in turns], again=turns, found=None) for way in FILTERS}
        return Tables(
            system=name,
            small=[[spent, spent, 99.0] for spent in turns],
            shared=[Shared(seconds=spent, appends=8, failed=0) for spent in turns],
            planned=Planned(slower, plans),
        )

    # Turns that are out of step would give other ratios.
    found = targets(result(tables=[one("tarnlog", 1.0), one("delta", 2.0)]))
    reached = {one.name: one.reached for one in found if one.name.endswith("against delta")}
    assert len(reached) == 3 + 2 * len(FILTERS)
    assert set(reached.values()) == {"2.0 ×"}
    mixed = one("delta", 2.0)
    mixed = msgspec.structs.replace(mixed, small=[mixed.small[1], mixed.small[2], mixed.small[0]])
    found = targets(result(tables=[one("tarnlog", 1.0), mixed]))
    assert {one.name: one.reached for one in found}["small appends, against delta"] == "1.3 ×"


def test_a_peer_of_which_nothing_landed_is_behind() -> None:
    found = targets(result(tables=[system("tarnlog", 0.1, 10), system("delta", 0.1, 10, failed=8)]))
    assert {one.name: (one.reached, one.met) for one in found}["appends of 8 writers, against delta"] == ("inf ×", True)


def test_plans_stand_on_the_page_by_new_version_and_again() -> None:
    lines = page(result()).splitlines()
    (head,) = (line for line in lines if "first plan ms" in line)
    cells = [cell.strip() for cell in head.strip("|").split("|")]
    ways = [f"{name}: {way} ms" for name in FILTERS for way in ("new version", "again")]
    assert cells == ["system", "first plan ms", *ways]
    assert "| tarnlog | 20.0 | 30.0 | 10.0 | 30.0 | 10.0 | 30.0 | 10.0 |" in lines


def test_the_page_has_every_part() -> None:
    text = page(result(absent={"iceberg": "no jar"}))
    for part in (
        "### Targets",
        "### Beside plain Parquet",
        "### Appends of 1,000 rows",
        "### Planning 1,000 files",
        "no jar",
    ):
        assert part in text


def test_small_files_are_in_the_table_with_their_ranges(tmp_path: Path) -> None:
    with running_service(tmp_path / "warehouse") as service, Client(service.url) as client:
        folder = small_files(client, "bench.many", 5)
        wanted = ROWS_OF_A_SMALL_FILE * 2
        (file,) = client.plan("bench.many", f"id >= {wanted} AND id < {wanted + 3}").files
        assert pq.read_table(folder / file.path).column("id").to_pylist()[0] == wanted
        assert len(list(client.files("bench.many"))) == 5
