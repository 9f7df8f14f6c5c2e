"""What the first plan needs is loaded ahead; what is not installed is no fault."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tarnlog_server.jobs import load_ahead
from tests.usecases.replicas import FakeWorld


async def test_modules_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_ahead, "PLANNING", ("there_is_no_such_module", "colorsys"))
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    await load_ahead.load_ahead(FakeWorld())
    assert "colorsys" in sys.modules


def test_a_replica_that_plans_nothing_loads_no_sql_reader() -> None:
    code = "import sys, tarnlog_server.usecases.coordinator; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0
