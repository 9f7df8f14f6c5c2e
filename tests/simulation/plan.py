"""What a seed decides about a run before it starts: from a quiet day to brutal storage, limits small or large."""

from __future__ import annotations

import dataclasses
import random

from tarnlog_server.core.coalesce import Limits
from tarnlog_server.core.snapshot_tracker import Window
from tarnlog_server.usecases.committer import CommitterSettings
from tests.simulation.index import IndexFaults
from tests.simulation.routing import RoutingFaults
from tests.simulation.storage import Faults


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """The configuration of one run."""

    faults: Faults
    committer: CommitterSettings
    clients: int
    steps: int
    think: float
    shuffle: bool
    hedge: bool
    follower: bool
    outsider: bool
    crashes: int
    drops: bool
    lulls: tuple[float, ...]
    client_timeout: float
    skews_ms: tuple[int, int]
    properties: dict[str, str]
    cache_ttl: float
    cache_versions: int
    max_open_tables: int
    mix: dict[str, float]
    cleanup: bool = False
    last_cleanups: int = 0
    index: IndexFaults | None = None
    """None: replicas have no index."""
    routing: RoutingFaults | None = None
    """None: replicas know nothing of each other."""
    clock_steps: float = 0.0
    """The chance that a clock is set at a step of a client."""


CALM = Faults()
MILD = Faults(lost_reply=0.02, late_landing=0.01, conflict=0.03, read_error=0.02, slow=0.05, slow_seconds=0.5)
ROUGH = Faults(lost_reply=0.08, late_landing=0.06, conflict=0.1, refused=0.01, read_error=0.08, slow=0.1)
BRUTAL = Faults(
    lost_reply=0.15,
    late_landing=0.2,
    conflict=0.15,
    refused=0.03,
    read_error=0.2,
    slow=0.2,
    slow_seconds=20.0,
    late_seconds=40.0,
    timeout_seconds=3.0,
)


KEPT = {
    "logRetention.duration": "1h",
    "commit.dedupe.duration": "1h",
    "checkpointRetention.duration": "0",
    "state.retention.versions": "1",
    "deletedFileRetention.duration": "1d",
}
"""Properties of tables that are cleaned up: as short as the rules allow."""


LULLS = ((5_000.0, 90_000.0), (90_000.0, 90_000.0), (90_000.0, 5_000.0))
"""More than a day lets go of what was written; an hour and more, of versions that are younger than what they remove."""


WELL, WEAK, MAD = (
    IndexFaults(),
    IndexFaults(error=0.05, lost_answer=0.05, lost_write=0.05, slow=0.02, dropped=0.02),
    IndexFaults(error=0.02, lost_answer=0.02, lost_write=0.1, slow=0.02, dropped=0.02, meddled=0.3),
)
"""Databases."""
NEAR, FAR, TORN = (
    RoutingFaults(),
    RoutingFaults(unavailable=0.1, slow=0.1, unreachable=0.1, lost_request=0.1, late_request=0.1, lost_answer=0.1),
    RoutingFaults(
        unavailable=0.1,
        slow=0.1,
        mine=0.1,
        stale=0.3,
        unreachable=0.2,
        lost_request=0.1,
        late_request=0.2,
        lost_answer=0.3,
    ),
)
"""Networks between replicas, and what these know of each other."""
LONGEST_SHARED_LULL = 5000.0
"""Replicas that share leases look every half a minute, also while nobody writes: days of that would take too long."""


def make_plan(seed: str) -> Plan:
    """The plan of a seed: how storage and clients are, whether the log is cleaned up, and what replicas share."""
    return _stepping(_shared(_cleaned(_plan(seed), seed), seed), seed)


def _stepping(plan: Plan, seed: str) -> Plan:
    """In some seeds clocks of replicas are set. Not where logs are cleaned up: that is judged by true times."""
    rng = random.Random(f"{seed} clocks")
    if plan.cleanup or rng.random() < 0.6:
        return plan
    properties = {**plan.properties, **rng.choice(({}, {"commit.dedupe.duration": "1h"}))}
    mix = {**plan.mix, "state": max(plan.mix["state"], rng.choice((0.0, 2.0)))}
    return dataclasses.replace(plan, clock_steps=rng.choice((0.03, 0.1, 0.3)), properties=properties, mix=mix)


