"""Commits of every size over a real socket, however they are cut up: each answer says what the log on disk says.

The service runs in a process of its own; replicas that forward to each other run in this one, over sockets as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarnlog import AsyncClient, Committed, new_commit_id
from tarnlog.protocol.actions import Action
from tarnlog_server.adapters.http_peers import HttpPeers
from tarnlog_server.adapters.local_store import LocalStore
from tarnlog_server.adapters.memory_leases import MemoryLeases
from tarnlog_server.adapters.system_world import SystemWorld
from tarnlog_server.api.app import create_app
from tarnlog_server.api.readiness import Readiness
from tarnlog_server.ports.leases import Owner
from tarnlog_server.telemetry.metrics import PrometheusTelemetry
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.forwarding import Forwarding
from tarnlog_server.usecases.ownership import Ownership
from tarnlog_server.usecases.replicas import Replicas
from tarnlog_server.usecases.roots import Root, Roots
from tests.api.served import Reply, first_reply, served
from tests.conftest import LONG
from tests.process.journal import Journal, Sent, check
from tests.process.load import SCHEMA, TABLE, file
from tests.process.log_reading import objects_in_folder, read_log
from tests.process.raw import RawWriter, add, body_of, outcome_of
from tests.service_process import ServiceProcess, free_port, running_service

pytestmark = pytest.mark.timeout(600)
AROUND_64_KIB = [510, 520, *range(690, 711, 5), 1400]
"""Files whose commits have 50 to 190 KB: where head and body in one read were once taken for a head."""
EVERY_CLASS = [*range(1, 2000, 13), *range(2000, 20_000, 1000)]
SIZES = [*sorted({1, 100, *AROUND_64_KIB, 1000, 2000, *(EVERY_CLASS if LONG else ())}), 20_000]
COMMITS = f"/v1/tables/{TABLE}/commits"


class Wire:
    """Raw requests to one port, and the journal of what was sent and answered."""

    def __init__(self, port: int, journal: Journal) -> None:
        self.port = port
        self.journal = journal
        self._count = 0

    def commit(self, files: int) -> Sent:
        """A commit of so many new files, with a name of 24 characters each."""
        self._count += 1
        return self.journal.new(new_commit_id(), [add(f"{self._count:08d}/{n:07d}.parquet") for n in range(files)])

    def said(self, *pieces: bytes, answers: int = 1, wait_for_continue: bool = False) -> list[Reply]:
        """Send pieces, the first of them up to `100 Continue` if that is waited for; so many final answers."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(pieces[0])
            if wait_for_continue:
                assert connection.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
            for piece in pieces[1:]:
                time.sleep(0.001)  # most pieces then are a read of their own
                connection.sendall(piece)
            got = b""
            found: list[Reply] = []
            while len(found) < answers:
                data = connection.recv(65536)
                assert data, f"the connection ended after {found} and {got!r}"
                got += data
                with contextlib.suppress(AssertionError):  # half an answer
                    while got:
                        reply, got = first_reply(got)
                        found.append(reply)
            connection.settimeout(0.02)
            with contextlib.suppress(TimeoutError):
                got += connection.recv(65536)
            assert got == b"", f"more than was asked for: {got!r}"
        return found


def request_of(sent: Sent, more: bytes = b"") -> tuple[bytes, bytes]:
    """The head and the body of a commit."""
    body = body_of(sent)
    head = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n%s" % (COMMITS.encode(), more)
    return head + b"content-length: %d\r\n\r\n" % len(body), body


def chunked_of(sent: Sent, size: int) -> bytes:
    """A commit in chunks of a size, with a trailer."""
    head = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n" % COMMITS.encode()
    body = body_of(sent)
    parts = (body[start : start + size] for start in range(0, len(body), size))
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return head + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\nx-checksum: 1\r\n\r\n"


def note(sent: Sent, reply: Reply) -> None:
    response = httpx.Response(reply.status, headers=reply.headers, content=reply.body)
    sent.answers.append(outcome_of(sent.commit_id, response))


