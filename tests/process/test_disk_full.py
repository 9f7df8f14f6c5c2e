"""A full disk: commits are refused and not there, reading goes on, and with space commits go on by themselves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tarnlog import NotNow
from tests.process.journal import Journal, check
from tests.process.load import SCHEMA, TABLE
from tests.process.log_reading import objects_in_folder, read_log
from tests.process.raw import RawWriter, add, slug
from tests.service_process import ServiceProcess

Start = Callable[..., ServiceProcess]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of eight megabytes; skips where this user may not mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if mount is None or not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("needs Linux and root to mount a small tmpfs; the file size limit stands in for it")
    mounted = subprocess.run([mount, "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_full_disk_refuses_commits_until_there_is_space(start_service: Start, small_disk: Path) -> None:
    service = start_service(small_disk / "warehouse")
    journal = Journal()
    async with httpx.AsyncClient(base_url=service.url, timeout=30) as http:
        writer = RawWriter(http, journal)
        assert (await http.post("/v1/tables", json={"name": TABLE, "schema": SCHEMA})).status_code == 201
        for number in range(5):
            assert (await writer.append(f"before-{number}")).status_code == 201
        for round_ in range(3):
            _fill(small_disk / "ballast")
            refused = await asyncio.gather(*(writer.append(f"full-{round_}-{number}") for number in range(16)))
            assert {(answer.status_code, slug(answer)) for answer in refused} == {(503, "storage-refused")}
            assert _temporary(small_disk) == [], "failed writes left what nobody will ever need"
            head = (await http.get(f"/v1/tables/{TABLE}/snapshot?maxStalenessSeconds=0")).json()["version"]
            assert (await http.post("/v1/tables", json={"name": "sales.more", "schema": SCHEMA})).status_code == 503
            assert (await http.get("/v1/health/live")).status_code == 200
            assert slug(await _ready(http, 503)) == "not-ready"
            (small_disk / "ballast").unlink()
            again = [await writer.send(sent) for sent in journal.sent if isinstance(sent.answers[-1], NotNow)]
            assert {answer.status_code for answer in again} == {201}
            assert min(answer.json()["version"] for answer in again) == head + 1
            await _ready(http, 200)
        assert (await http.post("/v1/tables", json={"name": "sales.more", "schema": SCHEMA})).status_code == 201
    assert service.returncode is None
    check(journal, read_log(objects_in_folder(small_disk / "warehouse"), TABLE))
    assert all(sent.committed for sent in journal.sent)


async def test_under_load_a_disk_that_fills_up_loses_nothing(start_service: Start, small_disk: Path) -> None:
    service = start_service(small_disk / "warehouse")
    journal = Journal()
    stop = asyncio.Event()

    async def write(writer: RawWriter, name: str) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            await writer.append(f"{name}-{number}")

    async with httpx.AsyncClient(base_url=service.url, timeout=30) as http:
        writer = RawWriter(http, journal)
        assert (await http.post("/v1/tables", json={"name": TABLE, "schema": SCHEMA})).status_code == 201
        async with asyncio.TaskGroup() as writers:
            for number in range(16):
                writers.create_task(write(writer, f"w{number}"))
            for _ in range(4):
                await _more("Committed", journal)
                _fill(small_disk / "ballast", leave=16 * 1024)
                await _more("NotNow", journal)
                (small_disk / "ballast").unlink()
            stop.set()
    service.kill9()
    log = read_log(objects_in_folder(small_disk / "warehouse"), TABLE)
    check(journal, log)
    assert len(log.live) == journal.acknowledged


async def test_a_write_cut_short_is_refused_and_not_there(start_service: Start, tmp_path: Path) -> None:
    """A file size limit cuts a write in the middle, as a quota does, and needs no rights."""
    if not hasattr(resource, "prlimit"):
        pytest.skip("needs Linux to limit the file size of a running process")
    service = start_service(env={"TARNLOG_LOG_LEVEL": "error"})
    warehouse = Path(service.warehouse)
    journal = Journal()
    async with httpx.AsyncClient(base_url=service.url, timeout=30) as http:
        writer = RawWriter(http, journal)
        table = {"name": TABLE, "schema": SCHEMA, "properties": {"transaction.compression.enabled": "false"}}
        assert (await http.post("/v1/tables", json=table)).status_code == 201
        unlimited = resource.prlimit(service.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (512 * 1024, unlimited[1]))
        large = writer.new(*(add(f"{'x' * 100}/{number}") for number in range(5000)))
        answer = await writer.send(large)
        assert (answer.status_code, slug(answer)) == (503, "storage-refused"), answer.text
        assert "File too large" in answer.json()["detail"]
        assert (await writer.append("small")).json()["version"] == 1
        assert _temporary(warehouse) == []
        resource.prlimit(service.pid, resource.RLIMIT_FSIZE, unlimited)
        answer = await writer.send(large)
        assert (answer.status_code, answer.json()["version"]) == (201, 2)
    check(journal, read_log(objects_in_folder(warehouse), TABLE))


async def test_a_read_only_disk_is_not_ready_and_serves_reads(start_service: Start, small_disk: Path) -> None:
    service = start_service(small_disk / "warehouse", {"TARNLOG_DATABASE_URL": "off"})
    journal = Journal()
    async with httpx.AsyncClient(base_url=service.url, timeout=30) as http:
        writer = RawWriter(http, journal)
        assert (await http.post("/v1/tables", json={"name": TABLE, "schema": SCHEMA})).status_code == 201
        assert (await writer.append("before")).status_code == 201
        _remount(small_disk, "ro")
        answer = await writer.append("read-only")
        assert (answer.status_code, slug(answer)) == (503, "storage-refused")
        assert slug(await _ready(http, 503)) == "not-ready"
        assert (await http.get(f"/v1/tables/{TABLE}/files?maxStalenessSeconds=0")).status_code == 200
        _remount(small_disk, "rw")
        assert (await writer.append("after")).status_code == 201
        await _ready(http, 200)
    check(journal, read_log(objects_in_folder(small_disk / "warehouse"), TABLE))


def _remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)


async def _ready(http: httpx.AsyncClient, status: int) -> httpx.Response:
    """The answer about readiness, once it has a status."""
    end = time.monotonic() + 30
    while (answer := await http.get("/v1/health/ready")).status_code != status:
        assert time.monotonic() < end, answer.text
        await asyncio.sleep(0.05)
    return answer


def _temporary(folder: Path) -> list[Path]:
    return list(folder.rglob(".tarnlog-tmp-*"))


def _fill(ballast: Path, leave: int = 0) -> None:
    """Use up the disk except for `leave` bytes."""
    with ballast.open("wb", buffering=0) as out, contextlib.suppress(OSError):
        while True:
            out.write(b"\0" * 4096)
    if leave:
        os.truncate(ballast, max(0, ballast.stat().st_size - leave))


async def _more(answer: str, journal: Journal) -> None:
    """Wait until every writer got an answer of a kind again."""
    wanted = journal.counts().get(answer, 0) + 17
    end = time.monotonic() + 60
    while journal.counts().get(answer, 0) < wanted:
        assert time.monotonic() < end, journal.counts()
        await asyncio.sleep(0.01)
