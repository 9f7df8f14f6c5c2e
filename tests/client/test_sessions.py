"""Write sessions in the client: what is sent, and the blocks that extend themselves."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import httpx
import pytest

from tarnlog import Expired, InvalidRequest, NotFound, TableApi
from tarnlog.testing import FakeTarnlog
from tests.client.scripted import SCHEMA, Scripted, answer, problem

SESSION = {"id": "s-1", "prefix": "p/", "expiresAt": 5}
WAIT = 30.0


def sent(script: Scripted) -> list[tuple[str, str, Any]]:
    return [
        (request.method, request.url.path, json.loads(request.content) if request.content else None)
        for request in script.requests
    ]


def test_what_is_sent() -> None:
    script = Scripted(answer(201, SESSION), answer(200, SESSION), answer(204), answer(200, {"sessions": [SESSION]}))
    client = script.client()
    assert client.begin_session("s.t", "p/", ttl_seconds=60).id == "s-1"
    assert client.extend_session("s.t", "s-1", ttl_seconds=61).expires_at == 5
    client.end_session("s.t", "s-1")
    assert [found.prefix for found in client.sessions("s.t")] == ["p/"]
    assert sent(script) == [
        ("POST", "/v1/tables/s.t/sessions", {"prefix": "p/", "ttlSeconds": 60}),
        ("PUT", "/v1/tables/s.t/sessions/s-1", {"ttlSeconds": 61}),
        ("DELETE", "/v1/tables/s.t/sessions/s-1", None),
        ("GET", "/v1/tables/s.t/sessions", None),
    ]


def test_ending_twice_is_fine_and_a_missing_table_is_not() -> None:
    Scripted(problem(404, "session-not-found")).client().end_session("s.t", "s-1")
    with pytest.raises(NotFound):
        Scripted(problem(404, "table-not-found")).client().end_session("s.t", "s-1")


class Extended:
    """A service whose sessions are extended; tells when that happened."""

    def __init__(self, extending: httpx.Response | None = None) -> None:
        self.methods: list[str] = []
        self.happened = threading.Event()
        self.extending = extending or answer(200, SESSION)
        self.script = Scripted(self.handle)

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.methods.append(request.method)
        if request.method == "PUT":
            self.happened.set()
            return self.extending
        return answer(201, SESSION) if request.method == "POST" else answer(204)


def test_a_block_extends_itself_and_ends() -> None:
    service = Extended()
    with service.script.client().write_session("s.t", "p/", ttl_seconds=1) as session:
        assert session.id == "s-1"
        assert service.happened.wait(WAIT)
    assert service.methods[0] == "POST"
    assert service.methods[-1] == "DELETE"
    assert set(service.methods[1:-1]) == {"PUT"}


async def test_an_asyncio_block_does_the_same() -> None:
    service = Extended()
    async with service.script.async_client().write_session("s.t", "p/", ttl_seconds=1) as session:
        assert session.id == "s-1"
        for _ in range(3000):
            if service.happened.is_set():
                break
            await asyncio.sleep(0.01)
        assert service.happened.is_set()
    assert service.methods[-1] == "DELETE"


def test_after_an_exception_the_session_is_left_to_expire() -> None:
    service = Extended()
    with pytest.raises(RuntimeError, match="not known"), service.script.client().write_session("s.t", ttl_seconds=900):
        raise RuntimeError("the outcome of a commit is not known")
    assert service.methods == ["POST"]


def test_a_session_that_could_not_be_extended_says_so_before_the_commit() -> None:
    service = Extended(problem(410, "session-expired"))
    with service.script.client().write_session("s.t", ttl_seconds=1) as session:
        assert service.happened.wait(WAIT)
        session._thread.join(2.0)  # type: ignore[union-attr]
        with pytest.raises(Expired, match="could not be extended"):
            session.check()


@pytest.mark.parametrize("clock", ["monotonic", "time"])
def test_either_clock_ends_a_session(monkeypatch: pytest.MonkeyPatch, clock: str) -> None:
    fake = FakeTarnlog()
    fake.create_table("s.t", SCHEMA)
    with fake.write_session("s.t", ttl_seconds=900) as session:
        session.check()
        later = getattr(time, clock)() + 901
        monkeypatch.setattr(f"tarnlog._sessions.time.{clock}", lambda: later)
        with pytest.raises(Expired):
            session.check()
        monkeypatch.undo()


def test_a_block_that_never_began_has_no_id() -> None:
    with pytest.raises(RuntimeError, match="with"):
        _ = FakeTarnlog().write_session("s.t").id


def test_fake_and_service_agree(api: TableApi, table: str) -> None:
    begun = api.begin_session(table, "day=1/", ttl_seconds=60)
    assert api.sessions(table) == (begun,)
    assert api.extend_session(table, begun.id, ttl_seconds=600).expires_at > begun.expires_at
    api.end_session(table, begun.id)
    api.end_session(table, begun.id)
    assert api.sessions(table) == ()
    with pytest.raises(NotFound) as caught:
        api.extend_session(table, begun.id)
    assert caught.value.slug == "session-not-found"
    for prefix, ttl in (("../x", 60), ("", 0), ("", 10_000_000)):
        with pytest.raises(InvalidRequest):
            api.begin_session(table, prefix, ttl_seconds=ttl)
    with api.write_session(table) as session:
        session.check()
        assert [found.id for found in api.sessions(table)] == [session.id]
    assert api.sessions(table) == ()


def test_a_session_of_the_fake_expires() -> None:
    now = [1000]
    fake = FakeTarnlog(clock=lambda: now[0])
    fake.create_table("s.t", SCHEMA)
    begun = fake.begin_session("s.t", ttl_seconds=1)
    now[0] += 1000
    assert fake.sessions("s.t") == ()
    with pytest.raises(Expired):
        fake.extend_session("s.t", begun.id)
