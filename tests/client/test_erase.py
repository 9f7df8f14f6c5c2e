"""Erase in the client and on the command line: what is sent, how the answer is read, what is asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tarnlog import EraseInfo, NotFound, TableApi
from tarnlog._results import OrphanInfo, WithheldInfo
from tarnlog.testing import FakeTarnlog
from tests.cli.test_commands import Shell, fake, orders, run
from tests.client.scripted import Scripted, answer

__all__ = ["fake", "orders", "run"]  # fixtures
DONE = {
    "tableName": "s.t",
    "status": "partial",
    "version": 7,
    "filesDeleted": 2,
    "withheld": {"inSession": 1},
    "new": 1,
}


def test_what_is_sent_and_read() -> None:
    script = Scripted(answer(200, DONE))
    client = script.client()
    done = client.erase("s.t")
    client.erase("s.t", dry_run=True)
    assert (done.version, done.files_deleted, done.withheld.in_session) == (7, 2, 1)
    assert script.bodies == [{"dryRun": False}, {"dryRun": True}]
    assert {request.url.path for request in script.requests} == {"/v1/tables/s.t/erase"}


async def test_the_asyncio_client() -> None:
    script = Scripted(answer(200, DONE))
    assert (await script.async_client().erase("s.t", dry_run=True)).status == "partial"
    assert json.loads(script.requests[0].content) == {"dryRun": True}


def test_fake_and_service_agree(api: TableApi, table: str) -> None:
    for dry_run, status in ((True, "dry-run"), (False, "success")):
        done = api.erase(table, dry_run=dry_run)
        assert (done.status, done.files_found, done.dry_run) == (status, 0, dry_run)
    with pytest.raises(NotFound):
        api.erase("behaviour.none")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each erase was a dry run."""
    seen: list[bool] = []

    def erase(self: FakeTarnlog, table: str, *, dry_run: bool, on_progress: Any) -> EraseInfo:
        seen.append(dry_run)
        return EraseInfo(
            table_name=table,
            status="dry-run" if dry_run else "partial",
            files_found=25,
            files_deleted=0 if dry_run else 25,
            dry_run=dry_run,
            message="send dryRun: false to erase" if dry_run else "one thing to know",
            withheld=WithheldInfo(in_session=3),
            examples=tuple(OrphanInfo(path=f"day=1/gone-{n:02d}", size=1024, modified_time=0) for n in range(25)),
        )

    monkeypatch.setattr(FakeTarnlog, "erase", erase)
    return seen


def test_the_command_asks_first(run: Shell, orders: str, asked: list[bool]) -> None:
    refused = run("erase", orders, code=2, stdin="y\n")
    assert "Nothing was erased" in refused.stderr
    assert f"`tarnlog erase {orders} --yes`" in refused.stderr, "as `drop` does where there is no terminal"
    assert asked == []
    done = run("erase", orders, "--yes")
    assert asked == [False]
    assert "removed data files" in done.stdout
    assert "in a write session" in done.stdout
    assert "one thing to know" in done.stderr


def test_the_command_lists_what_would_go(run: Shell, orders: str, asked: list[bool]) -> None:
    shown = run("erase", orders, "--dry-run")
    assert asked == [True]
    assert "would be deleted" in shown.stdout
    assert "day=1/gone-19" in shown.stdout
    assert "day=1/gone-20" not in shown.stdout
    assert "5 more files" in shown.stderr
    assert f"`tarnlog erase {orders}`" in shown.stderr
    assert "dryRun" not in shown.stderr, "advice is for the command line"
    assert run.document("erase", orders, "--dry-run")["filesFound"] == 25
