"""The commands about states, through the fake."""

from __future__ import annotations

import pytest

from tarnlog import CleanupInfo, StateInfo
from tarnlog.testing import FakeTarnlog
from tests.cli.test_commands import Shell, fake, orders, run

__all__ = ["fake", "orders", "run"]  # fixtures


def test_state_of_a_table_without_one(run: Shell, orders: str) -> None:
    result = run("state", orders)
    assert result.stdout == ""
    assert "tarnlog checkpoint sales.orders" in result.stderr
    assert run.document("state", orders)["status"] == "none"


def test_checkpoint_then_state(run: Shell, orders: str) -> None:
    assert "Wrote a state of sales.orders at version 3: 2 files." in run("checkpoint", orders).stdout
    shown = run("state", orders).stdout
    assert "avro-state" in shown
    assert "2 files, 4.0 KiB" in shown
    assert "this service" in shown
    document = run.document("state", orders)
    assert (document["version"], document["format"], document["numFiles"]) == (3, "avro-state", 2)


def test_the_format_is_passed_on(run: Shell, orders: str) -> None:
    assert run.document("checkpoint", orders, "--format", "parquet")["checkpointVersion"] == 3
    assert run.document("state", orders)["format"] == "parquet"
    assert "'orc' is not one of" in run("checkpoint", orders, "--format", "orc", code=2).stderr


def test_cleanup(run: Shell, orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = CleanupInfo(
        table_name=orders,
        status="success",
        floor=40,
        checkpoint_version=90,
        versions_deleted=38,
        states_deleted=4,
        manifests_deleted=2,
        files_preserved=70,
        message="the floor moved to version 40",
    )
    asked: list[bool] = []

    def cleanup(self: FakeTarnlog, table: str, *, dry_run: bool = False, on_progress: object = None) -> CleanupInfo:
        asked.append(dry_run)
        return done

    monkeypatch.setattr(FakeTarnlog, "cleanup", cleanup)
    shown = run("cleanup", orders)
    table = [line.split() for line in shown.stdout.splitlines()]
    assert ["versions", "38"] in table
    assert ["oldest", "version", "40"] in table
    assert "The floor moved to version 40." in shown.stderr
    document = run.document("cleanup", orders, "--dry-run")
    assert (document["versionsDeleted"], document["filesPreserved"], document["floor"]) == (38, 70, 40)
    assert asked == [False, True]


def test_cleanup_of_the_fake(run: Shell, orders: str) -> None:
    assert run.document("cleanup", orders, "--dry-run")["status"] == "dry-run"
    assert run.document("cleanup", orders)["filesPreserved"] == 4


def test_compact(run: Shell, orders: str) -> None:
    run("checkpoint", orders, "--format", "json")
    assert run.document("compact", orders)["numFiles"] == 2
    assert run.document("state", orders)["format"] == "avro-state"
    assert "Wrote a state" in run("compact", orders).stdout


def test_a_state_to_compact_says_how(run: Shell, orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    crowded = StateInfo(
        table_name=orders,
        format="avro-state",
        version=3,
        num_files=8,
        num_tombstones=2,
        tombstone_ratio=0.25,
        needs_compaction=True,
        status="foreign",
    )
    monkeypatch.setattr(FakeTarnlog, "state", lambda self, table: crowded)
    result = run("state", orders)
    assert "2 (25.0% of the files)" in result.stdout
    assert "another writer" in result.stdout
    assert "tarnlog compact sales.orders" in result.stderr


@pytest.mark.parametrize("command", ["checkpoint", "compact", "state"])
def test_a_table_that_is_not_there(run: Shell, command: str) -> None:
    result = run(command, "no.table", code=1)
    assert "table-not-found" in result.stderr
    assert result.stdout == ""
