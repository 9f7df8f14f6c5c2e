"""`python -m bench commit`: the commit benchmark, tarnlog and its peers in the same run."""

from __future__ import annotations

import argparse
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

from bench import frame
from bench.commit_report import CommitResult, grids, targets
from bench.commit_runs import Bench, Size, announce
from bench.peer_runs import PEERS, PeerError, Postgres, postgres, run_peer
from bench.progress import say
from bench.report import facts, markdown
from bench.samples import Measure, measure, median_of
from bench.servers import ServerError

WORK = (("W1", 1, 1), ("W1", 8, 1), ("W1", 32, 1), ("W2", 32, 32))
QUICK = Size(seconds=1.5, rounds=1, versions=500, files=5_000)
FULL = Size(seconds=5.0, rounds=3, versions=20_000, files=200_000)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    frame.add_common_arguments(
        parser,
        rounds="measurements of each kind, the median is shown (3, quick: 1)",
        quick="a short smoke run; its numbers are rough",
    )
    parser.add_argument("--seconds", type=float, help="length of one measurement (5, quick: 1.5)")
    parser.add_argument("--only-peers", action="store_true", help="leave tarnlog and the no-op reference out")


def run(options: argparse.Namespace) -> int:
    """Measure, show, write; the exit code."""
    base = QUICK if options.quick else FULL
    size = Size(options.seconds or base.seconds, options.rounds or base.rounds, base.versions, base.files)
    return frame.run(
        "commit", options, lambda scratch: collect(options, size, scratch), grids=grids, targets=targets, page=page
    )


def collect(options: argparse.Namespace, size: Size, scratch: Path) -> CommitResult:
    """Run every part that was asked for; a part that cannot run is named with the reason, never left out silently."""
    measures: list[Measure] = []
    absent: dict[str, str] = {}
    found: dict[str, str] = {}
    bench, slow, growth = Bench(scratch, size), None, []
    if not options.only_peers:
        try:
            measures += bench.hot_and_many()
            slow = bench.slow_storage()
            growth = bench.growth()
        except ServerError as error:
            absent["tarnlog"] = str(error).splitlines()[-1]
            say(f"tarnlog: {error}")
            if not measures:  # the reference is worth knowing without the service too
                measures += [median_of([one]) for writers in (1, 8, 32) for one in bench.reference(writers)]
    if options.peers or options.only_peers:
        measures += measure_peers(size, scratch, found, absent)
    return CommitResult(
        facts=facts(found), seconds=size.seconds, rounds=size.rounds, measures=measures, slow=slow, growth=growth,
        checked=bench.checked, absent=absent,
    )  # fmt: skip


def measure_peers(size: Size, scratch: Path, found: dict[str, str], absent: dict[str, str]) -> list[Measure]:
    """W1 and W2 of every peer, the rounds interleaved so that a slow spell of the machine hits all of them."""
    rounds: dict[tuple[str, str, int], list[Measure]] = defaultdict(list)
    with ExitStack() as stack:
        server: Postgres | None = None
        try:
            server = stack.enter_context(postgres(scratch / "pg"))
            found["PostgreSQL"] = server.version
        except PeerError as error:
            say(str(error))
        for turn in range(size.rounds):
            for work, writers, tables in WORK:
                for peer in PEERS:
                    if peer.name in absent:
                        continue
                    try:
                        sample = run_peer(peer, server, scratch / peer.module, writers, tables, size.seconds)
                    except PeerError as error:
                        absent[peer.name] = f"{work}, {writers} writers: {error}"
                        say(f"{peer.name}: {error}")
                        continue
                    found.update(sample.versions)
                    one = measure(peer.name, work, writers, tables, sample)
                    rounds[peer.name, work, writers].append(one)
                    announce(one, turn)
    return [median_of(ones) for ones in rounds.values()]


def page(result: CommitResult) -> str:
    """The part of docs/benchmarks.md that this benchmark writes."""
    versions = ", ".join(f"{name} {value}" for name, value in result.facts.items() if name not in ("date", "machine"))
    lines = [
        "## Commits",
        "",
        f"`./dev bench commit`, {result.facts['date']}: {result.facts['machine']}. {versions}.",
        f"Each measurement ran {result.seconds:g} s; of {result.rounds} rounds the median is shown.",
        "",
    ]
    return "\n".join(lines) + "\n" + "\n".join(markdown(grid) for grid in grids(result))