def _shared(plan: Plan, seed: str) -> Plan:
    """In many seeds replicas have an index; in some, leases bring commits together."""
    rng = random.Random(f"{seed} shared")
    if plan.max_open_tables > 1 and rng.random() < 0.35:  # what becomes of closed tables, the collector decides
        window = Window(versions=rng.choice((1, 2, 5)), weight=100, snapshots=1, recent_ids=rng.choice((0, 1, 4)))
        committer = plan.committer if rng.random() < 0.2 else dataclasses.replace(plan.committer, window=window)
        plan = dataclasses.replace(
            plan,
            index=rng.choice((WELL, WEAK, MAD, MAD)),
            committer=committer,
            think=max(plan.think, rng.choice((0.0, 0.5))),  # the index is written half a second behind
            mix={**plan.mix, "look_back": rng.choice((0.5, 2.0))},
        )
    if max(plan.lulls, default=0.0) <= LONGEST_SHARED_LULL and rng.random() < 0.5:
        think = max(plan.think, rng.choice((0.0, 0.3)))  # a lease is taken after the first commit
        plan = dataclasses.replace(plan, routing=rng.choice((NEAR, FAR, TORN, TORN)), think=think)
    return plan


def _cleaned(plan: Plan, seed: str) -> Plan:
    """In many seeds the log is cleaned up while everyone goes on, with days passing in between."""
    rng = random.Random(f"{seed} cleanup")
    if plan.follower or rng.random() < 0.6:  # a follower looks every few seconds, all through those days
        return plan
    hours = {"state.retention.hours": rng.choice(("0", "0", "30"))}
    return dataclasses.replace(
        plan,
        cleanup=True,
        lulls=rng.choice(LULLS),
        last_cleanups=rng.choice((1, 1, 2)),
        properties={**plan.properties, **KEPT, **hours},
        mix={
            **plan.mix,
            "state": rng.choice((0.5, 2.0)),
            "cleanup": rng.choice((0.5, 2.0)),
            "vacuum": 0.5,
            "in_session": 0.5,
        },
    )


def _plan(seed: str) -> Plan:
    rng = random.Random(f"{seed} plan")
    follower = rng.random() < 0.3
    long_lulls = (70.0, 300.0, 4000.0) if rng.random() < 0.9 else (70.0, 90_000.0)
    lulls = tuple(rng.choice(long_lulls) for _ in range(rng.randrange(3)))
    small = rng.random() < 0.4
    tiny_window = rng.random() < 0.4
    properties: dict[str, str] = {"state.entriesPerManifest": "3", "state.compaction.maxManifests": "2"}
    if rng.random() < 0.25:
        properties["commit.coalesce"] = "false"
    if rng.random() < 0.3:
        properties["transaction.retry.maxAttempts"] = rng.choice(("1", "2", "3"))
    if rng.random() < 0.5:
        properties["transaction.retry.baseDelayMs"] = "10"
    return Plan(
        faults=rng.choice((CALM, MILD, ROUGH, ROUGH, BRUTAL)),
        committer=CommitterSettings(
            max_waiting=rng.choice((1, 3)) if rng.random() < 0.15 else 4096,
            deadline_seconds=rng.choice((0.05, 0.5, 5.0)) if rng.random() < 0.4 else 30.0,
            head_max_age_seconds=60.0,
            limits=Limits(commits=rng.choice((1, 2, 3)), bytes=2000, actions=4) if small else Limits(),
            window=Window(
                versions=rng.choice((1, 2, 5)),
                weight=rng.choice((1, 10, 100)),
                snapshots=rng.choice((1, 3)),
                recent_ids=rng.choice((0, 1, 4)),
            )
            if tiny_window
            else Window(),
        ),
        clients=rng.randint(3, 6),
        steps=rng.randint(4, 14),
        think=rng.choice((0.002, 0.05, 0.5)),
        shuffle=rng.random() < 0.5,
        hedge=rng.random() < 0.5,
        follower=follower,
        outsider=rng.random() < 0.4,
        crashes=rng.choice((0, 0, 1, 2, 3)),
        drops=rng.random() < 0.25,
        lulls=tuple(min(seconds, 150.0) for seconds in lulls) if follower else lulls,
        client_timeout=rng.choice((0.3, 3.0)) if rng.random() < 0.3 else 60.0,
        skews_ms=(rng.randint(-4000, 4000), rng.randint(-4000, 4000)) if rng.random() < 0.7 else (0, 0),
        properties=properties,
        cache_ttl=rng.choice((0.5, 300.0)),
        cache_versions=rng.choice((2, 1000)),
        max_open_tables=1 if rng.random() < 0.1 else 1000,
        mix={
            "append": rng.choice((1.0, 3.0)),
            "append_alone": 0.4,
            "add_again": 0.1,
            "remove": rng.choice((0.5, 2.0)),
            "rewrite": rng.choice((0.5, 1.5)),
            "filter_write": rng.choice((0.5, 1.5)),
            "overwrite": rng.choice((0.1, 0.5)),
            "stream": rng.choice((0.5, 1.5)),
            "patch": rng.choice((0.2, 1.0)),
            "metadata": 0.2,
            "skip": 0.3,
            "state": rng.choice((0.0, 0.5, 2.0)),
            "read": rng.choice((0.5, 2.0)),
        },
    )