def must_be_committed(journal: Journal, warehouse: str) -> None:
    """Every answer is what the log says, and all were well-formed commits: each is in it."""
    check(journal, read_log(objects_in_folder(Path(warehouse)), TABLE))
    refused = [sent.answers for sent in journal.sent if sent.committed is None]
    assert not refused, f"{len(refused)} were not committed: {refused[:3]}"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """One service for the module; each test has a table of its own under the one name."""
    with running_service(tmp_path_factory.mktemp("sizes") / "warehouse") as running:
        yield running


@pytest.fixture
def wire(service: ServiceProcess) -> Wire:
    httpx.delete(f"{service.url}/v1/tables/{TABLE}", timeout=30)
    made = httpx.post(f"{service.url}/v1/tables", json={"name": TABLE, "schema": SCHEMA}, timeout=30)
    assert made.status_code == 201, made.text
    return Wire(service.port, Journal())


def test_head_and_body_in_one_send_and_in_two(service: ServiceProcess, wire: Wire) -> None:
    for files in SIZES:
        for joined in (True, False):
            sent = wire.commit(files)
            head, body = request_of(sent)
            note(sent, *wire.said(*([head + body] if joined else [head, body])))
    must_be_committed(wire.journal, service.warehouse)


def test_in_chunks(service: ServiceProcess, wire: Wire) -> None:
    for files in SIZES:
        for size in (1000, 100_000):
            sent = wire.commit(files)
            note(sent, *wire.said(chunked_of(sent, size)))
    must_be_committed(wire.journal, service.warehouse)


def test_after_100_continue(service: ServiceProcess, wire: Wire) -> None:
    for files in SIZES:
        sent = wire.commit(files)
        note(sent, *wire.said(*request_of(sent, b"expect: 100-continue\r\n"), wait_for_continue=True))
    must_be_committed(wire.journal, service.warehouse)


def test_pipelined(service: ServiceProcess, wire: Wire) -> None:
    """Several commits in one send, and behind them something that is not HTTP: it speaks for none of them."""
    for files in SIZES[:-1]:
        several = [wire.commit(files), wire.commit(1), wire.commit(files)]
        joined = b"".join(part for sent in several for part in request_of(sent))
        *replies, last = wire.said(joined + b"no HTTP\r\n\r\n", answers=4)
        for sent, reply in zip(several, replies, strict=True):
            note(sent, reply)
        assert last.status == 400
    must_be_committed(wire.journal, service.warehouse)


