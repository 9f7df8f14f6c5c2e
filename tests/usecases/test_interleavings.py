"""Commits, states of every format, compaction, cleanup, vacuum and sessions, in any order, by two replicas, some of
them stopped between two storage calls: every retained version is what a dumb model says, and its files are there.

The model keeps each version whole. What it knows of storage are names of objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarnlog.protocol.commits import Committed
from tarnlog.protocol.ids import uuid7
from tarnlog.protocol.tables import RecordSkip
from tarnlog_server.core.dedupe import CLOCK_TOLERANCE_MS
from tarnlog_server.usecases.coordinator import Coordinator
from tests.conftest import LONG
from tests.usecases.cleaning import HOUR, Modelled, Stopped, StoppingStore, replica_on
from tests.usecases.replicas import ORDERS, FakeWorld, Warehouse, add_line, remove_line, request
from tests.usecases.test_cleanup_runs import FLOOR_CACHED_SECONDS
from tests.usecases.test_states import FORMATS

RETENTION_MS = int(47.5 * HOUR * 1000)
"""No sum of whole hours, so that no step falls on the edge itself."""
DEDUPE_MS = 24 * int(HOUR) * 1000
PREFIXES = ("", "d/", "d/1")


class Whole(Modelled):
    """A table with its data files, and everything that must outlive the versions that said it."""

    def __init__(self, warehouse: Warehouse, rng: random.Random) -> None:
        super().__init__(warehouse, rng)
        self.times: list[int] = []
        self.skips: dict[str, int] = {}
        self.sent: list[tuple[Any, Committed]] = []
        self.written: dict[str, int] = {}
        self.removed: dict[str, int] = {}
        self.covered: dict[str, tuple[str, int]] = {}

    @property
    def folder(self) -> str:
        return self.log.removesuffix("_transaction_log/")

    @property
    def world(self) -> FakeWorld:
        return self.warehouse.world

    async def write(self, path: str, size: int = 1) -> None:
        await self.warehouse.store.put(self.folder + path, bytes(size))
        self.written[path] = self.world.now_ms()

    async def create(self, replica: Coordinator, **properties: str) -> None:
        own = {
            "deletedFileRetention.duration": str(RETENTION_MS),
            "commit.dedupe.duration": str(DEDUPE_MS),
            "logRetention.duration": "1d",  # shorter: versions go while the files that they removed stay
        }
        await super().create(replica, **own, **properties)
        self.times = [(await replica.snapshots.snapshot(ORDERS, 0, None, 0)).timestamp]

    async def commit(self, replica: Coordinator) -> None:
        """A commit of some kind, by chance; a file is written before it is added, as writers do."""
        kind, actions = self.rng.random(), []
        for path in self.rng.sample(sorted(self.files), min(len(self.files), 2)) if kind < 0.3 else ():
            actions.append(remove_line(path))
            del self.files[path]
            self.skips.pop(path, None)
            self.removed[path] = self.world.now_ms()
        if 0.2 < kind < 0.35 and self.removed:
            again = [path for path in sorted(self.removed) if path not in _paths(actions)]
            await self._add(self.rng.choice(again or ["d/x"]), actions)
        elif kind > 0.45:
            await self._add(f"{self.rng.choice(('', 'd/'))}{len(self.past)}", actions)
        if not actions or kind > 0.85:
            app = self.rng.choice("ab")
            self.txns[app] = self.txns.get(app, 0) + 1
            actions.append({"txn": {"appId": app, "version": self.txns[app]}})
        sent = request(*actions, readVersion=self.head, commitId=str(uuid7(self.world.now_ms(), self.rng)))
        done = await replica.commits.commit(ORDERS, sent)
        assert isinstance(done, Committed), done
        self.sent.append((sent, done))
        self._passed(done)

    async def _add(self, path: str, actions: list[dict[str, Any]]) -> None:
        if path not in self.files and path not in _paths(actions):
            self.files[path] = self.rng.randrange(100)
            await self.write(path, self.files[path])
            self.removed.pop(path, None)
            actions.append(add_line(path, size=self.files[path]))

    def _passed(self, done: Committed) -> None:
        self.past.append((dict(self.files), dict(self.txns)))
        self.times.append(done.timestamp)
        assert done.version == self.head

    async def skip(self, replica: Coordinator) -> None:
        if self.files:
            path = self.rng.choice(sorted(self.files))
            _, done = await replica.skips.record(ORDERS, RecordSkip(path=path, reason="r", operation="merge"))
            self.skips[path] = self.skips.get(path, 0) + 1
            self._passed(done)

    def data(self) -> set[str]:
        keys = self.warehouse.store.keys(self.folder)
        return {key.removeprefix(self.folder) for key in keys if not key.startswith(self.log)}

    def needed(self) -> set[str]:
        """What time travel leads to."""
        return {path for files, _ in self.past[self.floor() :] for path in files}

    def protected(self) -> set[str]:
        """What a vacuum leaves, by all of its rules."""
        now = self.world.now_ms()
        fresh = {path for times in (self.written, self.removed) for path in times if times[path] > now - RETENTION_MS}
        covers = [prefix for prefix, end in self.covered.values() if end + CLOCK_TOLERANCE_MS > now]
        return self.needed() | fresh | {path for path in self.written if path.startswith(tuple(covers))}

    async def faults(self, replica: Coordinator) -> list[str]:
        found = await super().faults(replica)
        found += [f"{path} is gone, and a version has it" for path in sorted(self.needed() - self.data())]
        skips = {one.path: one.skip_count for one in await replica.skips.all(ORDERS, 0)}
        found += [] if skips == self.skips else [f"skips are {skips} instead of {self.skips}"]
        for version in range(self.floor(), self.head + 1):
            by_time = await replica.snapshots.snapshot(ORDERS, None, self.times[version], 0)
            if (by_time.version, by_time.timestamp) != (version, self.times[version]):
                found.append(f"time {self.times[version]} is {by_time.version} instead of {version}")
        return found + await self._resent(replica)

    async def _resent(self, replica: Coordinator) -> list[str]:
        """A commit whose id is remembered is answered as it was, and not done again."""
        since = self.world.now_ms() - DEDUPE_MS + 60_000
        found = []
        for sent, done in self.sent[-6:]:
            if done.timestamp > since:
                again = await replica.commits.commit(ORDERS, sent)
                if not isinstance(again, Committed) or (again.version, again.replayed) != (done.version, True):
                    found.append(f"{sent.commit_id}, committed as {done.version}, is answered {again}")
        return found


def _paths(actions: list[dict[str, Any]]) -> set[str]:
    return {body["path"] for action in actions for body in action.values()}


class Story:
    """Moves of two replicas, told to the model as well."""

    def __init__(self, seed: int, format_: str) -> None:
        self.rng = random.Random(seed)
        self.warehouse = Warehouse()
        self.replicas = [self.warehouse.replica() for _ in range(2)]
        self.table = Whole(self.warehouse, self.rng)
        self.format = format_
        self.gone: Counter[str] = Counter()

    async def play(self, moves: list[tuple[str, int]]) -> None:
        await self.table.create(self.replicas[0], **{"state.format": self.format})
        for number, (kind, amount) in enumerate(moves):
            await getattr(self, kind)(amount)
            if kind in ("cleanup", "vacuum", "stopped"):
                await self._check(f"after move {number}, {kind} {amount}")
        await self.vacuum(0)
        await self._check("at the end")
        await self.warehouse.close()

    async def _check(self, when: str) -> None:
        self.warehouse.world.advance(FLOOR_CACHED_SECONDS)
        for replica in (*self.replicas, self.warehouse.replica()):
            assert await self.table.faults(replica) == [], when

    async def commit(self, amount: int) -> None:
        for _ in range(amount):
            await self.table.commit(self.rng.choice(self.replicas))
            self.warehouse.world.advance(1)

    async def skip(self, which: int) -> None:
        await self.table.skip(self.replicas[which])

    async def orphan(self, amount: int) -> None:
        """Files that a writer left: it never came to commit them."""
        for _ in range(amount):
            await self.table.write(f"{self.rng.choice(('', 'd/'))}orphan{len(self.table.written)}")

    async def begin(self, which: int) -> None:
        prefix = PREFIXES[which]
        session = await self.rng.choice(self.replicas).sessions.begin(ORDERS, prefix, int(5 * HOUR))
        self.table.covered[session.id] = (prefix, session.expires_at)

    async def state(self, which: int) -> None:
        await self.rng.choice(self.replicas).checkpoints.checkpoint(ORDERS, FORMATS[which])

    async def compact(self, which: int) -> None:
        await self.replicas[which].checkpoints.compact(ORDERS)

    async def wait(self, hours: int) -> None:
        self.warehouse.world.advance(hours * HOUR)

    async def cleanup(self, which: int) -> None:
        done = await self.replicas[which].cleanup.cleanup(ORDERS)
        self.gone.update(versions=done.versions_deleted, states=done.states_deleted, manifests=done.manifests_deleted)

    async def vacuum(self, which: int) -> None:
        """Exactly what the rules give up goes, and a dry run before it says so."""
        table, replica = self.table, self.replicas[which]
        before, left = table.data(), table.data() & table.protected()
        would = await replica.vacuum.vacuum(ORDERS, dry_run=True)
        assert {one.path for one in would.examples} == before - left
        assert table.data() == before
        done = await replica.vacuum.vacuum(ORDERS, dry_run=False)
        assert table.data() == left
        assert done.orphaned_files_deleted == len(before) - len(left)
        self.gone["files"] += len(before) - len(left)

    async def stopped(self, calls: int) -> None:
        """One of the long calls ends before it is done, and its replica with it."""
        dying = replica_on(self.warehouse, StoppingStore(self.warehouse.store, calls))
        verbs: list[Callable[[], Awaitable[object]]] = [
            lambda: dying.vacuum.vacuum(ORDERS, dry_run=False),
            lambda: dying.cleanup.cleanup(ORDERS),
            lambda: dying.checkpoints.compact(ORDERS),
            lambda: dying.checkpoints.checkpoint(ORDERS, self.rng.choice(FORMATS)),
        ]
        with contextlib.suppress(Stopped):
            await self.rng.choice(verbs)()

    async def both(self, _: int) -> None:
        """Everything at once."""
        one, two = self.replicas
        await asyncio.gather(
            one.vacuum.vacuum(ORDERS, dry_run=False),
            two.vacuum.vacuum(ORDERS, dry_run=False),
            one.cleanup.cleanup(ORDERS),
            two.checkpoints.checkpoint(ORDERS, self.rng.choice(FORMATS)),
            self.commit(3),
        )

    async def days(self, which: int) -> None:
        """Old files are removed, and the floor passes that while they are still to be kept."""
        await self.wait(49)
        await self.commit(4)
        await self.wait(25)
        await self.cleanup(which)
        await self.vacuum(1 - which)

    async def reopen(self, which: int) -> None:
        self.replicas[which] = self.warehouse.replica()


MOVES = st.one_of(
    st.tuples(st.just("commit"), st.integers(1, 4)),
    st.tuples(st.just("commit"), st.integers(1, 4)),
    st.tuples(st.just("state"), st.integers(0, 2)),
    st.tuples(st.just("wait"), st.sampled_from([1, 3, 25, 49, 60])),
    st.tuples(st.just("wait"), st.sampled_from([25, 49])),
    st.tuples(st.sampled_from(["compact", "cleanup", "vacuum", "reopen", "skip", "both"]), st.integers(0, 1)),
    st.tuples(st.sampled_from(["cleanup", "vacuum", "days"]), st.integers(0, 1)),
    st.tuples(st.just("orphan"), st.integers(1, 2)),
    st.tuples(st.just("begin"), st.integers(0, 2)),
    st.tuples(st.just("stopped"), st.integers(0, 80)),
)


async def test_a_state_written_twice_at_one_time_keeps_its_manifests() -> None:
    """A compaction right after a cleanup: the state looks the same by time and size, and names other manifests."""
    moves = [("commit", 1), ("days", 0), ("compact", 0), ("wait", 3), ("cleanup", 0)]
    await Story(0, "avro").play(moves)


@settings(max_examples=400 if LONG else 60)
@given(st.integers(0, 2**32), st.sampled_from(FORMATS), st.lists(MOVES, min_size=5, max_size=25))
def test_any_interleaving_keeps_what_retention_promises(seed: int, format_: str, moves: list[tuple[str, int]]) -> None:
    asyncio.run(Story(seed, format_).play(moves))


@pytest.mark.parametrize("format_", FORMATS)
def test_such_stories_do_delete(format_: str) -> None:
    """The property above would hold of a service that deletes nothing, too."""
    story = Story(1, format_)
    day = [("commit", 3), ("orphan", 1), ("state", 0), ("wait", 25), ("cleanup", 0), ("vacuum", 1), ("reopen", 1)]
    asyncio.run(story.play(day * 7))
    assert story.gone["versions"] > 4
    assert story.gone["states"] > 2
    assert story.gone["manifests"] > 2
    assert story.gone["files"] > 7
