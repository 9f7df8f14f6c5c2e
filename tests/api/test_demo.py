"""The demonstration tells the truth: it runs clean, and it would notice a loss."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from tarnlog_server.demo import __main__ as demo
from tarnlog_server.demo.log_reading import check_log
from tarnlog_server.demo.report import percentile
from tarnlog_server.demo.writers import Acknowledged


def told(commit_id: str, version: int, seq: int = 0) -> Acknowledged:
    return Acknowledged(commit_id, version, seq, seconds=0.1, unanswered=0, replayed=False)


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Version 0, then `a` and `b` together, then `c`; one plain, one gzip, one framed gzip."""
    folder = tmp_path / "demo" / "events-1" / "_transaction_log"
    folder.mkdir(parents=True)
    for version, ids in enumerate(([], ["a", "b"], ["c"])):
        subs = [{"commitId": name, "seq": seq} for seq, name in enumerate(ids)]
        data = json.dumps({"commitInfo": {"subCommits": subs}}).encode() + b'\n{"add":{}}\n'
        packed = [data, gzip.compress(data), b"\x01\x01" + gzip.compress(data)][version]
        (folder / f"{version:020}.json").write_bytes(packed)
    return tmp_path


def test_a_sound_log(warehouse: Path) -> None:
    check = check_log(warehouse, [told("a", 1), told("b", 1, 1), told("c", 2)])
    assert check.sound
    assert (check.versions, check.batches) == (3, [2, 1])


def test_every_kind_of_fault_is_noticed(warehouse: Path) -> None:
    assert check_log(warehouse, [told("lost", 1)]).missing == ["lost"]
    assert check_log(warehouse, [told("b", 1, 0)]).misplaced == ["b"]
    folder = warehouse / "demo" / "events-1" / "_transaction_log"
    last = folder / f"{2:020}.json"
    (folder / f"{3:020}.json").write_bytes(last.read_bytes())
    assert check_log(warehouse, []).repeated == ["c"]
    last.unlink()
    check = check_log(warehouse, [])
    assert check.gaps == [2]
    assert not check.sound


def test_percentiles_are_values_that_were_seen() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert percentile([], 0.5) == 0.0


async def test_the_demonstration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "BEFORE_SECONDS", 1.0)
    monkeypatch.setattr(demo, "AFTER_SECONDS", 1.0)
    said = io.StringIO()
    assert await demo.demonstrate(Console(file=said, width=200), tmp_path)
    assert "kill -9" in said.getvalue()
    assert "acknowledged commits is there" in said.getvalue()
