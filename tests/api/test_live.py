"""A real process: the live feed, an orderly end that answers everyone, and what only a socket can show."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tarnlog import Client, new_commit_id
from tests.api.conftest import SCHEMA, add
from tests.servers import S3Server
from tests.service_process import ServiceProcess, running_service

Start = Callable[..., ServiceProcess]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """One service for the tests that leave it running."""
    with running_service(tmp_path_factory.mktemp("live") / "warehouse") as service:
        yield service


@pytest.fixture
def url(shared: ServiceProcess) -> str:
    """The shared service with an empty table."""
    httpx.delete(f"{shared.url}/v1/tables/db.t", timeout=30)
    create(shared.url)
    return shared.url


def create(url: str) -> None:
    answer = httpx.post(f"{url}/v1/tables", json={"name": "db.t", "schema": SCHEMA}, timeout=30)
    assert answer.status_code == 201, answer.text


def append(url: str, *paths: str) -> dict[str, Any]:
    answer = httpx.post(f"{url}/v1/tables/db.t/commits", json={"actions": [add(path) for path in paths]}, timeout=30)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


class Stream:
    """Reads server-sent events line by line."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.iter_lines()

    def event(self) -> dict[str, str]:
        """The next event; comments are passed over."""
        fields: dict[str, str] = {}
        for line in self._lines:
            if not line and fields:
                return fields
            name, _, value = line.partition(": ")
            if name:
                fields[name] = value
        return fields


@contextmanager
def events(url: str, last: int | None = None) -> Iterator[Stream]:
    headers = {} if last is None else {"last-event-id": str(last)}
    with httpx.stream("GET", f"{url}/v1/tables/db.t/events", headers=headers, timeout=20) as response:
        yield Stream(response)


def test_events_resume_without_a_gap(url: str) -> None:
    for number in range(3):
        append(url, f"f{number}")
    with events(url, 1) as stream:
        assert stream.response.headers["content-type"].startswith("text/event-stream")
        first, second = stream.event(), stream.event()
        assert (first["id"], second["id"], first["event"]) == ("2", "3", "change")
        assert [file["path"] for file in json.loads(first["data"])["adds"]] == ["f1"]
        append(url, "later")
        assert stream.event()["id"] == "4"
    with events(url) as stream:
        threading.Timer(0.5, append, [url, "new"]).start()
        assert stream.event()["id"] == "5"


def test_a_large_event_is_a_summary(url: str) -> None:
    append(url, *(f"{'x' * 200}-{number}" for number in range(5000)))
    with events(url, 0) as stream:
        data = json.loads(stream.event()["data"])
    assert (data["version"], data["numAdds"], data["numRemoves"]) == (1, 5000, 0)
    assert "adds" not in data
    change = httpx.get(url + data["link"]).json()["changes"]
    assert [len(version["adds"]) for version in change] == [5000]
    with Client(url) as client:
        assert len(next(client.events("db.t", after=0)).adds) == 5000


def test_a_feed_ends_with_its_table(url: str) -> None:
    with events(url, 0) as stream:
        assert httpx.delete(f"{url}/v1/tables/db.t").status_code == 204
        assert stream.event()["id"] == "1"
        assert stream.event() == {}
    gone = httpx.get(f"{url}/v1/tables/db.t/events")
    assert gone.status_code == 404


