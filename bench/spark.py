"""`python -m bench spark`: tables from Spark, beside plain Parquet, Delta Lake and Iceberg in the same run."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from bench import frame
from bench.report import facts, markdown
from bench.spark_data import Sizes
from bench.spark_report import SparkResult, grids, targets
from bench.spark_results import PEERS, SparkSize
from bench.spark_runs import SparkBench

QUICK = SparkSize(
    race=Sizes(rounds=2, write_rounds=2, rows=2_000_000, files=8, small_files=1_000, written=400_000),
    blocks=2,
    appends=5,
    shared_blocks=2,
    each=1,
    planned=5_000,
    asks=2,
)
FULL = SparkSize(
    race=Sizes(rounds=5, write_rounds=9, rows=20_000_000, files=40, small_files=10_000, written=4_000_000),
    blocks=10,
    appends=20,
    shared_blocks=5,
    each=2,
    planned=100_000,
    asks=5,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    frame.add_common_arguments(
        parser,
        rounds="rounds beside plain Parquet",
        quick="a short smoke run with small tables; rough numbers",
    )
    parser.add_argument("--only", choices=("race", "tables"), help="one part: plain Parquet, or the peers")


def run(options: argparse.Namespace) -> int:
    """Measure, show, write; the exit code."""
    size = QUICK if options.quick else FULL
    if options.rounds:
        more = max(options.rounds, size.race.write_rounds)
        race = msgspec.structs.replace(size.race, rounds=options.rounds, write_rounds=more)
        size = msgspec.structs.replace(size, race=race)
    return frame.run(
        "spark",
        options,
        lambda scratch: collect(size, scratch, only=options.only, peers=options.peers),
        grids=grids,
        targets=targets,
        page=page,
        partial=options.only is not None,
    )


def collect(size: SparkSize, scratch: Path, *, only: str | None, peers: bool) -> SparkResult:
    """Run every part; a peer that cannot run is named with the reason."""
    bench = SparkBench(scratch, size)
    raced, overhead = bench.race() if only != "tables" else ({}, None)
    tables, absent = bench.tables(PEERS if peers else ()) if only != "race" else ([], {})
    return SparkResult(
        facts=facts(bench.versions),
        rounds=size.race.rounds,
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
