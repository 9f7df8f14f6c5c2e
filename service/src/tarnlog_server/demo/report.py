"""What the demonstration showed, as tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tarnlog_server.demo.log_reading import LogCheck
from tarnlog_server.demo.writers import Acknowledged


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile: always a value that was really seen. 0 of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def show(console: Console, acknowledged: Sequence[Acknowledged], check: LogCheck, seconds: float, writers: int) -> None:
    """Speed, batches, and the truth about the kill."""
    console.print(_speed([a for a in acknowledged if not a.unanswered], check, seconds, writers))
    console.print(_kill([a for a in acknowledged if a.unanswered]))
    console.print(_verdict(len(acknowledged), check))


def _speed(undisturbed: Sequence[Acknowledged], check: LogCheck, seconds: float, writers: int) -> Table:
    table = Table(title=f"{writers} writers, one table, {seconds:.1f} s with a kill -9 and a restart in it")
    for name in ("commits", "versions", "commits a version", "latency p50", "p99", "slowest"):
        table.add_column(name, justify="right")
    latencies = [a.seconds for a in undisturbed]
    batches = check.batches or [0]
    table.add_row(
        f"{sum(check.batches)}",
        f"{check.versions}",
        f"{sum(batches) / len(batches):.1f} (at most {max(batches)})",
        *(f"{value * 1000:.1f} ms" for value in (percentile(latencies, 0.5), percentile(latencies, 0.99))),
        f"{max(latencies, default=0.0) * 1000:.0f} ms",
    )
    return table


def _kill(cut_off: Sequence[Acknowledged]) -> Table:
    table = Table(title="Commits that were in flight when the service was killed")
    table.add_column("what the writer did not know")
    table.add_column("commits", justify="right")
    table.add_column("slowest answer", justify="right")
    landed = [a for a in cut_off if a.replayed]
    fresh = [a for a in cut_off if not a.replayed]
    for meaning, commits in (
        ("it had landed: the resend found it in the log, and wrote nothing", landed),
        ("it had not landed: the resend wrote it", fresh),
    ):
        slowest = f"{max(a.seconds for a in commits):.1f} s" if commits else ""
        table.add_row(meaning, str(len(commits)), slowest)
    return table


def _verdict(acknowledged: int, check: LogCheck) -> Table:
    table = Table(title="The log on disk, read without the service")
    table.add_column("check")
    table.add_column("result", justify="right")
    for name, faults in (
        (f"every one of {acknowledged} acknowledged commits is there", check.missing),
        ("each exactly once", check.repeated),
        ("each at the version and place its writer was told", check.misplaced),
        ("versions follow one another without a gap", check.gaps),
    ):
        table.add_row(name, "[green]yes[/]" if not faults else f"[red]no: {len(faults)}[/]")
    return table
