"""A table over a folder of other people's files, on a real disk: creating takes an admin, and nothing of theirs goes.

The folder has plain Parquet, a Delta table written by deltalake and a table laid out as Iceberg does it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import deltalake
import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tarnlog_server.adapters.local_store import LocalStore
from tarnlog_server.api.app import ApiSettings
from tarnlog_server.api.auth import ApiKey, Scope
from tests.api.conftest import SCHEMA, Api, add, slug

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
DELETE_ALL = {"dryRun": False, "retentionHours": 0, "overrideMinimum": True}


def key(name: str, scope: Scope) -> ApiKey:
    return ApiKey(id=name, sha256=hashlib.sha256(b"s").hexdigest(), scope=scope)


def as_(who: str) -> dict[str, str]:
    return {"authorization": f"Bearer {who}.s"}


KEYS = ApiSettings(keys=(key("writer", "write"), key("admin", "admin")))


class Place:
    """A service on a folder, with a folder of other people's files in it."""

    def __init__(self, api: Api, root: Path) -> None:
        self.api = api
        self.root = root
        self.lake = root / "lake"

    def fill(self) -> set[str]:
        """Other people's files; their names below the folder."""
        (self.lake / "plain" / "day=1").mkdir(parents=True)
        pq.write_table(ROWS, self.lake / "a.parquet")
        pq.write_table(ROWS, self.lake / "plain" / "day=1" / "b.parquet")
        deltalake.write_deltalake(str(self.lake / "delta"), ROWS)
        iceberg(self.lake / "ice")
        return self.files()

    def files(self) -> set[str]:
        found = {path.relative_to(self.lake).as_posix() for path in self.lake.rglob("*") if path.is_file()}
        return {name for name in found if not name.startswith("_transaction_log/")}

    async def create(self, who: str = "admin", folder: str = "lake", **more: Any) -> httpx.Response:
        body = {"name": "db.t", "schema": SCHEMA, "location": str(self.root / folder), **more}
        return await self.api.post("/v1/tables", json=body, headers=as_(who))

    async def vacuum(self) -> dict[str, Any]:
        answer = await self.api.post("/v1/tables/db.t/vacuum", json=DELETE_ALL, headers=as_("admin"))
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


def iceberg(folder: Path) -> None:
    (folder / "metadata").mkdir(parents=True)
    (folder / "data").mkdir()
    pq.write_table(ROWS, folder / "data" / "00000-0-a.parquet")
    (folder / "metadata" / "v1.metadata.json").write_text('{"format-version": 2}')
    (folder / "metadata" / "snap-1-1-a.avro").write_bytes(b"Obj\x01")
    (folder / "metadata" / "version-hint.text").write_text("1")


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    store = LocalStore(tmp_path)
    async with Api(KEYS, store=store) as api:
        yield Place(api, tmp_path)
    await store.close()


async def test_a_location_with_files_is_refused(place: Place) -> None:
    theirs = place.fill()
    for who in ("writer", "admin"):
        answer = await place.create(who)
        assert (answer.status_code, slug(answer)) == (409, "location-not-empty")
        found = answer.json()["object"].removeprefix(place.lake.as_uri() + "/")
        assert found in theirs
        assert found in answer.json()["detail"]
        assert "adoptExistingFiles" in answer.json()["detail"]
    assert place.files() == theirs
    assert not (place.lake / "_transaction_log").exists(), "a refusal writes nothing"


async def test_adopting_files_takes_an_admin_and_a_location(place: Place) -> None:
    theirs = place.fill()
    answer = await place.create("writer", adoptExistingFiles=True)
    assert (answer.status_code, slug(answer)) == (403, "forbidden")
    without = {"name": "db.t", "schema": SCHEMA, "adoptExistingFiles": True}
    answer = await place.api.post("/v1/tables", json=without, headers=as_("admin"))
    assert (answer.status_code, slug(answer)) == (422, "request-invalid")
    assert place.files() == theirs
    assert (await place.create(adoptExistingFiles=True)).status_code == 201


async def test_without_keys_the_flag_is_enough(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "theirs.csv").write_text("1")
    body = {"name": "db.t", "schema": SCHEMA, "location": (tmp_path / "x").as_uri()}
    async with Api(store=store) as api:
        assert slug(await api.post("/v1/tables", json=body)) == "location-not-empty"
        assert (await api.post("/v1/tables", json={**body, "adoptExistingFiles": True})).status_code == 201
    await store.close()


async def test_empty_folders_are_empty(place: Place) -> None:
    (place.lake / "deep").mkdir(parents=True)
    assert (await place.create("writer")).status_code == 201


