"""kill -9 under load: nothing acknowledged is lost, and what was half done is not there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process.journal import check
from tests.process.load import client_of, load_on
from tests.process.log_reading import objects_in_folder, read_log
from tests.service_process import ServiceProcess

Start = Callable[..., ServiceProcess]


@pytest.mark.timeout(3600)  # two hundred starts in a long run, and a busy machine
@pytest.mark.xdist_group("process-kill")
async def test_nothing_acknowledged_is_lost_over_twenty_kills(
    start_service: Start, tmp_path: Path, rng: random.Random, long_run: bool
) -> None:
    service = start_service()
    warehouse = Path(service.warehouse)
    kills = 200 if long_run else 20
    async with load_on([client_of(service.url, longest_pause=0.4)], rng) as load:
        for kill in range(kills):
            await load.acknowledgements(rng.randrange(1, 100))
            await asyncio.sleep(rng.uniform(0, 0.02))
            service.kill9()
            if kill % 5 == 0:
                _leave_litter(warehouse, rng)
            service.start(wait=False)
        await load.acknowledgements(16)
    history = [record async for record in client_of(service.url).history(load.table, order="asc")]
    live = {add.path async for add in client_of(service.url).files(load.table, max_staleness_seconds=0)}
    service.kill9()
    log = read_log(objects_in_folder(warehouse), load.table)
    check(load.journal, log)
    counts = load.journal.counts()
    assert counts["Conflicted"], "the load is too tame to show that conflicts are kept out"
    assert load.journal.acknowledged >= 17 * kills / 2
    assert [(r.version, r.seq, r.commit_id) for r in history] == [
        (logged.place.version, logged.place.seq, commit_id) for commit_id, logged in log.commits.items()
    ]
    assert live == log.live


def _leave_litter(warehouse: Path, rng: random.Random) -> None:
    """What a killed writer, an editor or a copy could leave beside the versions: none of it is a version."""
    newest = max(warehouse.rglob("_transaction_log/0*.json"))
    torn = newest.read_bytes()[: rng.randrange(1, newest.stat().st_size)]
    following = f"{int(newest.stem) + 1:020d}"
    for name in (f".tarnlog-tmp-{rng.randrange(2**32):x}", f"{following}.json.tmp", f"{following}.json~", following):
        newest.with_name(name).write_bytes(torn)
