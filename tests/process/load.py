"""Writers that commit without a pause to one table through any number of services, and note every answer.

They append, take files away under each other's noses, send nonsense, resend what was acknowledged, send one commit to
two services at once, and look whether one service sees what another acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable

import msgspec

from tarnlog import (
    Add,
    AsyncClient,
    CommitOutcome,
    Committed,
    NotNow,
    Remove,
    TarnlogError,
    Unknown,
    new_commit_id,
)
from tarnlog.protocol.action_json import encode_action
from tarnlog.protocol.actions import Action
from tests.process.journal import Journal, Sent

TABLE = "sales.orders"
SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}


def client_of(url: str, *, timeout: float = 10.0, deadline: float = 90.0, longest_pause: float = 0.1) -> AsyncClient:
    """A client that retries faster than a polite one: a test wants the service back under load at once."""
    return AsyncClient(
        url, timeout=timeout, deadline=deadline, sleep=lambda seconds: asyncio.sleep(min(seconds, longest_pause))
    )


def file(path: str) -> Add:
    """A new file."""
    return Add(path=path, partition_values={}, size=10, modification_time=1, data_change=True)


def gone(path: str) -> Remove:
    """The end of a file."""
    return Remove(path=path, data_change=True, deletion_timestamp=1)


class Load:
    """The running writers. `clients` may be changed while they run."""

    def __init__(self, clients: list[AsyncClient], rng: random.Random) -> None:
        self.clients = clients
        self.table = TABLE
        self.journal = Journal()
        self.stopping = False
        self._rng = rng
        self._live: list[str] = []
        self._newest = 0
        self._answered = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, writers: int) -> None:
        """Let so many writers go."""
        self._tasks += [asyncio.create_task(self._write(len(self._tasks) + n)) for n in range(writers)]

    async def finish(self) -> None:
        """Let every writer settle what it has sent; raises what went wrong in one."""
        self.stopping = True
        await asyncio.gather(*self._tasks)

    async def acknowledgements(self, more: int, seconds: float = 60.0) -> None:
        """Return after so many further acknowledgements; fail if they do not come."""
        wanted = self.journal.acknowledged + more
        await self.until(lambda: self.journal.acknowledged >= wanted, seconds)

    async def until(self, true: Callable[[], bool], seconds: float = 60.0) -> None:
        """Return once it is true after an answer."""
        end = time.monotonic() + seconds
        while not true():
            for task in self._tasks:
                if task.done() and not self.stopping:
                    await task
            assert time.monotonic() < end, f"no progress in {seconds} s; so far {self.journal.counts()}"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5), self._answered:
                    await self._answered.wait()

    async def send(self, sent: Sent, actions: list[Action], client: AsyncClient) -> CommitOutcome:
        """Send a commit (again) and note the answer."""
        answer = await client.commit(
            self.table, actions, commit_id=sent.commit_id, read_version=sent.read_version, operation="TEST"
        )
        sent.answers.append(answer)
        if isinstance(answer, Committed):
            self._newest = max(self._newest, answer.version)
        async with self._answered:
            self._answered.notify_all()
        return answer

    def new(self, actions: list[Action], read_version: int | None = None) -> Sent:
        """Note a commit with a new id."""
        wire = [msgspec.json.decode(encode_action(action)) for action in actions]
        return self.journal.new(new_commit_id(), wire, read_version)

    async def _write(self, writer: int) -> None:
        count = 0
        while not self.stopping:
            count += 1
            chance = self._rng.random()
            path = f"w{writer}-{count}.parquet"
            if chance < 0.1 and self._live:
                # Two want the same file from the same version: one takes it, the other conflicts.
                victim = self._live[self._rng.randrange(max(0, len(self._live) - 8), len(self._live))]
                read = self._newest
                rivals = ([gone(victim), file(path)], [gone(victim), file(f"rival-{path}")])
                await asyncio.gather(*(self._commit(actions, read) for actions in rivals))
            elif chance < 0.13:
                await self._commit([file(f"../{path}")])
            else:
                await self._commit([file(path)])

    async def _commit(self, actions: list[Action], read_version: int | None = None) -> None:
        sent = self.new(actions, read_version)
        client, other = self._rng.choice(self.clients), self._rng.choice(self.clients)
        twins = [client, other] if self._rng.random() < 0.1 else [client]
        answers = await asyncio.gather(*(self.send(sent, actions, each) for each in twins))
        while not self.stopping and all(isinstance(answer, (NotNow, Unknown)) for answer in answers):
            answers = [await self.send(sent, actions, self._rng.choice(self.clients))]
        told = sent.committed
        if told is None:
            return
        self._live += [action.path for action in actions if isinstance(action, Add)]
        if self._rng.random() < 0.1:
            await self.send(sent, actions, other)
        if self._rng.random() < 0.05:
            await self._look(other, told.version)

    async def _look(self, client: AsyncClient, version: int) -> None:
        """What one service acknowledged, every other one sees when it must look."""
        with contextlib.suppress(TarnlogError):
            seen = await client.snapshot(self.table, max_staleness_seconds=0)
            assert seen.version >= version, f"{client.url} shows {seen.version} after {version} was acknowledged"


@contextlib.asynccontextmanager
async def load_on(
    clients: list[AsyncClient], rng: random.Random, *, writers: int = 16, properties: dict[str, str] | None = None
) -> AsyncIterator[Load]:
    """A new table under load for the block; afterwards everything sent is settled."""
    await clients[0].create_table(TABLE, SCHEMA, properties=properties)
    load = Load(clients, rng)
    load.start(writers)
    try:
        yield load
        await load.finish()
    finally:
        for task in load._tasks:
            task.cancel()
        await asyncio.gather(*load._tasks, return_exceptions=True)
        for client in load.clients:
            await client.aclose()
