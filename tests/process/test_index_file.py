"""The embedded index is deleted under a running service: commits go on, health says so, and it comes back by itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx

from tests.process.index_rows import QUICK, until
from tests.service_process import ServiceProcess

SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}


def add(path: str) -> dict[str, object]:
    return {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}


def indexed(file: Path) -> tuple[int, int] | None:
    """The first and last version that the file at its place tells."""
    if not file.is_file():
        return None
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
            found: tuple[int, int] | None = database.execute("SELECT first, last FROM tarnlog_tables").fetchone()
            return found
    except sqlite3.Error:
        return None


async def test_an_index_file_that_is_deleted_comes_back(
    start_service: Callable[..., ServiceProcess], tmp_path: Path
) -> None:
    service = start_service(tmp_path / "warehouse", QUICK)
    file = tmp_path / "warehouse" / ".tarnlog" / "index.sqlite"
    async with httpx.AsyncClient(base_url=service.url, timeout=30) as http:

        async def commit(path: str) -> int:
            answer = await http.post("/v1/tables/a.b/commits", json={"actions": [{"add": add(path)}]})
            assert answer.status_code == 201, answer.text
            version: int = answer.json()["version"]
            return version

        async def state() -> str:
            answer = await http.get("/v1/health/ready")
            assert answer.status_code == 200, "the index is never a reason against ready"
            return str(answer.json()["index"])

        async def is_whole(head: int) -> bool:
            return indexed(file) == (0, head)

        assert (await http.post("/v1/tables", json={"name": "a.b", "schema": SCHEMA})).status_code == 201
        head = await commit("first")
        await until(lambda: is_whole(head), "the index has both versions")

        # Something in its place keeps it away, for as long as the test looks.
        for suffix in ("", "-wal", "-shm"):
            file.with_name(file.name + suffix).unlink(missing_ok=True)
        file.mkdir()

        async def is_degraded() -> bool:
            return await state() == "degraded"

        await until(is_degraded, "health says so, without any traffic")
        head = await commit("meanwhile")
        history = await http.get("/v1/tables/a.b/commits")
        assert [one["version"] for one in history.json()["commits"]] == [2, 1, 0]
        file.rmdir()
        await until(lambda: is_whole(head), "it is made again, with everything")

        # Deleted with nothing in its place, by hand, and only the file itself.
        file.unlink()
        head = await commit("again")
        await until(lambda: is_whole(head), "and once more")
        assert await state() == "ready"
