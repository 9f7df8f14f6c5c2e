"""`python -m bench open`: opening tables from states and by replay, beside deltalake in the same run."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console

from bench.open_report import OpenResult, grids, targets
from bench.open_runs import OpenBench, OpenSize
from bench.peer_runs import PeerError
from bench.progress import say
from bench.report import facts, markdown, show, write_section

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
PAGE = FOLDER.parent / "docs" / "benchmarks.md"
QUICK = OpenSize(rounds=2, histories=(10, 100, 1000), files=1000, planned=20_000, grown=50_000)
FULL = OpenSize(rounds=5, histories=(10, 100, 1000, 10_000), files=10_000, planned=100_000, grown=1_000_000)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="a short smoke run with small tables; rough numbers")
    parser.add_argument("--rounds", type=int, help="cold processes for each measurement, the median is shown")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="measure deltalake too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there too")
    parser.add_argument("--write-docs", action="store_true", help=f"put the tables into {PAGE.name}")
    parser.add_argument("--data-dir", type=Path, help="scratch folder on the disk to measure (default: bench/results)")


def run(options: argparse.Namespace) -> int:
    """Measure, show, write; 1 where a target was missed or a part could not be measured."""
    if options.quick and options.write_docs:
        say("--write-docs needs a full run: the numbers of a quick one are rough")
        return 2
    base = QUICK if options.quick else FULL
    size = msgspec.structs.replace(base, rounds=options.rounds or base.rounds)
    RESULTS.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=options.data_dir or RESULTS))
    try:
        result = collect(size, scratch, peers=options.peers)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    data = msgspec.json.format(msgspec.json.encode(result), indent=2)
    for path in [RESULTS / "open.json", *([options.json] if options.json else [])]:
        path.write_bytes(data)
    show(grids(result), Console())
    if options.write_docs:
        write_section(PAGE, "open", page(result))
        say(f"wrote {PAGE.name}")
    return 0 if not result.absent and all(one.met is not False for one in targets(result)) else 1


def collect(size: OpenSize, scratch: Path, *, peers: bool) -> OpenResult:
    """Run every part; a peer that cannot run is named with the reason."""
    bench = OpenBench(scratch, size)
    absent: dict[str, str] = {}
    found: dict[str, str] = {}
    opened = [*bench.histories(), *bench.many_files()]
    if peers:
        try:
            opened += bench.deltalake(found)
        except PeerError as error:
            absent["deltalake"] = str(error)
            say(f"deltalake: {error}")
    return OpenResult(
        facts=facts(found), rounds=size.rounds, opened=opened, planned=bench.plans(), grown=bench.growth(),
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
