"""A damaged version file closes its own table and no other, says which object it is, and is forgotten once restored."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.process.journal import Journal, check
from tests.process.load import SCHEMA
from tests.process.log_reading import locations, objects_in_folder, read_log
from tests.process.raw import RawWriter, slug
from tests.service_process import ServiceProcess

Start = Callable[..., ServiceProcess]
StartPair = Callable[..., list[ServiceProcess]]
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "flipped": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
}
SOUND = "t.sound"
VERSIONS = 4
HEALS_WITHIN = 20.0
READ_AGAIN = {"TARNLOG_MAX_OPEN_TABLES": "1"}
"""What a service has in memory it does not read again: damage shows when a table is opened again."""


class Tables:
    """One table for each kind of damage and a sound one, with a few commits in each."""

    def __init__(self, warehouse: Path, http: httpx.AsyncClient) -> None:
        self._warehouse = warehouse
        self._http = http
        self.journals = {name: Journal() for name in (SOUND, *(f"t.{kind}" for kind in DAMAGES))}
        self._intact: dict[Path, bytes] = {}

    async def create(self) -> None:
        for name in self.journals:
            assert (await self._http.post("/v1/tables", json={"name": name, "schema": SCHEMA})).status_code == 201
            for number in range(VERSIONS):
                assert (await self.append(name, f"file-{number}")).status_code == 201

    def served_by(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def append(self, name: str, path: str) -> httpx.Response:
        return await RawWriter(self._http, self.journals[name], name).append(path)

    async def get(self, name: str, what: str) -> httpx.Response:
        return await self._http.get(f"/v1/tables/{name}/{what}")

    def damage(self, version: int) -> None:
        """Spoil one version of each table that is to be spoilt."""
        for kind, spoil in DAMAGES.items():
            path = self._warehouse / self.key(f"t.{kind}", version)
            self._intact[path] = path.read_bytes()
            path.write_bytes(spoil(self._intact[path]))

    def restore(self) -> None:
        for path, data in self._intact.items():
            path.write_bytes(data)

    def key(self, name: str, version: int) -> str:
        place = locations(objects_in_folder(self._warehouse), name)[-1]
        return f"{place}/_transaction_log/{version:020d}.json"

    async def assert_only_the_damaged_fail(self, version: int, *asked: str) -> None:
        for kind in DAMAGES:
            for what in asked:
                answer = await self.get(f"t.{kind}", what)
                self.assert_names(answer, f"t.{kind}", version)
            self.assert_names(await self.append(f"t.{kind}", "while-damaged"), f"t.{kind}", version)
        assert (await self.append(SOUND, f"beside-{len(self.journals[SOUND].sent)}")).status_code == 201
        assert (await self._http.get("/v1/health/ready")).status_code == 200
        listed = (await self._http.get("/v1/tables")).json()["tables"]
        assert {table["name"] for table in listed} == set(self.journals)

    def assert_names(self, answer: httpx.Response, name: str, version: int) -> None:
        key = self.key(name, version)
        assert (answer.status_code, slug(answer)) == (500, "log-corrupt"), f"{name}: {answer.text}"
        assert answer.json()["object"] == key
        assert key in answer.json()["detail"]

    async def assert_all_serve_again(self) -> None:
        end = time.monotonic() + HEALS_WITHIN
        for name in self.journals:
            while (answer := await self.append(name, "healed")).status_code != 201:
                assert slug(answer) == "log-corrupt", answer.text
                assert time.monotonic() < end, f"{name} is still closed: {answer.text}"
                await asyncio.sleep(0.5)

    def check(self) -> None:
        objects = objects_in_folder(self._warehouse)
        for name, journal in self.journals.items():
            check(journal, read_log(objects, name))


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


async def test_damage_under_a_running_service(start_service: Start, warehouse: Path) -> None:
    service = start_service(warehouse, READ_AGAIN)
    async with httpx.AsyncClient(base_url=service.url, timeout=30) as http:
        tables = Tables(warehouse, http)
        await tables.create()
        assert (await tables.append(SOUND, "the-only-open-table")).status_code == 201
        tables.damage(2)
        await tables.assert_only_the_damaged_fail(2, "commits/2", "snapshot")
        tables.restore()
        await tables.assert_all_serve_again()
    assert service.returncode is None
    tables.check()


async def test_damage_found_at_the_start(start_service: Start, warehouse: Path) -> None:
    service = start_service(warehouse)
    async with httpx.AsyncClient(base_url=service.url, timeout=30) as http:
        tables = Tables(warehouse, http)
        await tables.create()
    service.kill9()
    tables.damage(VERSIONS)  # the newest: it must not be taken for a version that never happened
    service.start()
    async with httpx.AsyncClient(base_url=service.url, timeout=30) as http:
        tables.served_by(http)
        await tables.assert_only_the_damaged_fail(VERSIONS, "snapshot", "files", f"commits/{VERSIONS}")
        tables.restore()
        await tables.assert_all_serve_again()
    tables.check()


async def test_damage_in_what_another_service_wrote(start_pair: StartPair, warehouse: Path) -> None:
    first, second = start_pair(warehouse)
    async with (
        httpx.AsyncClient(base_url=first.url, timeout=30) as http,
        httpx.AsyncClient(base_url=second.url, timeout=30) as other,
    ):
        tables = Tables(warehouse, http)
        await tables.create()
        tables.served_by(other)
        for name in tables.journals:
            assert (await tables.append(name, "elsewhere")).status_code == 201
        tables.damage(VERSIONS + 1)
        tables.served_by(http)
        # The first learns of that version by losing its slot, or by looking for it.
        await tables.assert_only_the_damaged_fail(VERSIONS + 1)
        await tables.assert_only_the_damaged_fail(VERSIONS + 1, "snapshot?maxStalenessSeconds=0")
        tables.restore()
        await tables.assert_all_serve_again()
    tables.check()


async def test_damage_that_a_reader_meets_while_a_commit_is_under_way(start_pair: StartPair, warehouse: Path) -> None:
    """Whoever meets it first, the commit is answered, and the service has not stumbled."""
    first, second = start_pair(warehouse, {"TARNLOG_TEST_STORE_DELAY_MS": "30"}, {})
    async with (
        httpx.AsyncClient(base_url=first.url, timeout=30) as http,
        httpx.AsyncClient(base_url=second.url, timeout=30) as other,
    ):
        tables = Tables(warehouse, http)
        await tables.create()
        tables.served_by(other)
        for name in tables.journals:
            assert (await tables.append(name, "elsewhere")).status_code == 201
        tables.damage(VERSIONS + 1)
        tables.served_by(http)
        for kind in DAMAGES:
            commits = [tables.append(f"t.{kind}", f"under-way-{number}") for number in range(4)]
            reads = [tables.get(f"t.{kind}", "snapshot?maxStalenessSeconds=0") for _ in range(4)]
            for answer in await asyncio.gather(*commits, *reads):
                tables.assert_names(answer, f"t.{kind}", VERSIONS + 1)
        tables.restore()
        await tables.assert_all_serve_again()
    tables.check()
    assert "Traceback" not in first.logs
