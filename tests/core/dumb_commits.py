"""Random commits, and the conflict rules said once more as plainly as they can be: what the real ones must agree with.

Filters are only ever `day = x`, so that "matches" is one comparison.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from hypothesis import strategies as st

from tarnlog.protocol.actions import Action, Add
from tarnlog_server.core.intent import Intent
from tests.core.dumb_table import DumbTable
from tests.core.making import add, intent, remove, skip, txn

DAYS = ("mon", "tue")
OLD = ("mon.1", "mon.2", "mon.3", "tue.1", "tue.2")
NEW = ("mon.a", "mon.b", "tue.a", "tue.b")
APPS = ("s", "t")


@dataclasses.dataclass(frozen=True)
class Plan:
    """One commit that somebody wants. A file's day is the first part of its name."""

    number: int
    adds: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()
    skips: tuple[str, ...] = ()
    txns: tuple[tuple[str, int], ...] = ()
    read_version: int | None = None
    whole_table: bool = False
    days: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    app_ids: tuple[str, ...] = ()
    isolation: str = "write-serializable"
    quiet: bool = False
    alone: bool = False

    @property
    def actions(self) -> tuple[Action, ...]:
        change: dict[str, Any] = {"data_change": not self.quiet}
        return (
            *(add(path, path[:3], **change) for path in self.adds),
            *(remove(path, **change) for path in self.removes),
            *(skip(path) for path in self.skips),
            *(txn(app, version) for app, version in self.txns),
        )

    @property
    def reads_nothing(self) -> bool:
        return not (self.whole_table or self.days or self.paths or self.app_ids)

    @property
    def blind(self) -> bool:
        return self.reads_nothing and not (self.removes or self.skips or self.txns)

    @property
    def level(self) -> str:
        compaction = self.quiet and bool(self.adds or self.removes) and not (self.skips or self.txns)
        return "snapshot" if compaction else self.isolation

    def intent(self) -> Intent:
        """A fresh intent; FORMING changes the one it is given."""
        return intent(
            self.number,
            *self.actions,
            read_version=self.read_version,
            whole_table=self.whole_table,
            filters=tuple({"op": "eq", "column": "day", "value": day} for day in self.days),
            paths=self.paths,
            app_ids=self.app_ids,
            isolation=self.isolation,
            coalesce=False if self.alone else None,
        )

    def read(self, file: str) -> bool:
        """Whether the file named so is among what was selected by filter or whole table."""
        return self.whole_table or file[:3] in self.days


def some(values: tuple[str, ...], most: int = 2, nothing: int = 1) -> st.SearchStrategy[tuple[str, ...]]:
    """At most so many of them, and often none: a commit with a bit of everything always breaks several rules at once.

    One draw, so that a commit is cheap to draw and shrinks to nothing.
    """
    chosen = [one for size in range(1, most + 1) for one in itertools.combinations(values, size)]
    return st.sampled_from([()] * (nothing * len(chosen)) + chosen)


_ADDS, _REMOVES, _SKIPS, _PATHS = some(NEW), some(OLD), some(OLD, 1, nothing=4), some(OLD, 1, nothing=2)
_TXNS, _APP_IDS, _DAYS = some(APPS, nothing=2), some(APPS, 1, nothing=2), some(DAYS, 1)
_ISOLATIONS = st.sampled_from(["write-serializable", "serializable", "snapshot"])
_NUMBERS = st.integers(0, 59)


@st.composite
def plans(draw: st.DrawFn, number: int, head: int) -> Plan:
    """A commit planned on a version from 1 to `head`; about every third one is a blind append."""
    adds, kind = draw(_ADDS), draw(_NUMBERS)
    alone = kind % 10 == 9
    if kind < 20 and adds:
        return Plan(number, adds=adds, alone=alone)
    removes, progress = draw(_REMOVES), draw(_NUMBERS)
    plan = Plan(
        number,
        adds=adds,
        removes=removes,
        skips=tuple(path for path in draw(_SKIPS) if path not in removes),
        txns=tuple((app, progress % 5) for app in draw(_TXNS)),
        read_version=head - draw(_NUMBERS) % head,
        whole_table=kind % 10 == 8,
        days=draw(_DAYS),
        paths=draw(_PATHS),
        app_ids=draw(_APP_IDS),
        isolation=draw(_ISOLATIONS),
        quiet=progress % 4 == 3,
        alone=alone,
    )
    return plan if plan.actions else dataclasses.replace(plan, adds=("mon.a",))


def conflicts(loser: Plan, winners: list[Plan], head: DumbTable) -> set[str]:
    """Every rule that any of the winners, or the head itself, breaks for the loser. Empty for a blind append."""
    if loser.blind:
        return set()
    broken = set()
    for winner in winners:
        if set(loser.app_ids) & {app for app, _ in winner.txns}:
            broken.add("txn")
        counts = loser.level == "serializable" or (loser.level == "write-serializable" and not winner.blind)
        if counts and any(loser.read(file) for file in winner.adds):
            broken.add("append")
        if any(file in loser.paths or loser.read(file) for file in winner.removes):
            broken.add("delete-read")
        if set(winner.removes) & set(loser.removes):
            broken.add("delete-delete")
    if any(app in head.txns and version <= head.txns[app][0].version for app, version in loser.txns):
        broken.add("txn")
    if any(file not in head.files and file in head.tombstones for file in loser.removes):
        broken.add("delete-delete")
    return broken


def refused_by_head(plan: Plan, head: DumbTable) -> bool:
    """Faults of the commit itself on this head: a live path added again, a skip or a remove of what never was live."""
    never_there = any(file not in head.files and file not in head.tombstones for file in plan.removes)
    return never_there or any(file in head.files for file in plan.adds) or any(f not in head.files for f in plan.skips)


def first_files() -> tuple[Add, ...]:
    """What version 1 adds."""
    return tuple(add(path, path[:3]) for path in OLD)
