"""The verify and repair commands, through the fake."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tarnlog import AuditInfo, CheckInfo
from tarnlog._results import RepairedInfo
from tarnlog.testing import FakeTarnlog
from tests.cli.test_commands import Shell, fake, orders, run

__all__ = ["fake", "orders", "run"]  # fixtures
BROKEN = AuditInfo(
    table_name="sales.orders",
    status="failed",
    checks=(
        CheckInfo(name="log-contiguous", ok=True, detail="versions 0 to 3 without a gap"),
        CheckInfo(name="data-files", ok=False, detail="1 of 2 files are missing: [bold]x"),
    ),
    repaired=(RepairedInfo(object="the state of version 3", action="written from scratch"),),
)


@pytest.mark.parametrize("command", ["verify", "repair"])
def test_a_healthy_table(run: Shell, orders: str, command: str) -> None:
    result = run(command, orders)
    assert "log-contiguous" in result.stdout
    assert "FAILED" not in result.stdout
    assert "checks are fine" in result.stderr
    assert run.document(command, orders)["status"] == "success"
    assert "table-not-found" in run(command, "no.table", code=1).stderr


@pytest.mark.parametrize("command", ["verify", "repair"])
def test_a_check_that_fails_is_shown_and_ends_with_1(
    run: Shell, orders: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(self: FakeTarnlog, table: str, **_: Any) -> AuditInfo:
        return BROKEN

    monkeypatch.setattr(FakeTarnlog, command, answer)
    result = run(command, orders, code=1)
    assert "FAILED" in result.stdout
    assert "1 of 2 files are missing: [bold]x" in result.stdout
    assert "the state of version 3" in result.stdout
    assert "1 check of 2 failed" in result.stderr
    document = json.loads(run(command, orders, "--json", code=1).stdout)
    assert [check["ok"] for check in document["checks"]] == [True, False]
