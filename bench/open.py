"""`python -m bench open`: opening tables from states and by replay, beside deltalake in the same run."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from bench import frame
from bench.open_report import OpenResult, grids, targets
from bench.open_runs import OpenBench, OpenSize
from bench.peer_runs import PeerError
from bench.progress import say
from bench.report import facts, markdown

QUICK = OpenSize(rounds=2, histories=(10, 100, 1000), files=1000, planned=20_000, grown=50_000)
FULL = OpenSize(rounds=5, histories=(10, 100, 1000, 10_000), files=10_000, planned=100_000, grown=1_000_000)

PARTS = ("histories", "files", "plans", "growth")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    frame.add_common_arguments(
        parser,
        rounds="cold processes for each measurement, the median is shown",
        quick="a short smoke run with small tables; rough numbers",
    )
    parser.add_argument("--only", choices=PARTS, help="one part: histories, many files, a cold plan, large tables")


def run(options: argparse.Namespace) -> int:
    """Measure, show, write; the exit code."""
    base = QUICK if options.quick else FULL
    size = msgspec.structs.replace(base, rounds=options.rounds or base.rounds)
    return frame.run(
        "open",
        options,
        lambda scratch: collect(size, scratch, only=options.only, peers=options.peers),
        grids=grids,
        targets=targets,
        page=page,
        partial=options.only is not None,
    )


def collect(size: OpenSize, scratch: Path, *, only: str | None, peers: bool) -> OpenResult:
    """Run every part, or one; a peer that cannot run is named with the reason."""
    parts = PARTS if only is None else (only,)
    bench = OpenBench(scratch, size)
    absent: dict[str, str] = {}
    found: dict[str, str] = {}
    opened = bench.histories() if "histories" in parts else []
    opened += bench.many_files() if "files" in parts else []
    if peers and "files" in parts:
        try:
            opened += bench.deltalake(found)
        except PeerError as error:
            absent["deltalake"] = str(error)
            say(f"deltalake: {error}")
    planned = bench.plans() if "plans" in parts else []
    grown = bench.growth() if "growth" in parts else []
    return OpenResult(
        facts=facts(found), rounds=size.rounds, opened=opened, planned=planned, grown=grown,
        busy=bench.busy, absent=absent,
    )  # fmt: skip


def page(result: OpenResult) -> str:
    """The part of docs/benchmarks.md that this benchmark writes."""
    versions = ", ".join(f"{name} {value}" for name, value in result.facts.items() if name not in ("date", "machine"))
    lines = [
        "## Opening",
        "",
        f"`./dev bench open`, {result.facts['date']}: {result.facts['machine']}. {versions}.",
        f"Each number is the median of up to {result.rounds} new processes.",
        "",
    ]
    return "\n".join(lines) + "\n" + "\n".join(markdown(grid) for grid in grids(result))