def test_a_shutdown_answers_everyone(start_service: Start) -> None:
    """Every request in flight when SIGTERM comes gets an answer that is true."""
    service = start_service(env={"TARNLOG_TEST_STORE_DELAY_MS": "500", "TARNLOG_SHUTDOWN_GRACE_SECONDS": "8"})
    create(service.url)
    ids = [new_commit_id() for _ in range(16)]
    connected, sent = threading.Barrier(17), threading.Barrier(17)

    def commit(commit_id: str) -> httpx.Response:
        with httpx.Client(base_url=service.url, timeout=30) as client:
            client.get("/v1/health/live")
            connected.wait(60)
            body = {"commitId": commit_id, "actions": [add(commit_id)]}
            request = client.build_request("POST", "/v1/tables/db.t/commits", json=body)
            sent.wait(60)
            return client.send(request)

    with ThreadPoolExecutor(16) as pool:
        waiting = [pool.submit(commit, commit_id) for commit_id in ids]
        connected.wait(60)
        sent.wait(60)
        time.sleep(0.45)
        assert service.stop() == 0, service.logs
        answers = [future.result() for future in waiting]
    told = {201: 0, 503: 0}
    for answer in answers:
        assert answer.status_code in told, answer.text
        told[answer.status_code] += 1
        if answer.status_code == 503:
            assert answer.headers["retry-after"]
            assert answer.json()["type"].endswith(("shutting-down", "commit-unknown")), answer.text
    assert told[201] > 0
    service.env = {}
    service.start()
    history = httpx.get(f"{service.url}/v1/tables/db.t/commits", timeout=30).json()["commits"]
    placed = {commit["commitId"]: commit["version"] for commit in history}
    for commit_id, answer in zip(ids, answers, strict=True):
        if answer.status_code == 201:
            assert placed[commit_id] == answer.json()["version"]
        elif answer.json()["type"].endswith("shutting-down"):
            assert commit_id not in placed


def test_a_shutdown_ends_live_feeds(service: ServiceProcess) -> None:
    create(service.url)
    with events(service.url, 0) as stream:
        threading.Timer(0.3, service.stop).start()
        started = time.monotonic()
        assert stream.event() == {}
        assert time.monotonic() - started < 5
    while service.returncode is None:
        time.sleep(0.05)
    assert service.returncode == 0


def test_a_follower_that_does_not_read_does_not_hold_up_the_end(start_service: Start) -> None:
    service = start_service(env={"TARNLOG_SHUTDOWN_GRACE_SECONDS": "30"})
    create(service.url)
    host = httpx.URL(service.url)
    with socket.create_connection((host.host, host.port or 80), timeout=30) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"GET /v1/tables/db.t/events HTTP/1.1\r\nhost: localhost\r\nlast-event-id: 0\r\n\r\n")
        with httpx.Client(base_url=service.url, timeout=60) as client:
            for number in range(12):
                actions = [add(f"{number}-{index:06}" + "x" * 500) for index in range(1500)]
                answer = client.post("/v1/tables/db.t/commits", json={"actions": actions})
                assert answer.status_code == 201, answer.text
        started = time.monotonic()
        assert service.stop() == 0, service.logs
        assert time.monotonic() - started < 25, "it did not wait for all of the grace time"


def test_ctrl_c_ends_it_too(service: ServiceProcess) -> None:
    import signal

    service._signal(signal.SIGINT)
    assert service._running().wait(10) == 0
    assert "Traceback" not in service.logs


def test_the_first_line_says_where(shared: ServiceProcess) -> None:
    [line] = [line for line in shared.logs.splitlines() if line.startswith("tarnlog serves")]
    assert shared.url in line
    assert f"dashboard: {shared.url}/," in line
    assert f"{shared.url}/docs" in line


def test_the_metrics_count_what_happened(service: ServiceProcess) -> None:
    create(service.url)
    for number in range(3):
        append(service.url, f"f{number}")
    text = httpx.get(f"{service.url}/metrics").text
    assert 'tarnlog_commits_total{outcome="committed"} 3.0' in text
    assert "tarnlog_open_tables 1.0" in text
    assert 'tarnlog_commit_phase_seconds_count{phase="putting"} 3.0' in text
    assert "tarnlog_batch_commits_count 3.0" in text


