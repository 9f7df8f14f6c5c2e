"""When tables existed, and which versions a read may show."""

from __future__ import annotations

from tests.simulation.log_model import Log


def missing_allowed(logs: list[Log], first: float, last: float) -> bool:
    """Whether the name had no table at some time between `first` and `last`."""
    free_since = float("-inf")
    for log in logs:
        if free_since <= last and log.named_at >= first:
            return True
        if log.dropped_at is None:
            return False
        free_since = log.dropped_at
    return free_since <= last


def version_faults(log: Log, version: int, first: float, last: float) -> list[str]:
    """What is wrong with showing `version` in a read that may be as old as `first` and ended at `last`."""
    oldest = log.head_at(first, included=False)
    newest = log.head_at(last, included=True)
    if version < oldest:
        return [f"version {version} is too old: {oldest} was there {first:.3f}"]
    if version > newest:
        return [f"version {version} is from the future: at the end there was {newest}"]
    return []
