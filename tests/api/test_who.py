"""Who committed: the log keeps the id of the key, history and dashboard tell it, also after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tarnlog_server.adapters.memory_index import MemoryIndex
from tarnlog_server.api.app import ApiSettings
from tarnlog_server.codec.version_file import inflate
from tarnlog_server.core.snapshot_tracker import Window
from tarnlog_server.usecases.committer import CommitterSettings
from tests.api.conftest import SCHEMA, Api, add
from tests.api.pages import Page
from tests.api.test_auth import KEYS, SECRET, bearer

TABLE = "/v1/tables/db.t"
LITTLE = CommitterSettings(window=Window(versions=4, weight=100_000, snapshots=2, recent_ids=4))


@pytest.fixture
async def guarded() -> AsyncIterator[Api]:
    async with Api(ApiSettings(keys=KEYS)) as api:
        made = await api.post("/v1/tables", json={"name": "db.t", "schema": SCHEMA}, headers=bearer("admin"))
        assert made.status_code == 201
        yield api


async def told(api: Api, **headers: str) -> list[tuple[str, str | None]]:
    """(operation, by) of every commit, oldest first."""
    answer = await api.get(f"{TABLE}/commits?order=asc", headers=headers)
    return [(commit["operation"], commit["committedBy"]) for commit in answer.json()["commits"]]


async def in_storage(api: Api) -> list[dict[str, Any]]:
    """The records of all commits, as any reader of the log finds them."""
    found: list[dict[str, Any]] = []
    for info in sorted(await api.store.list(""), key=lambda one: one.key):
        if "/_transaction_log/0" in info.key and info.key.endswith(".json"):
            first = inflate(info.key, await api.store.get(info.key)).splitlines()[0]
            found += msgspec.json.decode(first)["commitInfo"]["subCommits"]
    return found


async def test_every_commit_says_whose_key_sent_it(guarded: Api) -> None:
    for name in ("writer", "admin"):
        commit = {"actions": [add(name)]}
        assert (await guarded.post(f"{TABLE}/commits", json=commit, headers=bearer(name))).status_code == 201
    skip = {"path": "admin", "reason": "broken", "operation": "OPTIMIZE"}
    assert (await guarded.post(f"{TABLE}/skips", json=skip, headers=bearer("writer"))).status_code == 201
    change = {"description": "all of them"}
    assert (await guarded.patch(TABLE, json=change, headers=bearer("admin"))).status_code == 200
    assert await told(guarded, **bearer("reader")) == [
        ("CREATE TABLE", "admin"),
        ("WRITE", "writer"),
        ("WRITE", "admin"),
        ("SKIP FILE", "writer"),
        ("ALTER TABLE", "admin"),
    ]
    version = (await guarded.get(f"{TABLE}/commits/1", headers=bearer("reader"))).json()
    assert [one["committedBy"] for one in version["commits"]] == ["writer"]
    changes = (await guarded.get(f"{TABLE}/changes?from=1&to=2", headers=bearer("reader"))).json()["changes"]
    assert [one["committedBy"] for change in changes for one in change["commits"]] == ["writer", "admin"]
    assert (await guarded.delete(TABLE, headers=bearer("admin"))).status_code == 204
    stored = await in_storage(guarded)
    assert [one["committedBy"] for one in stored] == ["admin", "writer", "admin", "writer", "admin", "admin"]
    assert SECRET not in str(stored)


async def test_commits_of_several_keys_in_one_version_are_told_apart(guarded: Api) -> None:
    answers = await asyncio.gather(
        *(
            guarded.post(f"{TABLE}/commits", json={"actions": [add(f"{name}-{n}")]}, headers=bearer(name))
            for n in range(5)
            for name in ("writer", "admin")
        )
    )
    assert len({answer.json()["version"] for answer in answers}) < len(answers)
    where = {(answer.json()["version"], answer.json()["seq"]): n for n, answer in enumerate(answers)}
    commits = (await guarded.get(f"{TABLE}/commits?from=1", headers=bearer("reader"))).json()["commits"]
    assert len(commits) == 10
    for commit in commits:
        sent = where[(commit["version"], commit["seq"])]
        assert commit["committedBy"] == ("writer", "admin")[sent % 2]


async def test_whoever_was_first_with_a_commit_id_stays(guarded: Api) -> None:
    commit: dict[str, Any] = {"actions": [add("a")]}
    first = await guarded.post(f"{TABLE}/commits", json=commit, headers=bearer("writer"))
    commit["commitId"] = first.json()["commitId"]
    again = await guarded.post(f"{TABLE}/commits", json=commit, headers=bearer("admin"))
    assert (again.status_code, again.json()["replayed"]) == (200, True)
    assert (await told(guarded, **bearer("reader")))[1:] == [("WRITE", "writer")]


async def test_nobody_says_who_it_is_in_the_body(guarded: Api) -> None:
    commit = {"actions": [add("a")], "committedBy": "admin"}
    answer = await guarded.post(f"{TABLE}/commits", json=commit, headers=bearer("writer"))
    assert answer.status_code == 422


async def test_without_keys_the_log_says_nothing(api: Api, table: str) -> None:
    await api.append("a")
    await api.post(f"{table}/skips", json={"path": "a", "reason": "broken", "operation": "OPTIMIZE"})
    assert [by for _, by in await told(api)] == [None, None, None]
    assert [one for one in await in_storage(api) if "committedBy" in one] == []


async def test_the_dashboard_tells_it(guarded: Api) -> None:
    await guarded.post(f"{TABLE}/commits", json={"actions": [add("a")]}, headers=bearer("writer"))
    for path in ("/dashboard/tables/db.t", "/dashboard/tables/db.t/history"):
        shown = Page(await guarded.get(path, headers=bearer("reader"))).text
        assert "writer WRITE" in shown
        assert "admin CREATE TABLE" in shown


async def test_the_index_tells_it_too() -> None:
    async with Api(ApiSettings(keys=KEYS), LITTLE, MemoryIndex()) as api:
        await api.post("/v1/tables", json={"name": "db.t", "schema": SCHEMA}, headers=bearer("admin"))
        assert api.coordinator.ingest is not None
        senders = ["writer", "admin"] * 6
        for number, name in enumerate(senders):
            await api.post(f"{TABLE}/commits", json={"actions": [add(f"a{number}")]}, headers=bearer(name))
            await api.coordinator.ingest.flush()
        expected = [("CREATE TABLE", "admin"), *(("WRITE", name) for name in senders)]
        assert await told(api, **bearer("reader")) == expected
        lookups = api.telemetry.registry.get_sample_value
        assert lookups("tarnlog_index_lookups_total", {"kind": "history", "result": "hit"}) == 1
