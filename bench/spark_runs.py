"""The pieces of work of the Spark benchmark: each system in a child process with a Spark of its own."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from bench.peer_runs import ROOT, PeerError, python_of
from bench.plan_layout import expected, filters
from bench.plan_runs import build
from bench.progress import say
from bench.quiet import busy_share
from bench.servers import tarnlog
from bench.spark_data import Sizes
from tarnlog_spark._writing import STORED

ROWS = 1_000
WRITERS = 8
PEERS = ("delta", "iceberg")
_BUILDERS = {
    "delta": "from bench.peers.delta_plan import build; build({folder!r} + '/plan', {files})",
    "iceberg": "from bench.peers.iceberg_plan import build; build({folder!r}, {files})",
}


class SparkSize(msgspec.Struct, frozen=True, kw_only=True):
    """How far to go."""

    race: Sizes
    appends: int
    each: int
    """Appends of each of the writers that work at the same time."""
    planned: int
    """Files of the table that is planned."""


class Raced(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of every round, tarnlog and plain Parquet by turns."""

    own: list[float]
    native: list[float]


class Overhead(msgspec.Struct, frozen=True):
    """Seconds of a whole job, and of what tarnlog adds to it."""

    plan: float
    commit: float
    job: float


class Warm(msgspec.Struct, frozen=True):
    """A plan on a table that is open: asked once, then again and again. `found` is None where the system does not tell
    its files."""

    once_ms: float
    warm_ms: float
    found: int | None


class Planned(msgspec.Struct, frozen=True):
    """Planning a table of very many files."""

    first_ms: float
    plans: dict[str, Warm]


class Tables(msgspec.Struct, frozen=True, kw_only=True):
    """What every table format was asked for."""

    system: str
    small: list[float]
    concurrent: float
    failed: int
    planned: Planned | None = None

    def per_second(self, appends: int) -> float:
        """Appends of all writers that landed, a second."""
        return (appends - self.failed) / self.concurrent


class SparkBench:
    """Measures below a scratch folder."""

    def __init__(self, scratch: Path, size: SparkSize) -> None:
        self._scratch = scratch
        self._size = size
        self.busy: list[float] = []
        self.versions: dict[str, str] = {}

    def race(self) -> tuple[dict[str, Raced], Overhead]:
        """tarnlog beside plain Parquet."""
        say("beside plain Parquet: scans, many files, writes")
        native = self._scratch / "native"
        native.mkdir()
        with tarnlog(self._scratch, "race") as running:
            setting = {"work": "race", "url": f"http://127.0.0.1:{running.port}", "folder": str(native)}
            setting |= {"sizes": msgspec.to_builtins(self._size.race)}
            answer = self._child(Path(sys.executable), "bench.spark_child", setting)
        return msgspec.convert(answer["raced"], dict[str, Raced]), msgspec.convert(answer["overhead"], Overhead)

    def tarnlog(self) -> Tables:
        """Appends and plans of tarnlog."""
        say(f"tarnlog: a table of {self._size.planned:,} entries, then appends and plans")
        folder = self._scratch / "tables"
        folder.mkdir()
        # As files are tagged that Spark writes, so that its own reader scans them.
        asyncio.run(build(folder, self._size.planned, dict(STORED)))
        with tarnlog(self._scratch, folder.name) as running:
            setting = {"work": "tables", "url": f"http://127.0.0.1:{running.port}"}
            answer = self._child(Path(sys.executable), "bench.spark_child", self._asked() | setting)
        return self._tables("tarnlog", answer)

    def peer(self, system: str) -> Tables:
        """The same of a peer in its own Spark. Raises PeerError."""
        say(f"{system}: a table of {self._size.planned:,} entries, then appends and plans")
        folder = self._scratch / system
        folder.mkdir()
        code = _BUILDERS[system].format(folder=str(folder), files=self._size.planned)
        _run([str(python_of("lake")), "-c", code], PeerError)
        setting = {"system": system, "folder": str(folder)}
        python = python_of(f"{system}-spark")
        return self._tables(system, self._child(python, "bench.peers.spark_tables", self._asked() | setting, PeerError))

    def _asked(self) -> dict[str, Any]:
        known = filters(self._size.planned)
        # A filter goes first: the first plan of a table is one that users make.
        plans = {name: known[name] for name in ("range 0.1 %", "partition", "everything")}
        return {"rows": ROWS, "appends": self._size.appends, "writers": WRITERS, "each": self._size.each} | {
            "plans": plans
        }

    def _child(
        self, python: Path, module: str, setting: dict[str, Any], failure: Callable[[str], Exception] = RuntimeError
    ) -> dict[str, Any]:
        self.busy.append(busy_share())
        answer: dict[str, Any] = json.loads(_run([str(python), "-m", module, json.dumps(setting)], failure))
        self.versions.update(answer["versions"])
        return answer

    def _tables(self, system: str, answer: dict[str, Any]) -> Tables:
        found = msgspec.convert({**answer, "system": system}, Tables)
        for name, one in found.planned.plans.items() if found.planned else ():
            wanted = expected(self._size.planned, name)
            if one.found is not None and one.found != wanted:
                raise RuntimeError(f"{system}: the plan {name!r} names {one.found} files where {wanted} can match")
        return found


def _run(command: list[str], failure: Callable[[str], Exception]) -> str:
    """The last line that a process printed; what it complained of last where it failed."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    except subprocess.TimeoutExpired as error:
        raise failure("it did not come to an end") from error
    if done.returncode != 0:
        raise failure((done.stderr.strip().splitlines() or ["no message"])[-1][:300])
    return (done.stdout.strip().splitlines() or [""])[-1]
