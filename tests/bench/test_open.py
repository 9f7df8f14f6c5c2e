"""The open benchmark's own code: the tables it makes, and what it says of numbers. No timing is asserted."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench.open import page
from bench.open_child import opened, planned
from bench.open_report import OpenResult, targets
from bench.open_runs import Grown, Opened, Planned
from bench.open_tables import appended, checkpoint, forget_states, rolling, state_bytes


def one(source: str, versions: int, ms: float, *, files: int = 10, system: str = "tarnlog") -> Opened:
    return Opened(system=system, source=source, versions=versions, files=files, open_ms=ms, list_ms=0.0)


RESULT = OpenResult(
    facts={"date": "2024-01-01", "machine": "a box"},
    rounds=3,
    opened=[
        one("replay", 10, 11.0),
        one("avro", 10, 10.0),
        one("replay", 10_000, 9000.0),
        one("avro", 10_000, 16.0),
        one("avro", 10_000, 50.0, files=10_000),
        one("parquet", 10_000, 60.0, files=10_000, system="deltalake"),
    ],
    planned=[
        Planned(source="avro", files=1000, found=3, plan_ms=10.0, manifests="1/10"),
        Planned(source="json", files=1000, found=3, plan_ms=99.0, manifests="0/0"),
    ],
    grown=[
        Grown(files=10_000, open_ms=1, incremental_ms=10, open_peak_mb=100),
        Grown(files=1_000_000, open_ms=1, incremental_ms=30, open_peak_mb=600, write_peak_mb=1001),
    ],
)


def test_every_target_is_judged_by_its_own_numbers() -> None:
    met = {target.name: target.met for target in targets(RESULT)}
    assert met["avro against replay, 10 versions"] is True
    assert met["avro against replay, 10,000 versions"] is False
    assert met["json against replay, 10 versions"] is None
    assert met["avro, 10,000 versions against 10, same files"] is False
    assert met["open and list from avro, ahead of deltalake from parquet"] is True
    assert met["open and list from replay, ahead of deltalake from replay"] is None
    assert met["cold plan at 1,000 files, Avro against JSON"] is False
    assert met["10 new files: state at 1,000,000 files against 10,000"] is True
    assert met["memory to open 1,000,000 files"] is True
    assert met["memory to write 1,000,000 files"] is False


def test_the_page_names_its_conditions_and_the_result_can_be_stored() -> None:
    text = page(RESULT)
    assert "a box" in text
    assert "| 10,000 | 9,000 | 16.0 (562 ×) |" in text
    assert msgspec.json.decode(msgspec.json.encode(RESULT), type=OpenResult) == RESULT


@pytest.mark.parametrize("form", ["avro", "json", "parquet"])
async def test_histories_open_from_every_format(tmp_path: Path, form: str) -> None:
    await rolling(tmp_path, 14, 10)
    setting = {"folder": str(tmp_path)}
    replayed = await opened(setting)
    assert (replayed["source"], replayed["files"], replayed["version"]) == ("replay", 10, 14)
    await checkpoint(tmp_path, form)
    assert state_bytes(tmp_path) > 0
    other = tmp_path / "other"
    other.mkdir()
    await rolling(other, 3, 2)
    found = await opened(setting | {"warm": str(other)})
    assert (found["source"].removesuffix("-state"), found["files"], found["version"]) == (form, 10, 14)
    forget_states(tmp_path)
    assert state_bytes(tmp_path) == 0


async def test_a_plan_finds_the_same_from_every_format(tmp_path: Path) -> None:
    await appended(tmp_path, 3, 2000)
    found = set()
    for form in ("avro", "json", "parquet"):
        await checkpoint(tmp_path, form)
        found.add((await planned({"folder": str(tmp_path)}))["files"])
        forget_states(tmp_path)
    assert len(found) == 1
    assert found.pop() > 0
