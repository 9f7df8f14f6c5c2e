"""The migrate and rebuild commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_commands import Shell, fake, orders, run

__all__ = ["fake", "orders", "run"]  # fixtures


def test_one_table_or_all_of_them_are_rebuilt(run: Shell, orders: str) -> None:
    assert f"The index of {orders} holds" in run("rebuild", orders).stdout
    assert f"The index of {orders} holds" in run("rebuild").stdout
    assert run.document("rebuild", orders)["tableName"] == orders
    assert "table-not-found" in run("rebuild", "no.table", code=1).stderr


def test_no_tables_are_nothing_to_rebuild(run: Shell) -> None:
    assert "no tables" in run("rebuild").stderr


def test_the_schema_goes_up_and_down(run: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARNLOG_DATABASE_URL", f"sqlite:///{tmp_path}/index.sqlite")
    assert "is at nothing" in run("migrate", "current").stdout
    assert "from nothing to" in run("migrate").stdout
    assert "is at" in run("migrate", "up").stdout
    assert "to 0001" in run("migrate", "down", "0001").stdout
    assert "to nothing" in run("migrate", "down").stdout
    assert "no revision 7" in run("migrate", "up", "7", code=1).stderr
    assert run("migrate", "sideways", code=2).stderr


@pytest.mark.parametrize(
    "url, told",
    [
        ("off", "There is no index database"),
        ("mysql://u:very-secret@h/d", "is not supported"),
        ("postgresql://me:very-secret@127.0.0.1:1/d", "was not changed"),
    ],
)
def test_what_cannot_be_migrated_is_told_without_secrets(
    run: Shell, monkeypatch: pytest.MonkeyPatch, url: str, told: str
) -> None:
    monkeypatch.setenv("TARNLOG_DATABASE_URL", url)
    result = run("migrate", code=1)
    assert told in " ".join(result.stderr.split())
    assert "very-secret" not in result.stderr + result.stdout
