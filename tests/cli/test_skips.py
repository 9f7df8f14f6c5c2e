"""The commands about skipped files, through the fake."""

from __future__ import annotations

from tarnlog.testing import FakeTarnlog
from tests.cli.test_commands import Shell, fake, orders, run

__all__ = ["fake", "orders", "run"]  # fixtures


def test_skips(run: Shell, fake: FakeTarnlog, orders: str) -> None:
    assert "No file" in run("skips", orders).stderr
    assert "No file" in run("cooldowns", orders).stderr
    fake.record_skip(orders, "day=1/c", reason="bad footer", operation="MERGE", cooldown_hours=6)
    fake.record_skip(orders, "day=1/b", reason="too large", operation="OPTIMIZE", cooldown_hours=0)
    shown = run("skips", orders).stdout
    for text in ("day=1/c", "MERGE", "bad footer", "day=1/b", "OPTIMIZE"):
        assert text in shown
    assert {line["path"] for line in run.lines("skips", orders)} == {"day=1/c", "day=1/b"}
    cooling = run("cooldowns", orders).stdout
    assert "day=1/c" in cooling
    assert "day=1/b" not in cooling
    assert list(run.lines("cooldowns", orders)[0]) == ["day=1/c"]


def test_a_skip_is_recorded(run: Shell, fake: FakeTarnlog, orders: str) -> None:
    for count in (1, 2):
        done = run("skips", orders, "--record", "day=1/c", "--reason", "bad footer", "--cooldown-hours", "6")
        assert f"skipped {count} time" in done.stderr
        assert "bad footer" in done.stdout
    [record] = fake.skips(orders)
    assert (record.path, record.reason, record.operation, record.skip_count) == ("day=1/c", "bad footer", "MANUAL", 2)
    [line] = run.lines("skips", orders, "--record", "day=1/c", "--reason", "again", "--operation", "MERGE")
    assert (line["operation"], line["skipCount"]) == ("MERGE", 3)


def test_what_does_not_go_together(run: Shell, orders: str) -> None:
    assert "together" in run("skips", orders, "--record", "day=1/c", code=2).stderr
    assert "together" in run("skips", orders, "--reason", "x", code=2).stderr
    assert "goes with" in run("skips", orders, "--cooldown-hours", "1", code=2).stderr
    assert "not a live file" in run("skips", orders, "--record", "no", "--reason", "x", code=1).stderr
    assert "table-not-found" in run("skips", "no.table", code=1).stderr
    assert "table-not-found" in run("cooldowns", "no.table", code=1).stderr