async def test_vacuum_and_purge_delete_nothing_that_was_there_before(place: Place) -> None:
    theirs = place.fill()
    assert (await place.create(adoptExistingFiles=True)).status_code == 201
    pq.write_table(ROWS, place.lake / "own-orphan.parquet")
    # Adding a file to the table and removing it again does not make it the table's to delete.
    commits: list[dict[str, Any]] = [
        {"actions": [add("a.parquet")]},
        {"actions": [{"remove": {"path": "a.parquet", "dataChange": True}}], "readVersion": 1},
    ]
    for body in commits:
        answer = await place.api.post("/v1/tables/db.t/commits", json=body, headers=as_("writer"))
        assert answer.status_code == 201, answer.text
    done = await place.vacuum()
    assert (done["orphanedFilesFound"], done["orphanedFilesDeleted"]) == (1, 1), done
    assert place.files() == theirs
    assert done["kept"]["olderThanTable"] + done["kept"]["otherTable"] > 0
    assert "never deleted" in done["message"]
    (place.lake / "own.parquet").write_bytes(b"PAR1")
    dropped = await place.api.delete("/v1/tables/db.t?purge=true", headers=as_("admin"))
    assert dropped.status_code == 204, dropped.text
    assert place.files() == theirs


@pytest.mark.parametrize("theirs", ["delta", "ice", "log"])
async def test_tables_that_others_put_below_the_table_later_stay(place: Place, theirs: str) -> None:
    """They are younger than the table, so only their metadata shows that they are not orphans of it."""
    assert (await place.create()).status_code == 201
    (place.lake / "orphan.parquet").write_bytes(b"PAR1")
    if theirs == "delta":
        deltalake.write_deltalake(str(place.lake / "x"), pa.table({"day": ["1"], "id": [1]}), partition_by=["day"])
    elif theirs == "ice":
        iceberg(place.lake / "x")
    else:
        (place.lake / "x" / "_transaction_log").mkdir(parents=True)
        (place.lake / "x" / "_transaction_log" / f"{0:020d}.json").write_text("{}")
        (place.lake / "x" / "part.parquet").write_bytes(b"PAR1")
    before = place.files() - {"orphan.parquet"}
    done = await place.vacuum()
    assert (place.files(), done["orphanedFilesDeleted"]) == (before, 1)
    assert done["kept"]["otherTable"] >= 1
    await place.api.delete("/v1/tables/db.t?purge=true", headers=as_("admin"))
    assert place.files() == before


async def test_a_log_beside_the_table_s_own_protects_the_whole_folder(place: Place) -> None:
    deltalake.write_deltalake(str(place.lake), ROWS)
    assert (await place.create(adoptExistingFiles=True)).status_code == 201
    (place.lake / "sub").mkdir()
    (place.lake / "sub" / "younger.parquet").write_bytes(b"PAR1")
    before = place.files()
    await place.vacuum()
    await place.api.delete("/v1/tables/db.t?purge=true", headers=as_("admin"))
    assert place.files() == before
    assert len(deltalake.DeltaTable(str(place.lake)).file_uris()) == 1


async def test_a_location_inside_another_table_is_refused(place: Place) -> None:
    """What Delta writes into its folder later would look like orphans of the table."""
    deltalake.write_deltalake(str(place.lake), ROWS)
    iceberg(place.root / "ice")
    (place.root / "plain" / "metadata").mkdir(parents=True)
    (place.root / "plain" / "metadata" / "readme.txt").write_text("an ordinary folder")
    for folder in ("lake/day=2", "ice/data/new"):
        answer = await place.create(folder=folder, adoptExistingFiles=True)
        assert (answer.status_code, slug(answer)) == (409, "location-not-empty")
        assert "inside the folder of another table" in answer.json()["detail"]
    assert (await place.create(folder="plain/t")).status_code == 201


async def test_files_that_were_restored_with_their_old_times_stay(place: Place) -> None:
    assert (await place.create()).status_code == 201
    restored = place.lake / "restored.parquet"
    pq.write_table(ROWS, restored)
    os.utime(restored, (1_600_000_000, 1_600_000_000))
    done = await place.vacuum()
    assert (done["orphanedFilesDeleted"], done["kept"]["olderThanTable"]) == (0, 1)
    assert place.files() == {"restored.parquet"}


async def test_no_commit_changes_when_the_table_was_created(place: Place) -> None:
    """Once version 0 was cleaned up, the creation time in the metadata decides which files are older."""
    created = (await place.create()).json()["createdTime"]
    snapshot = (await place.api.get("/v1/tables/db.t/snapshot", headers=as_("writer"))).json()
    for time in (0, None, created + 10**10):
        changed = {**snapshot["metaData"], "createdTime": time, "description": f"{time}"}
        body = {"actions": [{"metaData": changed}], "readVersion": snapshot["version"]}
        answer = await place.api.post("/v1/tables/db.t/commits", json=body, headers=as_("writer"))
        assert answer.status_code == 201, answer.text
        snapshot = (await place.api.get("/v1/tables/db.t/snapshot", headers=as_("writer"))).json()
        assert (snapshot["metaData"]["createdTime"], snapshot["metaData"]["description"]) == (created, f"{time}")