def test_a_warehouse_that_is_a_file(start_service: Start, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    service = start_service(blocked, wait=False)
    assert service._running().wait(60) == 2
    assert service.logs.startswith("tarnlog: TARNLOG_WAREHOUSE cannot be used")
    assert "Traceback" not in service.logs


def raw(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(65536):
            answer += part
        return answer


@pytest.mark.parametrize(
    "request_text",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/tables HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"\x00\x01\x02\r\n\r\n",
        b"GET /v1/tables/%zz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /v1/tables/\xff.\xfe HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"POST /v1/tables HTTP/1.1\r\nHost: [::1]\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{}",
        b"GET /v1/tables HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ],
)
def test_odd_bytes_on_the_wire(shared: ServiceProcess, request_text: bytes) -> None:
    answer = raw(shared.port, request_text)
    assert b" 500 " not in answer.split(b"\r\n", 1)[0], answer
    assert httpx.get(f"{shared.url}/v1/health/ready").status_code == 200
    assert "Traceback" not in shared.logs


def test_a_client_that_still_sends_gets_the_413(start_service: Start) -> None:
    service = start_service(env={"TARNLOG_MAX_BODY_BYTES": "100000"})

    def slowly() -> Iterator[bytes]:
        for _ in range(150):
            yield b" " * 1000

    answer = httpx.post(f"{service.url}/v1/tables", content=slowly(), headers={"content-type": "application/json"})
    assert answer.status_code == 413
    assert answer.json()["type"].endswith("request-too-large")


@pytest.mark.s3
def test_the_same_on_an_s3_store(start_service: Start, s3_server: S3Server, s3_bucket: str) -> None:
    """Probe, catalog, commits and a restart on a store over the network."""
    service = start_service(f"s3://{s3_bucket}/warehouse", env=s3_server.environment())
    create(service.url)
    told = append(service.url, "a", "b")
    assert service.stop() == 0
    service.start()
    snapshot = httpx.get(f"{service.url}/v1/tables/db.t/snapshot", timeout=30).json()
    assert (snapshot["version"], snapshot["numFiles"]) == (told["version"], 2)
    assert httpx.get(f"{service.url}/v1/tables/db.t").json()["location"].startswith(f"s3://{s3_bucket}/warehouse/db/t-")


def _spoken(url: str, *pieces: bytes) -> bytes:
    """What comes back on one connection for these bytes, until the service closes it."""
    host = httpx.URL(url)
    with socket.create_connection((host.host, host.port or 80), timeout=30) as connection:
        with suppress(ConnectionError):
            for piece in pieces:
                connection.sendall(piece)
        answer = b""
        with suppress(ConnectionError):
            while piece := connection.recv(65536):
                answer += piece
    return answer


@pytest.mark.parametrize(
    "pieces, status, slug",
    [
        ([b"hello\r\n\r\n"], 400, "bad-request"),
        ([b"GET /v1/health/live HTTP/1.1\r\nhost: localhost\r\nbroken header\r\n\r\n"], 400, "bad-request"),
        (
            [b"GET / HTTP/1.1\r\nhost: localhost\r\nendless: " + b"x" * 50_000, *[b"x" * 50_000] * 10],
            431,
            "headers-too-large",
        ),
        (
            [b"GET / HTTP/1.1\r\nhost: localhost\r\n", *[b"many: %s\r\n" % (b"x" * 900)] * 100, b"\r\n"],
            431,
            "headers-too-large",
        ),
        ([b"GET /", b"x" * 70_000, b" HTTP/1.1\r\nhost: localhost\r\n\r\n"], 431, "headers-too-large"),
    ],
)
def test_what_is_not_http_and_heads_without_end(
    service: ServiceProcess, pieces: list[bytes], status: int, slug: str
) -> None:
    head, _, body = _spoken(service.url, *pieces).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), head
    assert b"content-type: application/problem+json" in head
    assert json.loads(body)["type"].endswith(slug)


def test_a_large_head_that_is_allowed(service: ServiceProcess) -> None:
    answer = httpx.get(f"{service.url}/v1/health/live", headers={"x-large": "x" * 60_000})
    assert answer.status_code == 200
