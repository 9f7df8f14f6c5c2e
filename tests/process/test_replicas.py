"""Several replicas share tables by leases: commits come together at one, and go on without it, the database, or both.

Whatever happens to the replicas, every answer is held against the log: nothing acknowledged is lost, nothing is there
twice. That commits share versions is what leases are for; that they are safe never depends on one.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.postgres_process import PostgresProcess
from tests.process.cut_off import Cable
from tests.process.journal import check
from tests.process.load import TABLE, client_of, load_on
from tests.process.log_reading import read_log
from tests.process.sharing import Group, group, metric, new_database, owners, role, until

__all__ = ["group"]  # a fixture
pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("count", [2, 3])
async def test_commits_sent_to_any_replica_come_together_at_one(
    group: Group, postgres_server: PostgresProcess, rng: random.Random, count: int
) -> None:
    replicas = group.start(await new_database(postgres_server), count)
    clients = [client_of(replica.url) for replica in replicas]
    async with load_on(clients, rng) as load:
        await load.acknowledgements(10)
        await until(lambda: len(owners(replicas)) == 1, "one replica holds the table")
        (owner,) = owners(replicas)
        others = [replica for replica in replicas if replica is not owner]
        sent = lambda: sum(metric(one, "tarnlog_commits_forwarded_total", outcome="relay") for one in others)  # noqa: E731
        begun = sent()
        await load.acknowledgements(200)
        await until(lambda: sent() > begun + 20, "the others send commits on")
    log = read_log(group.storage.objects(), TABLE)
    check(load.journal, log)
    assert log.head < len(log.commits), "commits of several replicas share versions"
    assert all(role(replica) == "replica" for replica in replicas)
