"""Replicas in one process that reach each other over their own HTTP surface: who writes, and what a client is told."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from tarnlog.protocol.ids import uuid7
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.adapters.http_peers import HttpPeers
from tarnlog_server.adapters.memory_leases import MemoryLeases
from tarnlog_server.adapters.memory_store import MemoryStore
from tarnlog_server.adapters.system_world import SystemWorld
from tarnlog_server.api.app import ApiSettings, create_app
from tarnlog_server.api.auth import ApiKey
from tarnlog_server.api.readiness import Readiness
from tarnlog_server.core.routing import Held
from tarnlog_server.ports.leases import Owner
from tarnlog_server.telemetry.metrics import PrometheusTelemetry
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.forwarding import Forwarding
from tarnlog_server.usecases.ownership import Ownership
from tarnlog_server.usecases.replicas import Replicas
from tarnlog_server.usecases.roots import Root, Roots
from tests.api.conftest import SCHEMA, add, slug

KEY = "writer.secret"
SETTINGS = ApiSettings(
    keys=(ApiKey(id="writer", sha256=hashlib.sha256(b"secret").hexdigest(), scope="write"),),
)
COMMITS = "/v1/tables/db.t/commits"


class Network(httpx.AsyncBaseTransport):
    """Replicas by host name. A host may be gone, or lose its answers after it did the work."""

    def __init__(self) -> None:
        self.hosts: dict[str, httpx.ASGITransport] = {}
        self.lost: Callable[[], Exception] | None = None
        self.seen: list[httpx.Request] = []
        self.late: list[httpx.Request] | None = None
        """Set: requests are kept here, and arrive when a test says so."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        host = self.hosts.get(request.url.host)
        if host is None:
            raise httpx.ConnectError("nobody is there")
        if self.late is not None:
            self.late.append(request)
            raise httpx.ReadTimeout("no answer")
        answer = await host.handle_async_request(request)
        if self.lost is not None:
            raise self.lost()
        return answer


class Node:
    """One replica."""

    def __init__(self, name: str, store: MemoryStore, leases: MemoryLeases, network: Network) -> None:
        self.world = SystemWorld()
        self.telemetry = PrometheusTelemetry()
        self.readiness = Readiness()
        self.readiness.checked(store.uri, (), 0)
        self.coordinator = Coordinator(Roots(Root(store.uri, store)), self.world, self.telemetry)
        self.ownership = Ownership(leases, Owner(f"id-{name}", f"http://{name}"), self.world, self.telemetry)
        peers = HttpPeers(connect_seconds=1, answer_seconds=5, transport=network)
        self.replicas = Replicas(Forwarding(self.ownership, peers, self.world, self.telemetry), peers)
        app = create_app(self.coordinator, self.readiness, SETTINGS, replicas=self.replicas)
        network.hosts[name] = httpx.ASGITransport(app)
        headers = {"authorization": f"Bearer {KEY}"}
        self.client = httpx.AsyncClient(transport=network.hosts[name], base_url=f"http://{name}", headers=headers)

    async def commit(self, path: str, **more: Any) -> httpx.Response:
        return await self.client.post(COMMITS, json={"actions": [add(path)], **more})

    def forwarded(self, outcome: str) -> float:
        return self.telemetry.registry.get_sample_value("tarnlog_commits_forwarded_total", {"outcome": outcome}) or 0.0

    def written(self) -> float:
        return self.telemetry.registry.get_sample_value("tarnlog_batch_commits_sum") or 0.0


class Nodes:
    """Two replicas on one store; `owner` holds the table and both know it."""

    def __init__(self) -> None:
        self.network = Network()
        store, leases = MemoryStore("warehouse"), MemoryLeases(SystemWorld().monotonic)
        self.owner, self.other = (Node(name, store, leases, self.network) for name in ("owner", "other"))

    async def open(self) -> Nodes:
        created = await self.owner.client.post("/v1/tables", json={"name": "db.t", "schema": SCHEMA})
        assert created.status_code == 201, created.text
        for node in (self.owner, self.other):
            assert (await node.commit(f"first-of-{node.ownership.me.id}")).status_code == 201
            await node.ownership.round()
        assert self.owner.ownership.held() == ["db.t"]
        return self

    async def close(self) -> None:
        for node in (self.owner, self.other):
            await node.client.aclose()
            await node.replicas.close()
            await node.coordinator.close(0)


def new_id() -> str:
    world = SystemWorld()
    return str(uuid7(world.now_ms(), world.rng))


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    made = await Nodes().open()
    yield made
    await made.close()


