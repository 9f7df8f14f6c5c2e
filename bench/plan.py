"""`python -m bench plan`: planning scans over HTTP, cold and warm, beside deltalake and DuckLake in the same run."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from bench import frame
from bench.peer_runs import PeerError, postgres
from bench.plan_report import PlanResult, grids, targets
from bench.plan_runs import PlanBench, PlanSize
from bench.report import facts, markdown

QUICK = PlanSize(rounds=1, files=20_000, few=2_000, seconds=2)
FULL = PlanSize(rounds=3, files=1_000_000, few=10_000, seconds=4)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    frame.add_common_arguments(
        parser,
        rounds="cold processes for each measurement, the median is shown",
        quick="a short smoke run with small tables; rough numbers",
    )
    parser.add_argument("--files", type=int, help="files of the large table")


def run(options: argparse.Namespace) -> int:
    """Measure, show, write; the exit code."""
    base = QUICK if options.quick else FULL
    size = msgspec.structs.replace(base, rounds=options.rounds or base.rounds, files=options.files or base.files)
    return frame.run(
        "plan",
        options,
        lambda scratch: collect(size, scratch, peers=options.peers),
        grids=grids,
        targets=targets,
        page=page,
    )


def collect(size: PlanSize, scratch: Path, *, peers: bool) -> PlanResult:
    """Run every part; a peer that cannot run is named with the reason."""
    bench = PlanBench(scratch, size)
    planned = bench.tarnlog()
    raced = bench.races()
    absent: dict[str, str] = {}
    versions: dict[str, str] = {}
    if peers:
        try:
            planned += bench.deltalake(versions)
        except PeerError as error:
            absent["deltalake"] = str(error)
        try:
            with postgres(scratch / "postgres") as server:
                versions["PostgreSQL"] = server.version
                planned += bench.ducklake(server, versions)
        except PeerError as error:
            absent["ducklake"] = str(error)
    return PlanResult(
        facts=facts(versions), rounds=size.rounds, planned=planned, raced=raced, busy=bench.busy, absent=absent
    )


def page(result: PlanResult) -> str:
    """The section of the benchmark page."""
    known = ", ".join(f"{name} {value}" for name, value in result.facts.items() if name not in ("date", "machine"))
    intro = f"`./dev bench plan`, {result.facts['date']}: {result.facts['machine']}. {known}."
    return "\n".join(["## Planning", "", intro, "", *(markdown(grid) for grid in grids(result))])
