"""The pieces of work of the commit benchmark, for tarnlog: hot table, many tables, slow storage, growth.

After every run the log is read from disk and compared with what the writers were told.
"""

from __future__ import annotations

import itertools
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec

from bench.generator import Plan
from bench.log_check import LogCheck, check_log
from bench.progress import say
from bench.quiet import DISTURBED
from bench.samples import Acknowledged, Measure, Sample, measure, median_of
from bench.servers import ServerError, Service, load, load_path, load_tables, noop, tarnlog

DELAY_MS = 30
SLOW_WRITERS = 64
WORK = ((1, 1), (8, 1), (32, 1), (32, 32))
"""(writers, tables)"""
_names = itertools.count()


class Size(msgspec.Struct, frozen=True):
    """How long and how often to measure, and how far to grow a table."""

    seconds: float
    rounds: int
    versions: int
    files: int


class Checked(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All logs of one piece of work, summed up."""

    acknowledged: int = 0
    sub_commits: int = 0
    adds: int = 0
    versions: int = 0
    unacknowledged: int = 0
    faults: list[str] = []


class SlowStorage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What slow storage costs: the rate and latency, and the storage writes one commit took."""

    measure: Measure
    delay_ms: int
    p99_calls: float
    puts_per_commit: float


class Growth(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The rate on a fresh table and on one that has grown, measured in turn on the same service."""

    what: str
    amount: int
    writers: int
    fresh: float
    grown: float
    failed: int = 0

    @property
    def ratio(self) -> float:
        return self.grown / self.fresh if self.fresh else 0.0


class Bench:
    """One run of the benchmark on tarnlog: where it works, what it measured and what the logs said."""

    def __init__(self, folder: Path, size: Size) -> None:
        self.folder, self.size = folder, size
        self.checked: dict[str, Checked] = {}
        self._told: dict[str, list[Acknowledged]] = defaultdict(list)

    def fresh_tables(self, service: Service, count: int) -> list[str]:
        return [service.create(f"bench.t{next(_names)}") for _ in range(count)]

    def commits(self, service: Service, tables: list[str], writers: int) -> Sample:
        """Load the tables, and remember what was acknowledged for the check."""
        sample = load_tables(service, tables, writers, self.size.seconds, self.folder)
        self._remember(sample)
        return sample

    def _remember(self, sample: Sample) -> None:
        for one in sample.acknowledged:
            self._told[one.table].append(one)

    def hot_and_many(self) -> list[Measure]:
        """W1 and W2, the no-op reference right after each so that both see the same machine."""
        rounds: dict[tuple[str, str, int], list[Measure]] = defaultdict(list)
        with tarnlog(self.folder, "hot") as service:
            for number in range(self.size.rounds):
                for writers, count in WORK:
                    work = "W1" if count == 1 else "W2"
                    sample = self.commits(service, self.fresh_tables(service, count), writers)
                    ones = [measure("tarnlog", work, writers, count, sample)]
                    if count == 1:
                        ones += self.reference(writers)
                    for one in ones:
                        rounds[one.system, work, writers].append(one)
                        announce(one, number)
            self.check("W1, W2", service)
        return [median_of(ones) for ones in rounds.values()]

    def reference(self, writers: int) -> list[Measure]:
        """The same requests to an application that does nothing."""
        found = []
        with noop(self.folder) as port:
            for path in ("/raw", "/model"):
                sample = load_path(port, path, writers, self.size.seconds, self.folder)
                found.append(measure(f"no-op POST {path[1:]}", "W1", writers, 0, sample))
        return found

    def slow_storage(self) -> SlowStorage:
        """W3: every storage call takes 30 ms longer."""
        with tarnlog(self.folder, "slow", DELAY_MS) as service:
            tables = self.fresh_tables(service, 1)
            before = service.puts()
            sample = self.commits(service, tables, SLOW_WRITERS)
            puts = service.puts() - before
            self.check("W3", service)
        one = measure("tarnlog", "W3", SLOW_WRITERS, 1, sample)
        announce(one, 0)
        per_commit = puts / one.commits if one.commits else 0.0
        return SlowStorage(measure=one, delay_ms=DELAY_MS, p99_calls=one.p99_ms / DELAY_MS, puts_per_commit=per_commit)

    def growth(self) -> list[Growth]:
        """W4: a table with many versions, and one with many files, each in turn with a fresh one."""
        found: list[Growth] = []
        for what, amount, limit, adds in (
            ("versions", self.size.versions, self.size.versions, 1),
            ("files", self.size.files, self.size.files // 1000, 1000),
        ):
            with tarnlog(self.folder, f"grown-{what}") as service:
                (grown,) = self.fresh_tables(service, 1)
                say(f"W4 growing a table to {amount:,} {what}")
                self._grow(service, grown, limit, adds)
                for writers in (1, 32):
                    fresh_rates, grown_rates = [], []
                    for number in range(self.size.rounds):
                        sample = self.commits(service, self.fresh_tables(service, 1), writers)
                        fresh_rates.append(one := measure("tarnlog", "W4 fresh", writers, 1, sample))
                        announce(one, number)
                        sample = self.commits(service, [grown], writers)
                        grown_rates.append(one := measure("tarnlog", f"W4 {what}", writers, 1, sample))
                        announce(one, number)
                    fresh, after = median_of(fresh_rates), median_of(grown_rates)
                    found.append(
                        Growth(
                            what=what,
                            amount=amount,
                            writers=writers,
                            fresh=fresh.per_second,
                            grown=after.per_second,
                            failed=fresh.failed + after.failed,
                        )
                    )
                self.check(f"W4 {what}", service)
        return found

    def _grow(self, service: Service, table: str, limit: int, adds: int) -> None:
        """Exactly `limit` commits of `adds` files, one version each; a failed one would make the size a lie."""
        writers = 32 if adds == 1 else 4
        target = [f"/v1/tables/{table}/commits"]
        plan = Plan(
            port=service.port, targets=target, tables=[table], writers=writers, seconds=3600.0, limit=limit,
            adds=adds, coalesce=False,
        )  # fmt: skip
        sample = load(plan, self.folder)
        if sample.errors or len(sample.latencies) != limit:
            raise ServerError(f"growing {table} ended with {len(sample.latencies)} commits and {sample.errors}")
        self._remember(sample)

    def check(self, work: str, service: Service) -> None:
        """Compare the logs of all tables made by this service with the acknowledgements."""
        told, self._told = self._told, defaultdict(list)
        one = total((name, check_log(log, told[name])) for name, log in service.logs.items())
        acknowledged = sum(len(commits) for commits in told.values())
        self.checked[work] = msgspec.structs.replace(one, acknowledged=acknowledged)
        say(
            f"{work} log check: {acknowledged:,} acknowledged, {one.sub_commits:,} in the log, "
            f"{one.versions:,} versions"
        )
        for fault in one.faults:
            print(f"LOG FAULT {fault}", file=sys.stderr)


def total(checks: Iterable[tuple[str, LogCheck]]) -> Checked:
    """Sum the checks of several tables up; every disagreement is named."""
    versions = sub_commits = adds = unacknowledged = 0
    faults: list[str] = []
    for name, one in checks:
        versions, sub_commits, adds = versions + one.versions, sub_commits + one.sub_commits, adds + one.adds
        unacknowledged += one.unacknowledged
        faults += [f"{name}: {fault}" for fault in one.faults]
    return Checked(versions=versions, sub_commits=sub_commits, adds=adds, unacknowledged=unacknowledged, faults=faults)


def announce(one: Measure, number: int) -> None:
    say(
        f"{one.work} {one.system}, {one.writers} writers, round {number + 1}: {one.per_second:,.1f}/s, "
        f"p50 {one.p50_ms:.1f} ms, p99 {one.p99_ms:.1f} ms, {one.failed} failed"
        f"{', DISTURBED by other processes' if one.busy > DISTURBED else ''}"
    )
