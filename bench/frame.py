"""What every benchmark does around its measurements: a scratch folder, the result as JSON and tables, an exit code."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from rich.console import Console

from bench.commit_report import Target
from bench.progress import say
from bench.report import Grid, show, write_section

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


class Result(Protocol):
    """What one run measured."""

    @property
    def absent(self) -> Mapping[str, str]:
        """What could not be measured, and why."""
        ...


R = TypeVar("R", bound=Result)


def add_common_arguments(parser: argparse.ArgumentParser, *, rounds: str, quick: str) -> None:
    """The options that every benchmark has."""
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--rounds", type=int, help=rounds)
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="measure the peers too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there too")
    parser.add_argument("--write-docs", action="store_true", help=f"put the tables into {PAGE.name}")
    parser.add_argument("--data-dir", type=Path, help="scratch folder on the disk to measure (default: bench/results)")


def run(
    name: str,
    options: argparse.Namespace,
    collect: Callable[[Path], R],
    *,
    grids: Callable[[R], Sequence[Grid]],
    targets: Callable[[R], Sequence[Target]],
    page: Callable[[R], str],
    partial: bool = False,
) -> int:
    """Measure, show, write; 1 where a target was missed or a part could not be measured, so that a script can tell."""
    if options.write_docs and (options.quick or partial):
        say("--write-docs needs a full run: the numbers of a quick one are rough")
        return 2
    RESULTS.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=options.data_dir or RESULTS)).resolve()
    try:
        result = collect(scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    data = msgspec.json.format(msgspec.json.encode(result), indent=2)
    for path in [RESULTS / f"{name}.json", *([options.json] if options.json else [])]:
        path.write_bytes(data)
    show(grids(result), Console())
    if options.write_docs:
        write_section(PAGE, name, page(result))
        say(f"wrote {PAGE.name}")
    return 0 if not result.absent and all(one.met is not False for one in targets(result)) else 1
