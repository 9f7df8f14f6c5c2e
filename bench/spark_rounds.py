"""What all systems are asked for by turns: small appends, appends of several writers, plans of very many files."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bench.peers.spark_tables import PLANNED
from bench.plan_layout import expected, filters
from bench.progress import say
from bench.spark_children import Turns
from bench.spark_results import FILTERS, ROWS, WRITERS, Planned, Plans, Shared, SparkSize, Tables

SETTLE = 1.0
"""Seconds between a commit and the plan after it: what one system does behind its commit is not in another's time."""
WARM_UP = "warm_up"


def measured(turns: Turns, size: SparkSize, before: Callable[[], Any]) -> list[Tables]:
    """Every part in turn; `before` is called before each, while no child is at work. Peers that fail are left out."""
    turns.ask("create", table=WARM_UP)
    turns.ask("append", table=WARM_UP, count=3, rows=ROWS)
    say(f"by turns: {', '.join(turns.systems)}")
    before()
    small = small_appends(turns, size)
    before()
    shared = shared_appends(turns, size)
    planned = plans(turns, size, before)
    return [
        Tables(system=name, small=small[name], shared=shared[name], planned=planned[name]) for name in turns.systems
    ]


def small_appends(turns: Turns, size: SparkSize) -> dict[str, list[list[float]]]:
    """Seconds of every append of a few rows, turn by turn."""
    say(f"small appends: {size.blocks} turns of {size.appends}")
    turns.ask("create", table="small")
    found = _by_system(turns, size.blocks, "append", table="small", count=size.appends, rows=ROWS)
    turns.ask("check", table="small", rows=size.blocks * size.appends * ROWS)
    return found


def shared_appends(turns: Turns, size: SparkSize) -> dict[str, list[Shared]]:
    """Several writers at once, turn by turn. What was acknowledged must be there, and nothing else."""
    say(f"appends of {WRITERS} writers: {size.shared_blocks} turns of {size.each} each")
    turns.ask("create", table="shared")
    setting = {"table": "shared", "writers": WRITERS, "each": size.each, "rows": ROWS}
    answers = _by_system(turns, size.shared_blocks, "append_together", **setting)
    turns.ask("check_together", table="shared", rows=ROWS)
    appends = WRITERS * size.each
    return {
        system: [Shared(seconds=spent, appends=appends, failed=failed) for spent, failed in blocks]
        for system, blocks in answers.items()
    }


def plans(turns: Turns, size: SparkSize, before: Callable[[], Any]) -> dict[str, Planned]:
    """The first plan of a table that nobody has opened, in a session that has planned another one; then each filter."""
    for _ in range(3):
        turns.ask("plan", table=WARM_UP, where="id < 10")
    known = filters(size.planned)
    before()
    say(f"planning {size.planned:,} files: {', '.join(FILTERS)}")
    first = turns.ask("plan", table=PLANNED, where=known[FILTERS[0]])
    found: dict[str, dict[str, Plans]] = {system: {} for system in first}
    for number, name in enumerate(FILTERS):
        before()
        asked = {"table": PLANNED, "where": known[name]}
        new: dict[str, list[float]] = {system: [] for system in turns.systems}
        for _ in range(size.asks):
            turns.ask("grow")
            time.sleep(SETTLE)
            for system, spent in turns.ask("plan", keep=True, **asked).items():
                new[system].append(spent)
        again = _by_system(turns, size.asks, "plan", **asked)
        # Every filter selects the file of every commit, so a plan that misses one was not of the newest version.
        wanted = expected(size.planned, name) + (number + 1) * size.asks
        for system, files in turns.ask("kept_files").items():
            if files is not None and files != wanted:
                raise RuntimeError(f"{system}: the plan {name!r} names {files} files where {wanted} can match")
            found[system][name] = Plans(new_version=new[system], again=again[system], found=files)
    return {system: Planned(first[system], found[system]) for system in turns.systems}


def _by_system(turns: Turns, rounds: int, do: str, **setting: Any) -> dict[str, list[Any]]:
    """The answers of those that answered to the end, round by round."""
    answers = [turns.ask(do, **setting) for _ in range(rounds)]
    return {system: [answer[system] for answer in answers] for system in turns.systems}
