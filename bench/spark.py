"""`python -m bench spark`: tables from Spark, beside plain Parquet, Delta Lake and Iceberg in the same run."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console

from bench.peer_runs import PeerError
from bench.progress import say
from bench.report import facts, markdown, show, write_section
from bench.spark_data import Sizes
from bench.spark_report import SparkResult, grids, targets
from bench.spark_runs import PEERS, WRITERS, SparkBench, SparkSize

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
PAGE = FOLDER.parent / "docs" / "benchmarks.md"
QUICK = SparkSize(
    race=Sizes(rounds=2, rows=2_000_000, files=8, small_files=1_000, written=400_000),
    appends=10,
    each=2,
    planned=5_000,
)
FULL = SparkSize(
    race=Sizes(rounds=5, rows=20_000_000, files=40, small_files=10_000, written=4_000_000),
    appends=200,
    each=6,
    planned=100_000,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="a short smoke run with small tables; rough numbers")
    parser.add_argument("--rounds", type=int, help="rounds beside plain Parquet")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="measure the peers too")
    parser.add_argument("--only", choices=("race", "tables"), help="one part: plain Parquet, or the peers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there too")
    parser.add_argument("--write-docs", action="store_true", help=f"put the tables into {PAGE.name}")
    parser.add_argument("--data-dir", type=Path, help="scratch folder on the disk to measure (default: bench/results)")


def run(options: argparse.Namespace) -> int:
    """Measure, show, write; 1 where a target was missed or a part could not be measured."""
    if options.write_docs and (options.quick or options.only):
        say("--write-docs needs a full run: the numbers of a quick one are rough")
        return 2
    size = QUICK if options.quick else FULL
    if options.rounds:
        size = msgspec.structs.replace(size, race=msgspec.structs.replace(size.race, rounds=options.rounds))
    RESULTS.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=options.data_dir or RESULTS)).resolve()
    try:
        result = collect(size, scratch, only=options.only, peers=options.peers)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    data = msgspec.json.format(msgspec.json.encode(result), indent=2)
    for path in [RESULTS / "spark.json", *([options.json] if options.json else [])]:
        path.write_bytes(data)
    show(grids(result), Console())
    if options.write_docs:
        write_section(PAGE, "spark", page(result))
        say(f"wrote {PAGE.name}")
    return 0 if not result.absent and all(one.met is not False for one in targets(result)) else 1


def collect(size: SparkSize, scratch: Path, *, only: str | None, peers: bool) -> SparkResult:
    """Run every part; a peer that cannot run is named with the reason."""
    bench = SparkBench(scratch, size)
    raced, overhead = bench.race() if only != "tables" else ({}, None)
    tables = [bench.tarnlog()] if only != "race" else []
    absent: dict[str, str] = {}
    for peer in PEERS if peers and only != "race" else ():
        try:
            tables.append(bench.peer(peer))
        except PeerError as error:
            absent[peer] = str(error)
    return SparkResult(
        facts=facts(bench.versions),
        rounds=size.race.rounds,
        writers_appends=WRITERS * size.each,
        planned_files=size.planned,
        raced=raced,
        overhead=overhead,
        tables=tables,
        busy=bench.busy,
        absent=absent,
    )


def page(result: SparkResult) -> str:
    """The section of the benchmark page."""
    known = ", ".join(f"{name} {value}" for name, value in result.facts.items() if name not in ("date", "machine"))
    intro = f"`./dev bench spark`, {result.facts['date']}: {result.facts['machine']}. {known}."
    return "\n".join(["## Spark", "", intro, "", *(markdown(grid) for grid in grids(result))])
