"""The vacuum command, through the fake."""

from __future__ import annotations

from typing import Any

import pytest

from tarnlog import VacuumInfo
from tarnlog._results import KeptInfo, OrphanInfo
from tarnlog.testing import FakeTarnlog
from tests.cli.test_commands import Shell, fake, orders, run

__all__ = ["fake", "orders", "run"]  # fixtures


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What vacuum was asked for; it answers with 25 orphans."""
    seen: list[dict[str, Any]] = []

    def vacuum(self: FakeTarnlog, table: str, **how: Any) -> VacuumInfo:
        how.pop("on_progress")
        seen.append(how)
        dry = how["dry_run"]
        return VacuumInfo(
            table_name=table,
            status="dry-run" if dry else "success",
            orphaned_files_found=25,
            orphaned_files_deleted=0 if dry else 25,
            size_bytes_found=25 * 1024,
            size_bytes_deleted=0 if dry else 25 * 1024,
            retention_hours=168,
            dry_run=dry,
            kept=KeptInfo(referenced=3, young=2, in_session=1),
            examples=tuple(OrphanInfo(path=f"day=1/orphan-{n:02d}", size=1024, modified_time=0) for n in range(25)),
        )

    monkeypatch.setattr(FakeTarnlog, "vacuum", vacuum)
    return seen


def test_looking_is_the_default(run: Shell, orders: str, asked: list[dict[str, Any]]) -> None:
    result = run("vacuum", orders)
    assert asked == [{"dry_run": True, "retention_hours": None, "override_minimum": False}]
    assert "would be deleted, 25.0 KiB" in result.stdout
    assert "day=1/orphan-19" in result.stdout
    assert "day=1/orphan-20" not in result.stdout
    assert "5 more files" in result.stderr
    assert "--delete" in result.stderr
    for reason in ("referenced", "young", "in a write session"):
        assert reason in result.stdout
    assert "not data" not in result.stdout


def test_deleting(run: Shell, orders: str, asked: list[dict[str, Any]]) -> None:
    result = run("vacuum", orders, "--delete", "--retention-hours", "1.5", "--override-minimum")
    assert asked == [{"dry_run": False, "retention_hours": 1.5, "override_minimum": True}]
    assert "deleted, 25.0 KiB" in result.stdout
    assert "would" not in result.stdout
    assert "orphan-" not in result.stdout
    assert run.document("vacuum", orders, "--delete")["orphanedFilesDeleted"] == 25


def test_through_the_fake_itself(run: Shell, orders: str) -> None:
    assert run.document("vacuum", orders)["status"] == "dry-run"
    assert "request-invalid" in run("vacuum", orders, "--retention-hours", "1", code=1).stderr
    assert "table-not-found" in run("vacuum", "no.table", code=1).stderr
