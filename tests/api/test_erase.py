"""Erasing over HTTP, on a real disk: who may, what is answered, and that the bytes are gone."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import structlog

from tarnlog_server.adapters.local_store import LocalStore
from tarnlog_server.api.app import ApiSettings
from tarnlog_server.api.auth import ApiKey, Scope
from tests.api.conftest import SCHEMA, Api, add, slug

SECRET = "Ada Lovelace"


def key(name: str, scope: Scope, namespaces: str | None = None) -> ApiKey:
    return ApiKey(id=name, sha256=hashlib.sha256(b"s").hexdigest(), scope=scope, namespaces=namespaces)


def as_(who: str) -> dict[str, str]:
    return {"authorization": f"Bearer {who}.s"}


KEYS = (key("reads", "read"), key("writes", "write"), key("rules", "admin"), key("other", "admin", "other"))
TABLE = "/v1/tables/db.t"


class Place:
    def __init__(self, api: Api, folder: Path) -> None:
        self.api = api
        self.folder = folder

    async def commit(self, *actions: dict[str, Any], **more: Any) -> dict[str, Any]:
        answer = await self.api.post(f"{TABLE}/commits", json={"actions": list(actions), **more}, headers=as_("writes"))
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def traces(self) -> list[str]:
        return [str(path) for path in self.folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]

    async def erase(self, who: str = "rules", **body: Any) -> httpx.Response:
        return await self.api.post(f"{TABLE}/erase", json=body, headers=as_(who))


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """A table from whose two files one was deleted."""
    store = LocalStore(tmp_path)
    async with Api(ApiSettings(keys=KEYS), store=store) as api:
        answer = await api.post("/v1/tables", json={"name": "db.t", "schema": SCHEMA}, headers=as_("writes"))
        folder = Path(unquote(answer.json()["location"].removeprefix("file://")))
        made = Place(api, folder)
        for path, name in (("a.parquet", SECRET), ("b.parquet", "Grace")):
            pq.write_table(pa.table({"id": [1], "name": [name]}), folder / path, compression="none")
            await made.commit(add(path, size=(folder / path).stat().st_size, minValues={"name": name}))
        await made.commit({"remove": {"path": "a.parquet", "dataChange": True}}, readVersion=2, operation="DELETE")
        yield made
    await store.close()


async def test_after_one_call_the_rows_are_nowhere(place: Place) -> None:
    assert len(place.traces()) == 2, "the file, and the version that added it"
    would = (await place.erase(dryRun=True)).json()
    assert (would["status"], would["filesFound"], would["filesDeleted"]) == ("dry-run", 1, 0)
    assert [one["path"] for one in would["examples"]] == ["a.parquet"]
    assert len(place.traces()) == 2
    with structlog.testing.capture_logs() as logs:
        answer = await place.erase()
    assert answer.status_code == 200, answer.text
    done = answer.json()
    assert (done["status"], done["filesDeleted"], done["version"], done["floor"]) == ("success", 1, 4, 4)
    assert place.traces() == []
    [line] = [line for line in logs if line["event"] == "audit"]
    assert (line["what"], line["who"], line["dry_run"], line["files"], line["version"]) == (
        "erase",
        "rules",
        False,
        1,
        4,
    )
    old = await place.api.get(f"{TABLE}/snapshot", params={"version": 2}, headers=as_("reads"))
    assert (old.status_code, slug(old)) == (410, "version-expired")
    files = (await place.api.get(f"{TABLE}/files", headers=as_("reads"))).json()
    assert [one["path"] for one in files["files"]] == ["b.parquet"]
    history = (await place.api.get(f"{TABLE}/commits", headers=as_("reads"))).json()["commits"]
    assert [(one["operation"], one["committedBy"]) for one in history] == [("ERASE", "rules")]
    assert history[0]["operationParameters"]["files"] == 1


@pytest.mark.parametrize("who", ["reads", "writes", "other"])
async def test_only_an_admin_of_the_namespace_may(place: Place, who: str) -> None:
    for dry_run in (True, False):
        answer = await place.erase(who, dryRun=dry_run)
        assert (answer.status_code, slug(answer)) == (403, "forbidden")
    assert len(place.traces()) == 2


async def test_what_does_not_fit_is_refused(place: Place) -> None:
    for body in ({"dryRun": "no"}, {"force": True}):
        answer = await place.erase(**body)
        assert (answer.status_code, slug(answer)) == (422, "request-invalid")
    assert len(place.traces()) == 2


async def test_a_long_erase_is_an_operation(place: Place) -> None:
    place.api.coordinator.operations.wait_seconds = 0.0
    answer = await place.erase()
    assert answer.status_code == 202, answer.text
    where = answer.headers["location"]
    for _ in range(500):
        operation = (await place.api.get(where, headers=as_("rules"))).json()
        if operation["status"] != "running":
            break
        await asyncio.sleep(0.02)
    assert (operation["status"], operation["kind"]) == ("succeeded", "erase")
    assert operation["result"]["filesDeleted"] == 1
    assert place.traces() == []
