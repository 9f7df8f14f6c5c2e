"""Any history, and any vacuum in it: exactly the files go that a dumb model of the rules gives up.

The model keeps every version's set of live files, and asks all of them.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tarnlog_server.core.dedupe import CLOCK_TOLERANCE_MS
from tests.usecases.replicas import ORDERS, add_line, commit
from tests.usecases.test_vacuum import DAY, HOUR, RETENTION, Place

NAMES = ["a/0", "a/1", "b/0", "b/1", "c"]
PREFIXES = ["", "a/", "b/1"]


class Model:
    """What vacuum may know, kept the long way."""

    def __init__(self) -> None:
        self.versions: list[set[str]] = [set()]
        self.floor = 0
        self.written: dict[str, int] = {}
        self.removed: dict[str, int] = {}
        self.sessions: dict[str, tuple[str, int]] = {}

    @property
    def live(self) -> set[str]:
        return self.versions[-1]

    def protected(self, now: int) -> set[str]:
        retained = set().union(*self.versions[self.floor :])
        retained |= {path for path, time in self.removed.items() if time > now - RETENTION * 1000}
        young = {path for path, time in self.written.items() if time >= now - RETENTION * 1000}
        covers = [prefix for prefix, end in self.sessions.values() if end + CLOCK_TOLERANCE_MS > now]
        covered = {path for path in self.written if any(path.startswith(prefix) for prefix in covers)}
        return (retained | young | covered) & set(self.written)


class History:
    """Steps done to the service and to the model alike."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.model = Model()

    @property
    def now(self) -> int:
        return self.place.world.now_ms()

    async def step(self, kind: str, argument: Any) -> None:
        await getattr(self, kind)(argument)

    async def write(self, path: str) -> None:
        await self.place.write(path)
        self.model.written[path] = self.now

    async def add(self, path: str) -> None:
        if path in self.model.live:
            return
        await commit(self.place.replica, add_line(path))
        self.model.versions.append(self.model.live | {path})
        self.model.removed.pop(path, None)

    async def remove(self, path: str) -> None:
        if path not in self.model.live:
            return
        self.model.removed[path] = self.now
        await self.place.remove(path)
        self.model.versions.append(self.model.live - {path})

    async def wait(self, hours: int) -> None:
        self.place.age(hours * HOUR)

    async def checkpoint(self, wanted: str) -> None:
        await self.place.replica.checkpoints.checkpoint(ORDERS, wanted)

    async def floor(self, _: object) -> None:
        """A floor at the head, as a cleanup publishes it on a state that it validated."""
        await self.place.replica.checkpoints.checkpoint(ORDERS, "avro")
        head = (await self.place.replica.open_tables.get(ORDERS, 0)).live.head.version
        await self.place.store.put(f"{self.place.log}_floor/{head:020d}", b"")
        self.model.floor = head

    async def cleanup(self, _: object) -> None:
        done = await self.place.replica.cleanup.cleanup(ORDERS)
        self.model.floor = max(self.model.floor, done.floor)
        # It raised the protocol, or built a state: versions may have been added without files.
        head = (await self.place.replica.open_tables.get(ORDERS, 0)).live.head.version
        while len(self.model.versions) <= head:
            self.model.versions.append(set(self.model.live))

    async def begin(self, prefix: str) -> None:
        session = await self.place.replica.sessions.begin(ORDERS, prefix, 6 * HOUR)
        self.model.sessions[session.id] = (prefix, session.expires_at)

    async def end(self, _: object) -> None:
        if self.model.sessions:
            known = next(iter(self.model.sessions))
            del self.model.sessions[known]
            await self.place.replica.sessions.end(ORDERS, known)

    async def reopen(self, _: object) -> None:
        self.place.reopened()

    async def vacuum(self, _: object) -> None:
        expected = self.model.protected(self.now)
        gone = set(self.model.written) - expected
        log = set(self.place.store.keys(self.place.log))
        would = await self.place.vacuum(dry_run=True)
        assert {one.path for one in would.examples} == gone
        did = await self.place.vacuum()
        assert self.place.data() == expected
        assert did.orphaned_files_deleted == len(gone)
        assert set(self.place.store.keys(self.place.log)) == log
        for path in gone:
            del self.model.written[path]


STEPS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(NAMES)),
    st.tuples(st.just("write"), st.sampled_from(NAMES)),
    st.tuples(st.just("add"), st.sampled_from(NAMES)),
    st.tuples(st.just("remove"), st.sampled_from(NAMES)),
    st.tuples(st.just("wait"), st.sampled_from([1, 5, 20, RETENTION // HOUR, RETENTION // HOUR + 1])),
    st.tuples(st.just("checkpoint"), st.sampled_from(["avro", "json", "parquet"])),
    st.tuples(st.just("begin"), st.sampled_from(PREFIXES)),
    st.tuples(st.sampled_from(["end", "reopen", "floor", "cleanup", "vacuum", "vacuum"]), st.none()),
)


LONG = ("wait", RETENTION // HOUR + 1)
TALES = st.tuples(
    st.sampled_from(NAMES), st.sampled_from(PREFIXES), st.sampled_from([1, 20, RETENTION // HOUR])
).flatmap(
    lambda drawn: st.sampled_from(
        [
            [("write", drawn[0]), LONG, ("begin", drawn[1]), ("vacuum", None)],
            [("write", drawn[0]), ("add", drawn[0]), LONG, ("remove", drawn[0]), ("floor", None), ("wait", drawn[2])],
            [("write", drawn[0]), ("add", drawn[0]), ("remove", drawn[0]), LONG, ("cleanup", None), LONG],
            [("remove", drawn[0]), ("floor", None), LONG, ("add", drawn[0]), ("vacuum", None)],
        ]
    )
)
"""Steps that lead somewhere together, which chance alone seldom puts in a row."""


def _in_a_row(parts: list[Any]) -> list[tuple[str, Any]]:
    return [step for part in parts for step in (part if isinstance(part, list) else [part])]


HISTORIES = st.lists(STEPS | TALES, max_size=12).map(_in_a_row)


async def _lived(steps: list[tuple[str, Any]]) -> None:
    place = await Place().start(**{"logRetention.duration": str(2 * DAY * 1000), "commit.dedupe.duration": "3600000"})
    history = History(place)
    try:
        for kind, argument in [*steps, ("vacuum", None)]:
            await history.step(kind, argument)
        note(f"{len(history.model.versions)} versions")
    finally:
        await place.warehouse.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
@given(HISTORIES)
def test_vacuum_in_any_history(steps: list[tuple[str, Any]]) -> None:
    asyncio.run(_lived(steps))
