"""The bound of the queue is real: too many are told to come back, nothing is lost, and those who come back get in."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import httpx

from tarnlog import AsyncClient, Committed
from tarnlog.protocol.actions import Action
from tests.process.journal import check
from tests.process.load import TABLE, file, load_on
from tests.process.log_reading import objects_in_folder, read_log
from tests.process.raw import RawWriter, slug
from tests.service_process import ServiceProcess

Start = Callable[..., ServiceProcess]
WAITING = 4


async def test_a_full_queue_rejects_and_loses_nothing(start_service: Start, rng: random.Random) -> None:
    service = start_service(env={"TARNLOG_MAX_WAITING": str(WAITING), "TARNLOG_TEST_STORE_DELAY_MS": "100"})
    client = AsyncClient(service.url)
    # One commit leaves the queue at a time.
    alone = {"commit.coalesce": "false"}
    async with (
        load_on([client], rng, writers=0, properties=alone) as load,
        httpx.AsyncClient(base_url=service.url, timeout=30) as http,
    ):
        writer = RawWriter(http, load.journal)
        answers = await asyncio.gather(*(writer.append(f"raw-{number}") for number in range(32)))
        refused = [answer for answer in answers if answer.status_code == 429]
        accepted = [answer for answer in answers if answer.status_code == 201]
        assert len(refused) + len(accepted) == 32
        assert len(refused) >= 16
        assert len(accepted) >= WAITING
        for answer in refused:
            assert slug(answer) == "too-many-waiting"
            assert int(answer.headers["retry-after"]) >= 1
        # A client does as it is told and gets in.
        appends: list[list[Action]] = [[file(f"client-{number}")] for number in range(16)]
        outcomes = await asyncio.gather(*(load.send(load.new(actions), actions, client) for actions in appends))
        assert all(isinstance(outcome, Committed) for outcome in outcomes)
    log = read_log(objects_in_folder(Path(service.warehouse)), TABLE)
    check(load.journal, log)
    assert len(log.live) == load.journal.acknowledged == len(accepted) + 16
