"""A service that is frozen in the middle of its PUTs and wakes up in a world that went on without it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from tarnlog import Committed
from tarnlog.protocol.actions import Action
from tests.process.journal import check
from tests.process.load import TABLE, client_of, file, load_on
from tests.process.log_reading import objects_in_folder, read_log
from tests.service_process import ServiceProcess

Start = Callable[..., list[ServiceProcess]]
HEAD_AGE = 1.0
"""How long a service trusts what it knows of the head, in seconds."""


async def test_a_frozen_service_wakes_up_and_answers_truthfully(
    start_pair: Start, rng: random.Random, long_run: bool
) -> None:
    env = {"TARNLOG_HEAD_MAX_AGE_SECONDS": str(HEAD_AGE)}
    # Slow storage calls, so that it is frozen with a PUT under way; short patience, so that writers go to the other.
    frozen, other = start_pair(None, {**env, "TARNLOG_TEST_STORE_DELAY_MS": "40"}, env)
    clients = [client_of(service.url, timeout=1.0, deadline=1.5) for service in (frozen, other)]
    async with load_on(clients, rng) as load:
        for _ in range(20 if long_run else 3):
            await load.acknowledgements(50)
            frozen.sigstop()
            try:
                before = load.journal.acknowledged
                await load.acknowledgements(16)
                await asyncio.sleep(2 * HEAD_AGE)
                seen = (await clients[1].snapshot(TABLE, max_staleness_seconds=0)).version
            finally:
                frozen.sigcont()
            assert load.journal.acknowledged > before, "the other service goes on"
            awake = await clients[0].snapshot(TABLE)
            assert awake.version >= seen, "what it knew before it was frozen is too old to be shown"
            await load.acknowledgements(50)
        await load.finish()
        actions: list[Action] = [file("last.parquet")]
        last = await load.send(load.new(actions), actions, clients[0])
        assert isinstance(last, Committed)
    log = read_log(objects_in_folder(Path(frozen.warehouse)), TABLE)
    check(load.journal, log)
    assert last.version == log.head
    assert load.journal.counts()["Unknown"], "nobody waited in vain: it was never frozen under load"
