"""Vacuum in the client: what is sent, how the answer is read, and that the fake agrees with the service."""

from __future__ import annotations

import json

import pytest

from tarnlog import InvalidRequest, NotFound, TableApi
from tests.client.scripted import Scripted, answer

DONE = {
    "tableName": "s.t",
    "status": "success",
    "orphanedFilesFound": 2,
    "orphanedFilesDeleted": 2,
    "sizeBytesDeleted": 10,
    "retentionHours": 24,
    "dryRun": False,
    "kept": {"referenced": 4, "later": 1},
    "examples": [{"path": "x", "size": 5, "modifiedTime": 1}],
    "later": True,
}


def test_what_is_sent_and_read() -> None:
    script = Scripted(answer(200, DONE))
    client = script.client()
    done = client.vacuum("s.t", dry_run=False, retention_hours=24)
    client.vacuum("s.t")
    client.vacuum("s.t", override_minimum=True, retention_hours=0)
    assert (done.orphaned_files_deleted, done.size_bytes_deleted, done.kept.referenced) == (2, 10, 4)
    assert [one.path for one in done.examples] == ["x"]
    assert script.bodies == [
        {"dryRun": False, "retentionHours": 24},
        {"dryRun": True},
        {"dryRun": True, "retentionHours": 0, "overrideMinimum": True},
    ]
    assert {request.url.path for request in script.requests} == {"/v1/tables/s.t/vacuum"}


async def test_the_asyncio_client() -> None:
    script = Scripted(answer(200, DONE))
    assert (await script.async_client().vacuum("s.t")).status == "success"
    assert json.loads(script.requests[0].content) == {"dryRun": True}


def test_fake_and_service_agree(api: TableApi, table: str) -> None:
    for dry_run, status in ((True, "dry-run"), (False, "success")):
        done = api.vacuum(table, dry_run=dry_run)
        assert (done.status, done.orphaned_files_found, done.retention_hours) == (status, 0, 168.0)
        assert (done.dry_run, done.message) == (dry_run, "there was nothing to delete")
    assert api.vacuum(table, retention_hours=0, override_minimum=True).retention_hours == 0
    for hours in (-1, 23.5):
        with pytest.raises(InvalidRequest):
            api.vacuum(table, retention_hours=hours)
    with pytest.raises(NotFound):
        api.vacuum("behaviour.none")
