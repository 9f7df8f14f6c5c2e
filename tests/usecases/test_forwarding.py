"""A commit on its way to another replica: every way it can end, and that the same id is written whatever happens."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tarnlog_server.adapters.memory_leases import MemoryLeases
from tarnlog_server.core.routing import FORWARDED_BYTES, UNSETTLED_SECONDS
from tarnlog_server.ports.leases import Owner
from tarnlog_server.ports.peers import PeerAnswer, PeerSilent
from tarnlog_server.ports.telemetry import Telemetry
from tarnlog_server.usecases import forwarding
from tarnlog_server.usecases.forwarding import Forwarding
from tarnlog_server.usecases.ownership import Ownership
from tests.usecases.replicas import FakeWorld

OWNER, ME = Owner("owner", "http://owner"), Owner("me", "http://me")
ID = "01890000-0000-7000-8000-000000000001"
BODY = msgspec.json.encode({"commitId": ID, "actions": [{"add": {"path": "a"}}]})


class Counted(Telemetry):
    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def commit_forwarded(self, outcome: str) -> None:
        self.outcomes.append(outcome)


class Scripted:
    """Another replica that answers as it is told."""

    def __init__(self) -> None:
        self.answer: PeerAnswer | PeerSilent = problem(500, "internal-error")
        self.sent: list[tuple[Owner, str, bytes, dict[str, str]]] = []

    async def commit(self, owner: Owner, table: str, body: bytes, headers: dict[str, str]) -> PeerAnswer:
        self.sent.append((owner, table, body, headers))
        await asyncio.sleep(0)
        if isinstance(self.answer, PeerSilent):
            raise self.answer
        return self.answer

    async def close(self) -> None:
        """Nothing is open."""


def problem(status: int, slug: str, **fields: Any) -> PeerAnswer:
    return PeerAnswer(status, msgspec.json.encode({"type": f"/problems/{slug}", **fields}), "application/problem+json")


def committed(commit_id: str = ID, status: int = 201) -> PeerAnswer:
    content = {"outcome": "committed", "commitId": commit_id, "version": 3, "seq": 0, "timestamp": 1}
    return PeerAnswer(status, msgspec.json.encode(content), "application/json")


class Setting:
    """One replica that knows that another holds `s.t`."""

    def __init__(self) -> None:
        self.world = FakeWorld()
        self.leases = MemoryLeases(self.world.monotonic)
        self.peers = Scripted()
        self.telemetry = Counted()
        self.ownership = Ownership(self.leases, ME, self.world, self.telemetry, lease_seconds=1000)
        self.forwarding = Forwarding(self.ownership, self.peers, self.world, self.telemetry)

    async def open(self) -> Setting:
        await self.leases.hold(OWNER, ["s.t"], 1000)
        self.ownership.used("s.t")
        await self.ownership.round()
        return self

    async def send(self, body: bytes = BODY, table: str = "s.t") -> Any:
        return await self.forwarding.attempt(table, body, {"authorization": "Bearer x"})


@pytest.fixture
async def at() -> Setting:
    return await Setting().open()


@pytest.mark.parametrize("answer", [committed(), committed(status=200), problem(409, "commit-conflict")])
async def test_the_owners_answer_is_passed_on(at: Setting, answer: PeerAnswer) -> None:
    at.peers.answer = answer
    found = await at.send()
    assert found.answer == answer
    assert at.peers.sent == [(OWNER, "s.t", BODY, {"authorization": "Bearer x"})]
    assert at.telemetry.outcomes == ["relay"]


@pytest.mark.parametrize(
    "answer, unsure, outcome",
    [
        (PeerSilent("refused", sent=False), False, "unreachable"),
        (PeerSilent("timeout", sent=True), True, "unsure"),
        (problem(503, "commit-unknown"), True, "unsure"),
        (problem(500, "internal-error"), True, "unsure"),
        (problem(503, "shutting-down"), False, "not-written"),
        (problem(503, "commit-contended"), False, "not-written"),
        (problem(422, "request-invalid"), False, "not-written"),
        (problem(401, "unauthenticated"), False, "not-written"),
        (PeerAnswer(200, b"<html>It works!</html>", "text/html"), True, "unsure"),
        (PeerAnswer(502, b"Bad Gateway", "text/plain"), True, "unsure"),
        (PeerAnswer(201, b"{}", "application/json"), True, "unsure"),
        (PeerAnswer(201, b"[" * 100_000, "application/json"), True, "unsure"),
        (committed("01890000-0000-7000-8000-000000000002"), True, "unsure"),
    ],
)
async def test_whatever_goes_wrong_the_commit_is_written_here(
    at: Setting, answer: PeerAnswer | PeerSilent, unsure: bool, outcome: str
) -> None:
    at.peers.answer = answer
    found = await at.send()
    assert (found.answer, found.body, found.commit_id, found.unsure) == (None, BODY, ID, unsure)
    assert at.telemetry.outcomes == [outcome]


async def test_a_lost_answer_is_remembered_until_the_commit_is_settled(at: Setting) -> None:
    """The resend is judged here, or by another owner: neither knows what the first one still does."""
    at.peers.answer = PeerSilent("timeout", sent=True)
    assert (await at.send()).unsure
    again = await at.send()  # the owner is left alone for a second
    assert (again.answer, again.unsure, len(at.peers.sent)) == (None, True, 1)
    other = await at.send(BODY.replace(ID.encode(), ID.replace("1", "2").encode()))
    assert not other.unsure

    at.world.advance(1.1)
    at.peers.answer = PeerSilent("refused", sent=False)
    assert (await at.send()).unsure
    at.world.advance(5)
    at.peers.answer = problem(422, "commit-invalid", asOfVersion=7)
    found = await at.send()
    assert (found.answer, found.unsure) == (None, True), "that head says nothing about the first send"
    at.peers.answer = problem(429, "too-many-waiting")
    assert (await at.send()).answer is None
    at.peers.answer = problem(422, "commit-invalid")
    assert (await at.send()).answer is not None
    at.peers.answer = problem(422, "commit-invalid", asOfVersion=7)
    assert (await at.send()).answer is not None, "it was settled before"


async def test_a_settled_commit_is_forgotten_and_so_is_an_old_one(at: Setting) -> None:
    at.peers.answer = PeerSilent("timeout", sent=True)
    await at.send()
    at.forwarding.settled(ID.upper())
    assert not (await at.send()).unsure
    at.world.advance(1.1)
    await at.send()
    at.world.advance(UNSETTLED_SECONDS + 1)
    assert not (await at.send(table="s.other")).unsure


async def test_lost_answers_are_remembered_within_bounds(at: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "UNSETTLED_IDS", 3)
    for number in range(10):
        at.forwarding._unsettle(f"id-{number}")
    assert list(at.forwarding._unsettled) == ["id-7", "id-8", "id-9"]


async def test_after_a_failure_the_owner_is_not_tried_at_once(at: Setting) -> None:
    at.peers.answer = PeerSilent("refused", sent=False)
    await at.send()
    at.peers.answer = committed()
    assert (await at.send()).answer is None
    at.world.advance(1.1)
    assert (await at.send()).answer is not None
    assert len(at.peers.sent) == 2


async def test_trouble_of_the_table_is_not_held_against_its_owner(at: Setting) -> None:
    at.peers.answer = problem(503, "commit-contended")
    assert [(await at.send()).owner for _ in range(3)] == [OWNER.url] * 3


async def test_a_commit_without_an_id_gets_one_before_it_is_sent(at: Setting) -> None:
    at.peers.answer = PeerSilent("timeout", sent=True)
    found = await at.send(b'{"actions": [{"add": {"path": "a"}}]} ')
    ((_, _, sent, _),) = at.peers.sent
    assert sent == found.body, "what is written here is what may be written there"
    assert msgspec.json.decode(sent) == {"actions": [{"add": {"path": "a"}}], "commitId": found.commit_id}


@pytest.mark.parametrize(
    "body",
    [
        *[b"", b"{}", b"[]", b"null", b"{", b'{"actions": [], "commitId": 7}', b"\xff\xfe", b"[" * 100_000],
        BODY + b" " * FORWARDED_BYTES,
    ],
    ids=["empty", "object", "list", "null", "broken", "odd id", "not text", "deep", "large"],
)
async def test_what_is_no_commit_or_gains_nothing_stays_here(at: Setting, body: bytes) -> None:
    found = await at.send(body)
    assert (found.answer, found.body, found.unsure) == (None, body, False)
    assert at.peers.sent == []


async def test_a_table_without_a_known_owner_stays_here(at: Setting) -> None:
    assert (await at.send(table="s.other")).answer is None
    at.world.advance(1001)
    assert (await at.send()).answer is None
    assert at.peers.sent == []


async def test_a_commit_for_another_start_of_this_replica_is_not_ours(at: Setting) -> None:
    assert at.forwarding.is_me("me")
    assert not at.forwarding.is_me("owner")