async def test_the_owner_writes_and_the_client_gets_its_answer(nodes: Nodes) -> None:
    before = nodes.owner.written(), nodes.other.written()
    commit_id = new_id()
    first = await nodes.other.commit("a", commitId=commit_id)
    again = await nodes.other.commit("a", commitId=commit_id)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["commitId"] == commit_id
    assert again.json() == {**first.json(), "replayed": True, "attempts": again.json()["attempts"]}
    assert (nodes.owner.written(), nodes.other.written()) == (before[0] + 1, before[1])
    assert nodes.other.forwarded("relay") == 2
    history = (await nodes.other.client.get(f"{COMMITS}?maxStalenessSeconds=0")).json()["commits"]
    assert (history[0]["commitId"], history[0]["committedBy"]) == (commit_id, "writer")


async def test_commits_sent_to_both_share_a_version(nodes: Nodes) -> None:
    answers = await asyncio.gather(
        *(node.commit(f"{index}-{node.ownership.me.id}") for index in range(8) for node in (nodes.owner, nodes.other))
    )
    versions = {answer.json()["version"] for answer in answers}
    assert len(versions) < len(answers)


async def test_the_request_says_whose_it_is_and_who_shall_write_it(nodes: Nodes) -> None:
    nodes.network.seen.clear()
    await nodes.other.client.post(COMMITS, json={"actions": [add("a")]}, headers={"x-request-id": "mine-1"})
    (seen,) = nodes.network.seen
    assert (seen.url.path, dict(seen.url.params)) == (COMMITS, {"replica": "id-owner"})
    assert (seen.headers["authorization"], seen.headers["x-request-id"]) == (f"Bearer {KEY}", "mine-1")


async def test_problems_of_the_commit_come_back_as_they_are(nodes: Nodes) -> None:
    invalid = await nodes.other.commit("../a")
    assert (invalid.status_code, slug(invalid)) == (422, "commit-invalid")
    commit_id = new_id()
    await nodes.other.commit("a", commitId=commit_id)
    reused = await nodes.other.commit("b", commitId=commit_id)
    assert (reused.status_code, slug(reused)) == (422, "commit-id-reused")
    assert reused.json()["version"]
    unreadable = await nodes.other.client.post(COMMITS, content=b"{", headers={"content-type": "application/json"})
    assert slug(unreadable) == "commit-invalid"
    assert slug(await nodes.other.client.post(COMMITS, json={"actions": [add("a")]}, headers={"authorization": "x"}))


async def test_only_commits_are_sent_on(nodes: Nodes) -> None:
    nodes.network.seen.clear()
    for path in ("/v1/tables/db.t", "/v1/tables/db.t/snapshot", COMMITS):
        assert (await nodes.other.client.get(path)).status_code == 200
    assert (await nodes.other.client.patch("/v1/tables/db.t", json={"description": "d"})).status_code == 200
    assert nodes.network.seen == []


async def test_an_owner_that_is_gone_is_replaced_at_once(nodes: Nodes) -> None:
    del nodes.network.hosts["owner"]
    answer = await nodes.other.commit("a")
    assert answer.status_code == 201
    assert nodes.other.forwarded("unreachable") == 1
    nodes.network.seen.clear()
    assert (await nodes.other.commit("b")).status_code == 201
    assert nodes.network.seen == [], "it is not tried again at once"


async def test_an_answer_that_got_lost_is_found_in_the_log(nodes: Nodes) -> None:
    """The owner wrote it; written here again, it is recognised: once in the log, and the client learns where."""
    nodes.network.lost = lambda: httpx.ReadTimeout("no answer")
    answer = await nodes.other.commit("a")
    assert (answer.status_code, answer.json()["replayed"]) == (200, True)
    assert nodes.other.forwarded("unsure") == 1
    history = (await nodes.other.client.get(COMMITS, params={"maxStalenessSeconds": 0})).json()["commits"]
    ids = [entry["commitId"] for entry in history]
    assert ids.count(answer.json()["commitId"]) == 1


