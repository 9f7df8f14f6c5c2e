"""The command about write sessions, through the fake."""

from __future__ import annotations

from tarnlog.testing import FakeTarnlog
from tests.cli.test_commands import Shell, fake, orders, run

__all__ = ["fake", "orders", "run"]  # fixtures


def test_sessions(run: Shell, fake: FakeTarnlog, orders: str) -> None:
    assert "Nobody writes" in run("sessions", orders).stderr
    one = fake.begin_session(orders, "day=1/", ttl_seconds=7200)
    two = fake.begin_session(orders)
    shown = run("sessions", orders).stdout
    assert "day=1/" in shown
    assert "the whole table" in shown
    assert "1 h" in shown or "2 h" in shown
    assert [line["id"] for line in run.lines("sessions", orders)] == [one.id, two.id]
    ended = run("sessions", orders, "--end", one.id)
    assert "is ended" in ended.stderr
    assert one.id not in ended.stdout
    assert "table-not-found" in run("sessions", "no.table", code=1).stderr
