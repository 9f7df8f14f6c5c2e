"""What everyone in a run shares: replicas, storage, the journal, and calls that write down what a client saw."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tarnlog.protocol.commits import CommitOutcome, CommitRequest
from tarnlog.protocol.ids import TableName
from tarnlog.protocol.problems import ProblemError
from tarnlog.protocol.tables import AlterTable, CreateTable, RecordSkip
from tarnlog_server.usecases.coordinator import Coordinator
from tests.simulation.bodies import schema
from tests.simulation.clocks import Clocks
from tests.simulation.journal import Journal, Json, Read, Send, WriteSession
from tests.simulation.plan import Plan
from tests.simulation.replica import ConnectionLost, Replica, Shared
from tests.simulation.storage import Trace, Truth, done
from tests.simulation.world import SimWorld

DEFAULT_STALENESS = 60.0
FINAL = {
    "commit-invalid",
    "commit-id-reused",
    "commit-id-expired",
    "commit-too-large",
    "table-not-found",
    "table-exists",
    "property-invalid",
    "schema-change-not-allowed",
}
"""Problems that resending the same does not help against."""


class Sim:
    """One run."""

    def __init__(self, seed: str, plan: Plan, loop: asyncio.AbstractEventLoop, trace: Trace) -> None:
        self.seed = seed
        self.plan = plan
        self.loop = loop
        self.trace = trace
        self.journal = Journal()
        self.clock = SimWorld(loop, random.Random(f"{seed} clock"))
        self.truth = Truth(loop, self.clock.now_ms, trace)
        shared = Shared(loop, seed, trace)
        self.replicas = [
            Replica(f"r{index}", self.truth, plan, plan.skews_ms[index], seed, self.journal, trace, shared)
            for index in range(2)
        ]
        self.clocks = Clocks(seed, plan.clock_steps, self.replicas, self.journal, trace)
        self.tables = ("sim.t", "sim.u") if plan.max_open_tables == 1 else ("sim.t",)
        self.lull_until = 0.0
        self._steps = 0
        total = plan.clients * plan.steps
        self._lulls = [(total * (index + 1) // 3, seconds) for index, seconds in enumerate(plan.lulls)]

    async def think(self, rng: random.Random) -> None:
        """A client's pause between two steps; now and then everyone pauses for long."""
        self._steps += 1
        self.clocks.maybe_step(self.loop.time())
        if self._lulls and self._steps >= self._lulls[0][0]:
            self.lull_until = self.loop.time() + self._lulls.pop(0)[1]
        await asyncio.sleep(rng.expovariate(1 / self.plan.think))
        if self.lull_until > self.loop.time():
            await asyncio.sleep(self.lull_until - self.loop.time() + rng.random() * self.plan.think)

    def write(self, table: str, body: Json) -> None:
        """Put the files that a commit adds where its table is now, at once: a writer's own way to storage."""
        folder = self.truth.location(table)
        for action in body["actions"] if folder is not None else ():
            if "add" in action:
                key = f"{folder}/{action['add']['path']}"
                done(self.truth.put(key, b""))
                self.journal.written.setdefault(key, []).append(self.loop.time())

    async def commit(self, replica: Replica, table: str, commit_id: str, body: Json, *, written: bool = False) -> Send:
        """Commit a body. Its files are written before, unless that is said to be done."""
        if not written and self.plan.cleanup:
            self.write(table, body)
        request = msgspec.convert({**body, "commitId": commit_id}, CommitRequest)
        name = TableName.parse(table)
        send = Send(table, "commit", commit_id, body, replica.name, 0.0)
        if self.plan.routing is not None:
            posted = msgspec.json.encode({**body, "commitId": commit_id})
            return await self._send(replica, send, lambda _: replica.commit(table, posted))
        return await self._send(replica, send, lambda c: c.commits.commit(name, request))

    async def patch(self, replica: Replica, table: str, commit_id: str, body: Json) -> Send:
        change = msgspec.convert({**body, "commitId": commit_id}, AlterTable)
        name = TableName.parse(table)
        send = Send(table, "patch", commit_id, body, replica.name, 0.0)
        return await self._send(replica, send, lambda c: c.tables.alter(name, change))

    async def skip(self, replica: Replica, table: str, body: Json) -> Send:
        request = msgspec.convert(body, RecordSkip)
        name = TableName.parse(table)

        async def record(coordinator: Coordinator) -> Json:
            skip, committed = await coordinator.skips.record(name, request)
            return {**_answer(committed), "skip": msgspec.to_builtins(skip)}

        return await self._send(replica, Send(table, "skip", None, body, replica.name, 0.0), record)

    async def create(self, replica: Replica, table: str) -> Send:
        request = CreateTable(
            name=table, schema=schema(), partition_columns=("p",), properties=dict(self.plan.properties)
        )
        send = Send(table, "create", None, {}, replica.name, 0.0)
        return await self._send(replica, send, lambda c: c.tables.create(request))

    async def drop(self, replica: Replica, table: str, *, purge: bool) -> Send:
        name = TableName.parse(table)
        send = Send(table, "drop", None, {"purge": purge}, replica.name, 0.0)
        return await self._send(replica, send, lambda c: c.tables.drop(name, purge_files=purge))

    async def cleanup(self, replica: Replica, table: str) -> None:
        """Clean up a log; it may fail, but must change nothing that anybody was promised."""
        name = TableName.parse(table)
        with contextlib.suppress(ProblemError, ConnectionLost):
            done = await replica.call(lambda c: c.cleanup.cleanup(name), self.plan.client_timeout)
            told = (done.status, done.versions_deleted, done.states_deleted, done.manifests_deleted, done.floor)
            self.trace.append((self.loop.time(), replica.name, "cleanup", *told))

    async def vacuum(self, replica: Replica, table: str) -> None:
        """Delete data files that nobody needs; it may fail, but must delete no other."""
        name, began = TableName.parse(table), self.loop.time()
        with contextlib.suppress(ProblemError, ConnectionLost):
            done = await replica.call(lambda c: c.vacuum.vacuum(name, dry_run=False), self.plan.client_timeout)
            self.journal.vacuumed.append((table, began))
            self.trace.append((self.loop.time(), replica.name, "vacuum", done.orphaned_files_deleted))

    async def begin_session(self, replica: Replica, table: str, prefix: str, seconds: int) -> WriteSession | None:
        """A session, if there was an answer: without one a writer must not rely on it."""
        name, folder = TableName.parse(table), self.truth.location(table)
        try:
            view = await replica.call(lambda c: c.sessions.begin(name, prefix, seconds), self.plan.client_timeout)
        except (ProblemError, ConnectionLost):
            self.journal.sessions_in_doubt = True
            return None
        begun = self.loop.time()
        session = WriteSession(folder, view.id, prefix, begun, begun + seconds - 10.0)
        self.journal.sessions.append(session)
        return session

    async def end_session(self, replica: Replica, table: str, session: WriteSession) -> None:
        name = TableName.parse(table)
        session.until = min(session.until, self.loop.time())
        try:
            await replica.call(lambda c: c.sessions.end(name, session.id), self.plan.client_timeout)
        except (ProblemError, ConnectionLost):
            self.journal.sessions_in_doubt = True

    async def snapshot(self, replica: Replica, table: str, staleness: float | None, **at: int) -> Json | None:
        name = TableName.parse(table)

        async def read(coordinator: Coordinator) -> Json:
            view = await coordinator.snapshots.snapshot(name, at.get("version"), at.get("timestamp"), staleness)
            return as_json(view)

        return await self._read(replica, Read(table, "snapshot", dict(at), _age(staleness), replica.name, 0.0), read)

    async def files(self, replica: Replica, table: str, staleness: float | None, limit: int) -> Json | None:
        """All files, page by page; the pages must be of one version."""
        name = TableName.parse(table)

        async def read(coordinator: Coordinator) -> Json:
            page = await coordinator.snapshots.files(name, None, None, staleness, limit, None)
            files, versions = [as_json(add) for add in page.files], {page.version}
            while page.next is not None:
                page = await coordinator.snapshots.files(name, None, None, staleness, limit, page.next)
                files += [as_json(add) for add in page.files]
                versions.add(page.version)
            return {"version": page.version, "versions": sorted(versions), "files": files}

        return await self._read(replica, Read(table, "files", {}, _age(staleness), replica.name, 0.0), read)

    async def changes(self, replica: Replica, table: str, first: int | None, limit: int) -> Json | None:
        name = TableName.parse(table)

        async def read(coordinator: Coordinator) -> Json:
            page = await coordinator.history.changes(name, first, None, limit, None)
            changes = [as_json(change) for change in page.changes]
            while page.next is not None:
                page = await coordinator.history.changes(name, None, None, limit, page.next)
                changes += [as_json(change) for change in page.changes]
            return {"changes": changes}

        asked = {} if first is None else {"first": first}
        return await self._read(replica, Read(table, "changes", asked, DEFAULT_STALENESS, replica.name, 0.0), read)

    async def history(self, replica: Replica, table: str, staleness: float | None, limit: int) -> Json | None:
        name = TableName.parse(table)

        async def read(coordinator: Coordinator) -> Json:
            cursor, commits = None, []
            while True:
                page = await coordinator.history.commits(name, None, None, "desc", limit, cursor, staleness)
                commits += [as_json(commit) for commit in page.commits]
                cursor = page.next
                if cursor is None:
                    return {"commits": commits}

        return await self._read(replica, Read(table, "history", {}, _age(staleness), replica.name, 0.0), read)

    async def status(self, replica: Replica, table: str, commit_id: str) -> Json | None:
        name = TableName.parse(table)

        async def read(coordinator: Coordinator) -> Json:
            try:
                return _answer(await coordinator.commits.status(name, commit_id))
            except ProblemError as problem:
                if problem.slug == "commit-not-found":
                    return {"outcome": "not-found", **problem.fields}
                raise

        asked = {"commitId": commit_id}
        return await self._read(replica, Read(table, "status", asked, DEFAULT_STALENESS, replica.name, 0.0), read)

    async def _send(self, replica: Replica, send: Send, verb: Callable[[Coordinator], Awaitable[object]]) -> Send:
        self.journal.sends.append(send)
        send.started = self.loop.time()
        timeout = 60.0 if send.kind == "create" else self.plan.client_timeout
        try:
            send.answer = _answer(await replica.call(verb, timeout))
            send.ended = self.loop.time()
        except ProblemError as problem:
            send.answer = _problem(problem.slug, problem.fields)
            send.ended = self.loop.time()
        except ConnectionLost:
            pass
        told = (send.outcome, send.slug, send.answer.get("version"), send.answer.get("seq"))
        self.trace.append((self.loop.time(), replica.name, send.kind, send.commit_id, *told))
        return send

    async def _read(self, replica: Replica, read: Read, verb: Callable[[Coordinator], Awaitable[Json]]) -> Json | None:
        self.journal.reads.append(read)
        read.started = self.loop.time()
        try:
            read.answer = await replica.call(verb, self.plan.client_timeout)
        except ProblemError as problem:
            read.slug = problem.slug
        except ConnectionLost:
            read.slug = "lost"
        read.ended = self.loop.time()
        told = read.answer.get("version") if read.answer is not None else read.slug
        self.trace.append((self.loop.time(), replica.name, read.what, told))
        return read.answer


def _age(staleness: float | None) -> float:
    return DEFAULT_STALENESS if staleness is None else staleness


def as_json(value: object) -> Json:
    built: Json = msgspec.json.decode(msgspec.json.encode(value))
    return built


def _problem(slug: str, fields: dict[str, Any]) -> Json:
    if slug == "commit-unknown":
        return {"outcome": "unknown"}
    if slug == "commit-conflict":
        return {"outcome": "conflict", **fields}
    told: Json = {name: fields[name] for name in ("version", "seq", "asOfVersion") if name in fields}
    return {"outcome": "problem", "slug": slug, **told}


def _answer(result: object) -> Json:
    """An outcome as the journal writes it down; any other result means that it was done."""
    if isinstance(result, dict):
        return result
    if not isinstance(result, CommitOutcome):
        return {"outcome": "committed"}
    answer = as_json(result)
    if "problem" in answer:
        problem = answer["problem"]
        return _problem(str(problem["type"]).rsplit("/", 1)[-1], problem)
    return answer
