"""What cleanups deleted, judged by what lies in storage: nothing too early, and nothing that a floor stands on."""

from __future__ import annotations

from tests.simulation.journal import Journal
from tests.simulation.log_model import Log, Objects

DAY = 24 * 3600.0
SKEW = 10.0
"""Replicas' clocks are a few seconds off the store's."""
KEPT_SECONDS = 3600.0
"""The shortest retention in any run."""


def check_retention(journal: Journal, log: Log, objects: Objects) -> list[str]:
    """Every deletion that came too early. A table that was dropped may be purged at any time."""
    found = []
    damaged = {one.key for one in journal.damage}
    for key, when in journal.deleted:
        if key in damaged or not key.startswith(log.root) or (log.dropped_at is not None and log.dropped_at <= when):
            continue
        name = key.removeprefix(log.root)
        if len(name) == 25 and name.endswith(".json"):
            found += _version_faults(log, int(name[:20]), when)
        elif name.endswith("/_manifest.json"):
            found += _state_faults(log, int(name.removeprefix("state-v")[:20]), when)
    for floor, published in log.floors:
        if log.dropped_at is None or published < log.dropped_at:
            found += _promise_faults(log, floor, published)
    if log.dropped_at is None:
        found += _left_faults(journal, log, objects)
    return found


def _version_faults(log: Log, version: int, when: float) -> list[str]:
    ripe = log.floor_at(when - DAY + SKEW)
    age = when - log.versions[version].created
    found = [] if version < ripe else [f"version {version} was deleted at {when:.0f} before a floor was a day above it"]
    return found if age > KEPT_SECONDS - SKEW else [*found, f"version {version} was deleted after {age:.0f} s"]


def _state_faults(log: Log, version: int, when: float) -> list[str]:
    """The state of a floor stays until a higher one is a day old, unless that was published in the same moment."""
    published = [time for floor, time in log.floors if floor == version and time <= when - 60.0]
    if not published or version < log.floor_at(when - DAY + SKEW):
        return []
    return [f"the state of the floor {version} was deleted at {when:.0f}"]


def _promise_faults(log: Log, floor: int, published: float) -> list[str]:
    """Every version that is younger than the retention can be read: no floor is above it."""
    young = [one.number for one in log.versions[:floor] if published - one.created < KEPT_SECONDS - SKEW]
    return [f"version {version} was passed by the floor {floor} too early" for version in young[:1]]


def _left_faults(journal: Journal, log: Log, objects: Objects) -> list[str]:
    """From the floor on every version is there, and so is the state that the floor stands on."""
    floor = log.floor_at(float("inf"))
    found = [
        f"version {version.number} is gone, and the floor is {floor}"
        for version in log.versions
        if version.number >= floor and log.key(version.number) in journal.missing - {one.key for one in journal.damage}
    ]
    state = f"{log.root}state-v{floor:020d}/_manifest.json"
    if floor and (state not in objects or state in journal.missing):
        found.append(f"the floor {floor} has no state")
    return found
