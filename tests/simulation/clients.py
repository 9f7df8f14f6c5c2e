"""Clients of the simulation: each does a mix of steps, and behaves after a bad answer as clients do, well or badly.

A client that got no final answer resends the same commit id (to either replica, sometimes with another readVersion,
sometimes by mistake with another body), asks by id, or walks away. What was left half-way is settled at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random

from tarnlog.protocol.ids import TableName, uuid7
from tarnlog.protocol.problems import ProblemError
from tarnlog_server.usecases.coordinator import Coordinator
from tests.simulation.bodies import PROPERTIES, Bodies, Json, schema
from tests.simulation.journal import Send
from tests.simulation.replica import ConnectionLost, Replica
from tests.simulation.sim import FINAL, Sim

ISOLATIONS = ("serializable", "write-serializable", "snapshot")


@dataclasses.dataclass(slots=True)
class Pending:
    """A commit whose fate its client does not know."""

    table: str
    kind: str
    commit_id: str
    body: Json
    written: bool = False
    """Its files are there, and a session keeps them: they are not written again."""


def is_final(send: Send) -> bool:
    """Whether resending this would be pointless."""
    return send.outcome in ("committed", "conflict") or send.slug in FINAL


class Client:
    """One client with its own clock and its own idea of the table."""

    def __init__(self, sim: Sim, name: str) -> None:
        self.sim = sim
        self.rng = random.Random(f"{sim.seed} client {name}")
        self.bodies = Bodies(name, self.rng)
        self.pending: list[Pending] = []
        self.done: list[Pending] = []
        self.home = self.rng.choice(sim.replicas)
        self._skew_ms = self.rng.randint(-5000, 5000)
        self._app_id = self.rng.choice((name, "shared"))
        self._progress = 0

    async def run(self) -> None:
        names = list(self.sim.plan.mix)
        weights = list(self.sim.plan.mix.values())
        for _ in range(self.sim.plan.steps):
            await self.sim.think(self.rng)
            table = self.rng.choice(self.sim.tables)
            await getattr(self, f"_{self.rng.choices(names, weights)[0]}")(table)

    def replica(self) -> Replica:
        """Mostly the same one; another when that is down."""
        chosen = self.home if self.rng.random() < 0.7 else self.rng.choice(self.sim.replicas)
        return chosen if chosen.up else self.rng.choice(self.sim.replicas)

    def new_id(self) -> str:
        return str(uuid7(self.sim.clock.now_ms() + self._skew_ms, self.rng))

    async def _append(self, table: str) -> None:
        adds = [self.bodies.add() for _ in range(self.rng.choice((1, 1, 1, 3)))]
        fields: Json = {}
        if self.rng.random() < 0.15:
            # A readVersion binds a blind append to nothing, but it must be there and must not be in the future.
            fields["readVersion"] = (await self._look(table))[0]
        await self._commit(table, self.bodies.body("WRITE", adds, **fields))

    async def _append_alone(self, table: str) -> None:
        await self._commit(table, self.bodies.body("WRITE", [self.bodies.add()], coalesce=False))

    async def _add_again(self, table: str) -> None:
        """The mistake of adding a file that is there already: it must be refused while the file is live."""
        _, files = await self._look(table)
        if files:
            body = self.bodies.body("WRITE", [{"add": self.rng.choice(files)}])
            await self._commit(table, body)

    async def _remove(self, table: str) -> None:
        version, files = await self._look(table)
        if files:
            paths = [file["path"] for file in self.rng.sample(files, min(len(files), self.rng.choice((1, 1, 2))))]
            reads = {"paths": paths} if self.rng.random() < 0.7 else {}
            removes = [self.bodies.remove(path) for path in paths]
            await self._commit(table, self._planned("DELETE", removes, version, reads))

    async def _rewrite(self, table: str) -> None:
        version, files = await self._look(table)
        if len(files) >= 2:
            two = self.rng.sample(files, 2)
            removes = [self.bodies.remove(file["path"], data_change=False) for file in two]
            reads = {"paths": [file["path"] for file in two]} if self.rng.random() < 0.5 else {"wholeTable": True}
            adds = [self.bodies.add(data_change=False)]
            await self._commit(table, self._planned("OPTIMIZE", [*removes, *adds], version, reads))

    async def _filter_write(self, table: str) -> None:
        version, files = await self._look(table)
        actions = [self.bodies.add()]
        if files and self.rng.random() < 0.5:
            actions.append(self.bodies.remove(self.rng.choice(files)["path"]))
        await self._commit(table, self._planned("MERGE", actions, version, {"filters": [self.bodies.filter()]}))

    async def _overwrite(self, table: str) -> None:
        version, files = await self._look(table)
        removes = [self.bodies.remove(file["path"]) for file in files]
        await self._commit(table, self._planned("WRITE", [*removes, self.bodies.add()], version, {"wholeTable": True}))

    async def _stream(self, table: str) -> None:
        """The next batch of a stream; some streams have two writers, of which one must win each batch."""
        version, _ = await self._look(table)
        self._progress += 1
        txn = {"txn": {"appId": self._app_id, "version": self._progress}}
        reads = {"appIds": [self._app_id]} if self.rng.random() < 0.5 else {}
        sent = await self._commit(table, self._planned("STREAMING UPDATE", [txn, self.bodies.add()], version, reads))
        if sent.answer.get("lastTxnVersion") is not None:
            self._progress = int(sent.answer["lastTxnVersion"])

    async def _patch(self, table: str) -> None:
        key = self.rng.choice(PROPERTIES)
        body: Json = {"properties": {"set": {key: str(self.rng.randrange(1000))}}}
        roll = self.rng.random()
        if roll < 0.15:
            body = {"properties": {"unset": [key]}}
        elif roll < 0.3:
            body = {"schema": schema(wide=True)}
        elif roll < 0.4:
            body = {"description": self.bodies.body("", [])["operationParameters"]["body"]}
        await self._settle(Pending(table, "patch", self.new_id(), body))

    async def _metadata(self, table: str) -> None:
        seen = await self.sim.snapshot(self.replica(), table, self._staleness())
        if seen is not None:
            metadata = seen["metaData"]
            configuration = {**metadata["configuration"], self.rng.choice(PROPERTIES): self.bodies.add()["add"]["path"]}
            action = {"metaData": {**metadata, "configuration": configuration}}
            await self._commit(table, self._planned("SET TBLPROPERTIES", [action], seen["version"], {}))

    async def _skip(self, table: str) -> None:
        _, files = await self._look(table)
        if files:
            body = {"path": self.rng.choice(files)["path"], "reason": "broken", "operation": "merge"}
            await self.sim.skip(self.replica(), table, body)

    async def _state(self, table: str) -> None:
        """What the background writer does, at any moment and on any replica; it may fail, but must change nothing."""
        name, state_format = TableName.parse(table), self.rng.choice(("avro", "avro", "avro", "json", "parquet"))
        compact = self.rng.random() < 0.2

        async def write(coordinator: Coordinator) -> object:
            states = coordinator.checkpoints
            return await (states.compact(name) if compact else states.checkpoint(name, state_format))

        with contextlib.suppress(ProblemError, ConnectionLost):
            await self.replica().call(write, self.sim.plan.client_timeout)

    async def _cleanup(self, table: str) -> None:
        await self.sim.cleanup(self.replica(), table)

    async def _vacuum(self, table: str) -> None:
        await self.sim.vacuum(self.replica(), table)

    async def _in_session(self, table: str) -> None:
        """A writer that takes its time between its files and its commit, and ends its session when that is settled."""
        body = self.bodies.body("WRITE", [self.bodies.add()])
        path = body["actions"][0]["add"]["path"]
        prefix = self.rng.choice(("", path, path.partition("/")[0] + "/"))
        session = await self.sim.begin_session(self.replica(), table, prefix, 600_000)
        if session is not None:
            self.sim.write(table, body)
            await self.sim.think(self.rng)
            pending = Pending(table, "commit", self.new_id(), body, written=True)
            if is_final(await self._settle(pending)):
                await self.sim.end_session(self.replica(), table, session)

    async def _read(self, table: str) -> None:
        replica, roll = self.replica(), self.rng.random()
        if roll < 0.4:
            seen = await self.sim.snapshot(replica, table, self._staleness())
            if seen is not None and seen["version"] > 0 and self.rng.random() < 0.5:
                version = self.rng.randrange(seen["version"] + 1)
                at = (
                    {"version": version}
                    if self.rng.random() < 0.6
                    else {"timestamp": seen["timestamp"] - version * 100}
                )
                await self.sim.snapshot(replica, table, self._staleness(), **at)
        elif roll < 0.6:
            await self.sim.files(replica, table, self._staleness(), self.rng.choice((2, 1000)))
        elif roll < 0.75:
            await self.sim.changes(replica, table, self.rng.choice((None, 0, 1)), self.rng.choice((3, 1000)))
        elif roll < 0.9:
            await self.sim.history(replica, table, self._staleness(), self.rng.choice((3, 1000)))
        elif self.done:
            one = self.rng.choice(self.done)
            await self.sim.status(replica, one.table, one.commit_id)

    async def _look_back(self, table: str) -> None:
        """What an index is there for: a long history, a time of long ago, a commit of long ago."""
        replica, roll = self.replica(), self.rng.random()
        if roll < 0.5:
            await self.sim.history(replica, table, self._staleness(), self.rng.choice((3, 1000)))
        elif roll < 0.75:
            seen = await self.sim.snapshot(replica, table, self._staleness())
            if seen is not None:
                at = seen["timestamp"] - self.rng.choice((1, 100, 1000, 10_000))
                await self.sim.snapshot(replica, table, self._staleness(), timestamp=at)
        elif self.done:
            one = self.rng.choice(self.done)
            await self.sim.status(replica, one.table, one.commit_id)

    async def _look(self, table: str) -> tuple[int, list[Json]]:
        seen = await self.sim.files(self.replica(), table, self._staleness(), 1000)
        return (seen["version"], seen["files"]) if seen is not None else (0, [])

    def _staleness(self) -> float | None:
        return self.rng.choice((None, 0, 0, 0.5, 3.0))

    def _planned(self, operation: str, actions: list[Json], version: int, reads: Json) -> Json:
        fields: Json = {"readVersion": version}
        if reads:
            fields["reads"] = reads
        if self.rng.random() < 0.7:
            fields["isolation"] = self.rng.choice(ISOLATIONS)
        return self.bodies.body(operation, actions, **fields)

    async def _commit(self, table: str, body: Json) -> Send:
        return await self._settle(Pending(table, "commit", self.new_id(), body))

    async def send(self, pending: Pending, replica: Replica) -> Send:
        """Send it once, as it is now."""
        if pending.kind == "patch":
            return await self.sim.patch(replica, pending.table, pending.commit_id, pending.body)
        return await self.sim.commit(replica, pending.table, pending.commit_id, pending.body, written=pending.written)

    async def _settle(self, pending: Pending) -> Send:
        """Send it, and again while there is no final answer and patience is left."""
        if self.rng.random() < 0.08:
            both = await asyncio.gather(*(self.send(pending, replica) for replica in self.sim.replicas))
            sent = both[0] if is_final(both[0]) else both[1]
        else:
            sent = await self.send(pending, self.replica())
        while not is_final(sent) and self.rng.random() < 0.7:
            await asyncio.sleep(self.rng.choice((0.01, 0.5, 2.0)))
            if self.rng.random() < 0.2:
                await self.sim.status(self.replica(), pending.table, pending.commit_id)
            sent = await self.send(await self._changed(pending), self.replica())
        if not is_final(sent):
            self.pending.append(pending)
        elif sent.outcome == "committed":
            self.done.append(pending)
            if self.rng.random() < 0.08:
                await self.send(await self._changed(pending), self.replica())
        return sent

    async def _changed(self, pending: Pending) -> Pending:
        """The same commit for a resend: mostly as it was, at times planned on a newer version, rarely another body."""
        roll = self.rng.random()
        if roll < 0.15 and "readVersion" in pending.body:
            seen = await self.sim.snapshot(self.replica(), pending.table, 0)
            if seen is not None:
                return dataclasses.replace(pending, body={**pending.body, "readVersion": seen["version"]})
        elif roll < 0.2 and pending.kind == "commit":
            return dataclasses.replace(pending, body=self.bodies.body("WRITE", [self.bodies.add()]), written=False)
        return pending
