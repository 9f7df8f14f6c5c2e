"""Clients without a key that send half a request, or one byte at a time, or no end: others are served meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

from tarnlog import Client, Committed
from tests.process.journal import Journal, check
from tests.process.load import SCHEMA, TABLE, file
from tests.process.log_reading import objects_in_folder, read_log
from tests.process.raw import RawWriter, add, slug
from tests.service_process import ServiceProcess

Start = Callable[..., ServiceProcess]
COMMITS = f"/v1/tables/{TABLE}/commits"
MIB = 1024 * 1024


@contextlib.contextmanager
def connections(service: ServiceProcess, count: int, *pieces: bytes) -> Iterator[list[socket.socket]]:
    """So many open connections that each sent these bytes."""
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=30))
            with contextlib.suppress(ConnectionError):
                connection.sendall(b"".join(pieces))
            made.append(connection)
        yield made


def received(connection: socket.socket) -> bytes:
    """Everything until the service ends the connection."""
    got = b""
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(65536):
            got += data
    return got


def test_half_sent_heads_take_nothing_away(start_service: Start) -> None:
    """600 of them, in a process that may open 300 files, while clients come and commit."""
    service = start_service(env={"TARNLOG_MAX_CONNECTIONS": "100"})
    resource.prlimit(service.pid, resource.RLIMIT_NOFILE, (300, 300))
    with Client(service.url) as client:
        client.create_table(TABLE, SCHEMA)
        for number in range(6):
            with connections(service, 100, b"POST /v1/tables HTTP/1.1\r\nhost: localhost\r\nhalf: "):
                assert isinstance(client.commit(TABLE, [file(f"kept-alive-{number}")]), Committed)
                with Client(service.url) as newcomer:
                    assert isinstance(newcomer.commit(TABLE, [file(f"new-{number}")]), Committed)
                assert httpx.get(f"{service.url}/v1/health/ready", timeout=30).status_code == 200
    with (
        connections(service, 600, b"POST /v1/tables HTTP/1.1\r\nhost: localhost\r\nhalf: "),
        Client(service.url) as client,
    ):
        assert isinstance(client.commit(TABLE, [file("last")]), Committed)
    assert len(read_log(objects_in_folder(Path(service.warehouse)), TABLE).live) == 13


def test_heads_and_bodies_that_do_not_come_are_cut_off_and_nothing_is_written(start_service: Start) -> None:
    """Streams and long calls of others go on: their requests are complete."""
    times = {"TARNLOG_REQUEST_HEAD_SECONDS": "1", "TARNLOG_REQUEST_BODY_SECONDS": "1"}
    service = start_service(env={**times, "TARNLOG_OPERATION_WAIT_SECONDS": "60", "TARNLOG_TEST_STORE_DELAY_MS": "100"})

    async def run() -> None:
        journal = Journal()
        async with httpx.AsyncClient(base_url=service.url, timeout=60) as http:
            assert (await http.post("/v1/tables", json={"name": TABLE, "schema": SCHEMA})).status_code == 201
            writer = RawWriter(http, journal)
            assert (await writer.append("first")).status_code == 201
            async with http.stream("GET", f"/v1/tables/{TABLE}/events") as events:
                lines = events.aiter_lines()
                assert await anext(lines) == ": following"
                slow = [asyncio.create_task(asyncio.to_thread(_trickle, service, number)) for number in range(4)]
                began = time.monotonic()
                checked, *_ = await asyncio.gather(http.post(f"/v1/tables/{TABLE}/verify"), writer.append("meanwhile"))
                assert checked.status_code == 200, checked.text
                for answer in await asyncio.gather(*slow):
                    assert answer.startswith(b"HTTP/1.1 408 "), answer
                    assert b"/problems/request-timeout" in answer
                await asyncio.sleep(max(0.0, began + 2.5 - time.monotonic()))  # well beyond both limits
                assert (await writer.append("last")).status_code == 201
                assert await _events(lines, 2) == [2, 3]
        check(journal, read_log(objects_in_folder(Path(service.warehouse)), TABLE))

    asyncio.run(run())
    assert "Traceback" not in service.logs


async def _events(lines: object, count: int) -> list[int]:
    found: list[int] = []
    async for line in lines:  # type: ignore[attr-defined]
        if line.startswith("id:"):
            found.append(int(line.removeprefix("id:")))
            if len(found) == count:
                break
    return found


def _trickle(service: ServiceProcess, number: int) -> bytes:
    """A commit at one byte a moment: in its head (odd numbers) or in its body."""
    body = json.dumps({"actions": [add(f"slow-{number}")]}).encode()
    head = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n" % COMMITS.encode()
    whole = head + b"content-length: %d\r\n\r\n%s" % (len(body), body)
    begun = 40 if number % 2 else len(whole) - len(body) + 5
    with socket.create_connection(("127.0.0.1", service.port), timeout=0.05) as connection:
        connection.sendall(whole[:begun])
        for byte in whole[begun:-1]:
            with contextlib.suppress(TimeoutError):
                data = connection.recv(65536)
                connection.settimeout(30)
                return data + received(connection)
            connection.sendall(bytes([byte]))
    return b"never cut off"


def _guarded(start_service: Start) -> ServiceProcess:
    secret = hashlib.sha256(b"secret").hexdigest()
    return start_service(env={"TARNLOG_API_KEYS": json.dumps([{"id": "admin", "sha256": secret, "scope": "admin"}])})


def test_trailers_are_bounded_and_no_headers(start_service: Start) -> None:
    service = _guarded(start_service)
    head = b"POST %s HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n" % COMMITS.encode()
    with connections(service, 1, head, b"\r\n2\r\n{}\r\n0\r\nauthorization: Bearer admin.secret\r\n\r\n") as (one,):
        assert one.recv(65536).startswith(b"HTTP/1.1 401 ")
    before = _memory(service)
    for trailers in (b"t: x\r\n" * 100_000, b"x" * 600_000):
        with connections(service, 1, head, b"\r\n2\r\n{}\r\n0\r\nt: ") as (one,):
            taken = 0
            with contextlib.suppress(ConnectionError):
                while taken < 60 * MIB:
                    one.sendall(trailers)
                    taken += len(trailers)
            assert taken < 60 * MIB, "it took all of them"
    assert _memory(service) - before < 100 * MIB
    right, wrong = ("authorization", "Bearer admin.secret"), ("authorization", "Bearer admin.wrong")
    assert httpx.get(f"{service.url}/v1/tables", headers=[right], timeout=30).status_code == 200
    twice = httpx.get(f"{service.url}/v1/tables", headers=[right, wrong], timeout=30)
    assert (twice.status_code, slug(twice)) == (400, "bad-request")


def _memory(service: ServiceProcess) -> int:
    """The resident memory of a process, in bytes."""
    status = Path(f"/proc/{service.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def test_there_are_as_many_connections_as_files_may_be_open() -> None:
    """The limit on open files is raised as far as it may be; the cap follows from what that gives."""
    script = """
import resource
from tarnlog_server.cli import _connection_limits
from tarnlog_server.settings import Settings
for soft, hard in (300, 2000), (300, 1200), (100, 200):
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    limits = _connection_limits(Settings(max_connections=1000))
    print("found", limits.connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    found = [line for line in run.stdout.splitlines() if line.startswith("found")]
    assert found == ["found 1000 1512", "found 688 1200", "found 100 200"]
    assert (run.stdout + run.stderr).count("fewer connections") == 2
