"""A service that is away: the client says so with its URL, goes on until its deadline, and then says what to check."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tarnlog import Add, AsyncClient, Client, CommitOutcome, Committed, NotNow, Unavailable, Unreachable, new_commit_id
from tests.client.scripted import SCHEMA, Scripted, committed, problem
from tests.service_process import ServiceProcess, free_port

REFUSED = httpx.ConnectError("[Errno 111] Connection refused")
NOT_READY = problem(503, "not-ready", retry_after="15")


def add(path: str = "a") -> Add:
    return Add(path=path, partition_values={}, size=1, modification_time=1, data_change=True)


def commit(client: Client) -> Any:
    return client.commit("s.t", [add()])


def transaction(client: Client) -> Any:
    with client.transaction("s.t") as tx:
        tx.add("a", size=1)


def read(client: Client) -> Any:
    return client.get_table("s.t")


def pages(client: Client) -> Any:
    return list(client.files("s.t"))


def feed(client: Client) -> Any:
    return next(client.events("s.t", after=3))


CALLS = (commit, transaction, read, pages, feed)


class Timed(logging.Handler):
    """Notices with the moment of the scripted clock at which they came."""

    def __init__(self, script: Scripted) -> None:
        super().__init__()
        self.script = script
        self.seen: list[tuple[float, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append((self.script.now - 1000.0, record.getMessage()))


@pytest.fixture
def listen() -> Iterator[Callable[[Scripted], Timed]]:
    """Starts to listen to what clients of a script say."""
    added: list[Timed] = []

    def begin(script: Scripted) -> Timed:
        handler = Timed(script)
        added.append(handler)
        logging.getLogger("tarnlog").addHandler(handler)
        return handler

    yield begin
    for handler in added:
        logging.getLogger("tarnlog").removeHandler(handler)


def timing_out(script: list[Scripted]) -> Callable[[httpx.Request], httpx.Response]:
    """A host that does not answer: each try takes as long as a connection may."""

    def reply(request: httpx.Request) -> httpx.Response:
        script[0].now += request.extensions["timeout"]["connect"]
        raise httpx.ConnectTimeout("timed out")

    return reply


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", ["refused", "no such host", "timeout", "not-ready"])
def test_it_is_said_within_five_seconds_and_then_now_and_then(
    call: Callable[[Client], Any], kind: str, listen: Callable[[Scripted], Timed]
) -> None:
    scripts: list[Scripted] = []
    replies: dict[str, Any] = {
        "refused": REFUSED,
        "no such host": httpx.ConnectError("[Errno -2] Name or service not known"),
        "timeout": timing_out(scripts),
        "not-ready": NOT_READY,
    }
    script = Scripted(replies[kind])
    scripts.append(script)
    said = listen(script)
    outcome = None
    with contextlib.suppress(Unavailable):
        outcome = call(script.client(deadline=60))
    assert outcome is None or isinstance(outcome, NotNow)
    assert said.seen, "56 seconds of silence"
    moments = [at for at, _ in said.seen]
    assert moments[0] <= 5.0
    assert 3 <= len(moments) <= 7, moments
    for _, text in said.seen:
        assert "http://service" in text
        assert "Trying again for" in text


def test_the_asyncio_client_says_the_same(listen: Callable[[Scripted], Timed]) -> None:
    async def story(script: Scripted) -> CommitOutcome:
        async with script.async_client(deadline=60) as client:
            return await client.commit("s.t", [add()])

    script = Scripted(REFUSED)
    said = listen(script)
    outcome = asyncio.run(story(script))
    assert isinstance(outcome, NotNow)
    assert "http://service" in outcome.problem["detail"]
    assert said.seen[0][0] <= 5.0
    assert "No answer from http://service ([Errno 111] Connection refused)." in said.seen[0][1]


def test_a_short_absence_is_no_news(listen: Callable[[Scripted], Timed]) -> None:
    script = Scripted(REFUSED, REFUSED, REFUSED, committed)
    said = listen(script)
    assert isinstance(commit(script.client()), Committed)
    assert said.seen == []


def test_when_the_deadline_passes_the_error_names_the_url_and_what_to_check() -> None:
    with pytest.raises(Unreachable) as caught:
        read(Scripted(REFUSED).client(deadline=5))
    for part in ("http://service", "Connection refused", "TARNLOG_URL", "Check that the service runs"):
        assert part in str(caught.value)
    with pytest.raises(Unreachable) as caught:
        transaction(Scripted(REFUSED).client(deadline=5))
    assert caught.value.url == "http://service"
    assert "Nothing was sent" in str(caught.value)


def test_without_any_logging_set_up_the_lines_are_on_stderr() -> None:
    """Over a real socket: nothing listens on the port."""
    url = f"http://127.0.0.1:{free_port()}"
    code = "from tarnlog import Client; import sys; Client(sys.argv[1]).get_table('s.t')"
    waiting = subprocess.Popen([sys.executable, "-c", code, url], stderr=subprocess.PIPE, text=True)
    try:
        assert waiting.stderr is not None
        first = waiting.stderr.readline()
    finally:
        waiting.kill()
        waiting.communicate()
    assert first.startswith(f"tarnlog: No answer from {url} (")
    assert "Trying again for" in first


def test_the_command_line_names_the_url() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    code = "from tarnlog.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--url", url, "tables"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 4
    assert url in done.stderr
    assert "tarnlog serve" in done.stderr


def test_a_service_that_comes_up_meanwhile_gets_each_commit_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = ServiceProcess(tmp_path / "warehouse")
    mine = {"sync": new_commit_id(), "async": new_commit_id()}
    outcomes: dict[str, CommitOutcome] = {}

    def blocking() -> None:
        with Client(service.url, deadline=120) as client:
            outcomes["sync"] = client.commit("s.t", [add("sync")], commit_id=mine["sync"])

    async def waiting() -> None:
        async with AsyncClient(service.url, deadline=120) as client:
            outcomes["async"] = await client.commit("s.t", [add("async")], commit_id=mine["async"])

    try:
        service.start()
        with Client(service.url) as client:
            client.create_table("s.t", SCHEMA)
        service.stop()
        writers = [threading.Thread(target=blocking), threading.Thread(target=asyncio.run, args=(waiting(),))]
        with caplog.at_level("WARNING", logger="tarnlog"):
            for writer in writers:
                writer.start()
            while len([one for one in caplog.messages if service.url in one]) < 2:
                writers[0].join(0.05)  # until both said that nothing answers
                assert all(writer.is_alive() for writer in writers), outcomes
            service.start()
            for writer in writers:
                writer.join()
        assert {kind for kind, outcome in outcomes.items() if isinstance(outcome, Committed)} == {"sync", "async"}
        with Client(service.url) as client:
            landed = [record.commit_id for record in client.history("s.t") if record.operation == "WRITE"]
            assert sorted(filter(None, landed)) == sorted(mine.values())
            assert sorted(file.path for file in client.files("s.t")) == ["async", "sync"]
    finally:
        service.close()
