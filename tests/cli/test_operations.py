"""Long calls on the command line: the bar while they run, and the list of them."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tarnlog import OperationInfo, Progress
from tarnlog.cli.output import Output
from tarnlog.testing import FakeTarnlog
from tests.cli.test_commands import Shell, fake, orders, run

__all__ = ["fake", "orders", "run"]  # fixtures


def test_a_long_call_has_a_bar_with_its_own_unit() -> None:
    seen = io.StringIO()
    out = Output(False)
    out._err = Console(file=seen, force_terminal=True, width=120)
    with out.working("Deleting", long=True) as work:
        work(Progress(0, None, ""))
        work(Progress(40, 100, "files"))
    assert "Deleting" in seen.getvalue()
    assert "40/100" in seen.getvalue()
    assert "files" in seen.getvalue()


def test_operations(run: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Nothing takes long" in run("operations").stderr
    found = (
        OperationInfo(id="o-1", kind="vacuum", table="s.t", status="running", progress=Progress(1200, None, "files")),
        OperationInfo(id="o-2", kind="verify", table="s.t", status="running", progress=Progress(5, 10, "versions")),
        OperationInfo(id="o-3", kind="compact", table="s.u", status="failed", problem={"detail": "it is read-only"}),
    )
    monkeypatch.setattr(FakeTarnlog, "operations", lambda self: found)
    shown = run("operations").stdout
    for text in ("1,200 files", "5 of 10 versions", "it is read-only", "o-2", "failed"):
        assert text in shown
    assert [line["id"] for line in run.lines("operations")] == ["o-1", "o-2", "o-3"]