@settings(max_examples=300 if LONG else 12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.lists(st.sampled_from([100, 700, 900, 1400, 2500]), min_size=1, max_size=3),
    places=st.lists(st.floats(0, 1, exclude_max=True), max_size=4),
    chunk=st.sampled_from([0, 0, 10_000, 80_000]),
)
def test_cut_anywhere(
    wire_and_service: tuple[Wire, ServiceProcess], files: list[int], places: list[float], chunk: int
) -> None:
    wire, _ = wire_and_service
    several = [wire.commit(count) for count in files]
    parts = [chunked_of(sent, chunk) if chunk else b"".join(request_of(sent)) for sent in several]
    whole = b"".join(parts)
    ends = sorted({int(place * len(whole)) for place in places} - {0} | {len(whole)})
    pieces = [whole[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    for sent, reply in zip(several, wire.said(*pieces, answers=len(several)), strict=True):
        note(sent, reply)
        assert sent.committed is not None, reply


@pytest.fixture
def wire_and_service(service: ServiceProcess, wire: Wire) -> Iterator[tuple[Wire, ServiceProcess]]:
    """The log is read once, after all examples."""
    yield wire, service
    must_be_committed(wire.journal, service.warehouse)


def test_a_commit_that_breaks_off_is_not_written(service: ServiceProcess, wire: Wire) -> None:
    """The rest is missing, is no chunk, or does not fit: nothing of it is in the log."""
    for files in (1, 700, 2000):
        sent = wire.commit(files)
        broken = chunked_of(sent, 1000).removesuffix(b"0\r\nx-checksum: 1\r\n\r\n") + b"no chunk\r\n\r\n"
        (reply,) = wire.said(broken)
        assert reply.status == 400
        note(sent, reply)
        half = wire.commit(files)
        whole = b"".join(request_of(half))
        with socket.create_connection(("127.0.0.1", service.port), timeout=60) as connection:
            connection.sendall(whole[:-10])
            connection.shutdown(socket.SHUT_WR)
    ready = wire.commit(1)
    note(ready, *wire.said(b"".join(request_of(ready))))
    log = read_log(objects_in_folder(Path(service.warehouse)), TABLE)
    check(wire.journal, log)
    assert [sent.commit_id for sent in wire.journal.sent if sent.commit_id in log.commits] == [ready.commit_id]


async def test_by_httpx_and_by_the_client(service: ServiceProcess, wire: Wire) -> None:
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as http:
        writer = RawWriter(http, wire.journal)
        for files in SIZES:
            await writer.send(wire.commit(files))
    async with AsyncClient(service.url) as client:
        for files in (1, 700, 2000):
            sent = wire.commit(files)
            actions: list[Action] = [file(action["add"]["path"]) for action in sent.actions]
            done = await client.commit(TABLE, actions, commit_id=sent.commit_id)
            assert isinstance(done, Committed)
            sent.answers.append(done)
    must_be_committed(wire.journal, service.warehouse)


class Replica:
    """One of two replicas in this process."""

    def __init__(self, store: LocalStore, leases: MemoryLeases, port: int) -> None:
        world = SystemWorld()
        self.telemetry = PrometheusTelemetry()
        readiness = Readiness()
        readiness.checked(store.uri, (), 0)
        self.coordinator = Coordinator(Roots(Root(store.uri, store)), world, self.telemetry)
        me = Owner(world.uuid7().hex, f"http://127.0.0.1:{port}")
        self.ownership = Ownership(leases, me, world, self.telemetry, lease_seconds=600)
        peers = HttpPeers(connect_seconds=10, answer_seconds=60)
        self.replicas = Replicas(Forwarding(self.ownership, peers, world, self.telemetry), peers)
        self.app = create_app(self.coordinator, readiness, replicas=self.replicas)

    def forwarded(self, outcome: str) -> float:
        name, labels = "tarnlog_commits_forwarded_total", {"outcome": outcome}
        return self.telemetry.registry.get_sample_value(name, labels) or 0.0

    async def close(self) -> None:
        await self.replicas.close()
        await self.coordinator.close(1.0)


async def test_through_another_replica(tmp_path: Path) -> None:
    """What one replica sends on to the other is relayed with the other's answer, and never written twice."""
    store, leases = LocalStore(tmp_path), MemoryLeases(SystemWorld().monotonic)
    ports = free_port(), free_port()
    owner, other = (Replica(store, leases, port) for port in ports)
    async with (
        served(owner.app, port=ports[0]),
        served(other.app, port=ports[1]),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{ports[0]}", timeout=60) as http,
    ):
        assert (await http.post("/v1/tables", json={"name": TABLE, "schema": SCHEMA})).status_code == 201
        wire = Wire(ports[0], Journal())
        for replica, port in ((owner, ports[0]), (other, ports[1])):
            wire.port = port
            first = wire.commit(1)
            note(first, *await asyncio.to_thread(wire.said, b"".join(request_of(first))))
            await replica.ownership.round()
        for files in SIZES:
            for joined in (True, False):
                sent = wire.commit(files)
                whole = b"".join(request_of(sent)) if joined else chunked_of(sent, 100_000)
                note(sent, *await asyncio.to_thread(wire.said, whole))
        must_be_committed(wire.journal, str(tmp_path))
        assert other.forwarded("relay") == 2 * len(SIZES)
        assert (other.forwarded("not-written"), other.forwarded("unsure")) == (0, 0)
        await owner.close()
        await other.close()