async def test_what_the_owner_may_still_write_is_never_told_as_not_written(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_room(*_: object) -> None:
        raise ProblemError("too-many-waiting", "no room", retry_after=1.0)

    monkeypatch.setattr(nodes.other.coordinator.commits, "commit", no_room)
    nodes.network.lost = lambda: httpx.ReadTimeout("no answer")
    commit_id = new_id()
    answer = await nodes.other.commit("a", commitId=commit_id)
    assert (answer.status_code, slug(answer)) == (503, "commit-unknown")
    assert answer.json()["commitId"] == commit_id
    assert answer.headers["retry-after"]
    del nodes.network.hosts["owner"]
    nodes.other.ownership.trust(nodes.owner.ownership.me)
    assert slug(await nodes.other.commit("b")) == "too-many-waiting", "nothing was sent, so it is certain"


async def test_a_refusal_of_this_head_is_unknown_while_the_owner_may_judge_on_another(nodes: Nodes) -> None:
    """The file is live now. When the commit reaches the owner at last, it is not, and the commit is written."""
    removes = {"actions": [{"remove": {"path": "first-of-id-owner", "dataChange": True}}]}
    await nodes.other.commit("first-of-id-other-2")
    commit_id = new_id()
    late: list[httpx.Request] = []
    nodes.network.late = late
    for _ in range(2):  # the resend is judged here at once, and knows no more of the owner
        answer = await nodes.other.commit("first-of-id-owner", commitId=commit_id)
        assert (answer.status_code, slug(answer)) == (503, "commit-unknown"), answer.text
    assert len(late) == 1
    wrong = await nodes.other.client.post(COMMITS, json={"commitId": commit_id, "actions": [add("../x")]})
    assert (wrong.status_code, slug(wrong)) == (422, "commit-invalid"), "what no replica would write is final"

    head = (await nodes.owner.client.get("/v1/tables/db.t/snapshot?maxStalenessSeconds=0")).json()["version"]
    done = await nodes.owner.client.post(COMMITS, json={**removes, "readVersion": head})
    assert done.status_code == 201, done.text
    nodes.network.late = None
    arrived = await nodes.network.handle_async_request(late[0])
    assert arrived.status_code == 201
    assert (await nodes.other.commit("first-of-id-owner", commitId=commit_id)).status_code == 200


async def test_a_replica_that_shuts_down_is_passed_by(nodes: Nodes) -> None:
    nodes.owner.readiness.closed.set()
    assert (await nodes.other.commit("a")).status_code == 201
    assert nodes.other.forwarded("not-written") == 1


async def test_a_commit_for_another_process_on_that_port_is_refused(nodes: Nodes) -> None:
    before = nodes.owner.written()
    for replica in ("id-other", "", "x" * 100):
        answer = await nodes.owner.client.post(COMMITS, params={"replica": replica}, json={"actions": [add("a")]})
        assert (answer.status_code, slug(answer)) == (422, "request-invalid")
    assert nodes.owner.written() == before
    answer = await nodes.owner.client.post(COMMITS, params={"more": "x"}, json={"actions": [add("a")]})
    assert slug(answer) == "request-invalid"


async def test_a_service_of_its_own_refuses_what_is_meant_for_a_replica(nodes: Nodes) -> None:
    """Somebody else's service that has the owner's port now must not write the commit into its own warehouse."""
    store = MemoryStore("elsewhere")
    readiness = Readiness()
    readiness.checked(store.uri, (), 0)
    stranger = Coordinator(Roots(Root(store.uri, store)), SystemWorld())
    transport = httpx.ASGITransport(create_app(stranger, readiness, SETTINGS))
    headers = {"authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://owner", headers=headers) as client:
        assert (await client.post("/v1/tables", json={"name": "db.t", "schema": SCHEMA})).status_code == 201
        nodes.network.hosts["owner"] = transport
        answer = await nodes.other.commit("a")
        assert answer.status_code == 201
        assert nodes.other.forwarded("not-written") == 1
        assert (await client.get("/v1/tables/db.t/files")).json()["files"] == []
    await stranger.close(0)


async def test_what_was_sent_on_is_not_sent_on_again(nodes: Nodes) -> None:
    """Two replicas that take each other for the owner do not pass a commit to and fro."""
    nodes.owner.ownership._held["db.t"] = Held(nodes.other.ownership.me, nodes.owner.world.monotonic() + 1000)
    nodes.network.seen.clear()
    assert (await nodes.other.commit("a")).status_code == 201
    assert len(nodes.network.seen) == 1


async def test_a_service_of_its_own_does_not_even_ask(nodes: Nodes) -> None:
    alone = create_app(nodes.owner.coordinator, nodes.owner.readiness)
    shared = create_app(nodes.owner.coordinator, nodes.owner.readiness, replicas=nodes.owner.replicas)
    endpoints = [app.operations[0].endpoint.__qualname__ for app in (alone, shared)]
    assert endpoints == ["CommitRoutes.commit", "ForwardedCommits.commit"]


async def test_ready_tells_the_role(nodes: Nodes) -> None:
    ready = "/v1/health/ready"
    assert (await nodes.owner.client.get(ready)).json()["role"] == "replica"
    nodes.owner.ownership.cut_off = True
    answer = await nodes.owner.client.get(ready)
    assert (answer.status_code, answer.json()["role"]) == (200, "replica-cut-off")
