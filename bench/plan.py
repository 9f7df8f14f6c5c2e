"""`python -m bench plan`: planning scans over HTTP, cold and warm, beside deltalake and DuckLake in the same run."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console

from bench.peer_runs import PeerError, postgres
from bench.plan_report import PlanResult, grids, targets
from bench.plan_runs import PlanBench, PlanSize
from bench.progress import say
from bench.report import facts, markdown, show, write_section

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
PAGE = FOLDER.parent / "docs" / "benchmarks.md"
QUICK = PlanSize(rounds=1, files=20_000, few=2_000, seconds=2)
FULL = PlanSize(rounds=3, files=1_000_000, few=10_000, seconds=4)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="a short smoke run with small tables; rough numbers")
    parser.add_argument("--rounds", type=int, help="cold processes for each measurement, the median is shown")
    parser.add_argument("--files", type=int, help="files of the large table")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="measure the peers too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there too")
    parser.add_argument("--write-docs", action="store_true", help=f"put the tables into {PAGE.name}")
    parser.add_argument("--data-dir", type=Path, help="scratch folder on the disk to measure (default: bench/results)")


def run(options: argparse.Namespace) -> int:
    """Measure, show, write; 1 where a target was missed or a part could not be measured."""
    if options.quick and options.write_docs:
        say("--write-docs needs a full run: the numbers of a quick one are rough")
        return 2
    base = QUICK if options.quick else FULL
    size = msgspec.structs.replace(base, rounds=options.rounds or base.rounds, files=options.files or base.files)
    RESULTS.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=options.data_dir or RESULTS))
    try:
        result = collect(size, scratch, peers=options.peers)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    data = msgspec.json.format(msgspec.json.encode(result), indent=2)
    for path in [RESULTS / "plan.json", *([options.json] if options.json else [])]:
        path.write_bytes(data)
    show(grids(result), Console())
    if options.write_docs:
        write_section(PAGE, "plan", page(result))
        say(f"wrote {PAGE.name}")
    return 0 if not result.absent and all(one.met is not False for one in targets(result)) else 1


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
