"""The pieces of work of the Spark benchmark: tarnlog beside plain Parquet, and all systems by turns."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bench.peer_runs import ROOT, PeerError, python_of
from bench.plan_runs import build
from bench.progress import say
from bench.quiet import busy_share
from bench.servers import tarnlog
from bench.spark_children import TIMEOUT, Child, Turns
from bench.spark_results import Overhead, Raced, SparkSize, Tables
from bench.spark_rounds import SETTLE, measured
from tarnlog_spark._writing import STORED

RACE_TIMEOUT = 2 * TIMEOUT
"""Seconds for everything beside plain Parquet: it is one process with one answer."""
_BUILDERS = {
    "delta": "from bench.peers.delta_plan import build; build({folder!r} + '/plan', {files})",
    "iceberg": "from bench.peers.iceberg_plan import build; build({folder!r}, {files})",
}


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
            self._look_around()
            command = [sys.executable, "-m", "bench.spark_child", json.dumps(setting)]
            answer = json.loads(_run(command, RuntimeError, RACE_TIMEOUT))
        self.versions.update(answer["versions"])
        return msgspec.convert(answer["raced"], dict[str, Raced]), msgspec.convert(answer["overhead"], Overhead)

    def tables(self, peers: Sequence[str]) -> tuple[list[Tables], dict[str, str]]:
        """Appends and plans of tarnlog and its peers by turns; and the peers that could not be measured, with why."""
        absent: dict[str, str] = {}
        with contextlib.ExitStack() as stack:
            turns = Turns()
            self._join_tarnlog(turns, stack)
            for peer in peers:
                try:
                    self._join_peer(turns, peer)
                except PeerError as error:
                    absent[peer] = str(error)
            found = measured(turns, self._size, self._look_around)
        return found, absent | turns.absent

    def _join_tarnlog(self, turns: Turns, stack: contextlib.ExitStack) -> None:
        say(f"tarnlog: a table of {self._size.planned:,} entries")
        folder = self._scratch / "tables"
        folder.mkdir()
        # As files are tagged that Spark writes, so that its own reader scans them.
        asyncio.run(build(folder, self._size.planned, dict(STORED)))
        running = stack.enter_context(tarnlog(self._scratch, folder.name))
        stack.callback(turns.end)  # before the service is
        setting = {"work": "tables", "url": f"http://127.0.0.1:{running.port}"}
        self._join(turns, "tarnlog", Path(sys.executable), "bench.spark_child", setting, RuntimeError)

    def _join_peer(self, turns: Turns, system: str) -> None:
        say(f"{system}: a table of {self._size.planned:,} entries")
        folder = self._scratch / system
        folder.mkdir()
        code = _BUILDERS[system].format(folder=str(folder), files=self._size.planned)
        _run([str(python_of("lake")), "-c", code], PeerError, TIMEOUT)
        setting = {"system": system, "folder": str(folder)}
        self._join(turns, system, python_of(f"{system}-spark"), "bench.peers.spark_tables", setting, PeerError)

    def _join(
        self,
        turns: Turns,
        system: str,
        python: Path,
        module: str,
        setting: dict[str, str],
        failure: Callable[[str], Exception],
    ) -> None:
        command = [str(python), "-m", module, json.dumps(setting)]
        child = Child(command, self._scratch / f"{system}-child.log", failure)
        self.versions.update(turns.join(system, child)["versions"])

    def _look_around(self) -> None:
        """Was the machine ours, right before something is measured? What the part before left behind may end first."""
        time.sleep(SETTLE)
        self.busy.append(busy_share())


def _run(command: list[str], failure: Callable[[str], Exception], timeout: float) -> str:
    """The last line that a process printed; what it complained of last where it failed."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise failure("it did not come to an end") from error
    if done.returncode != 0:
        raise failure((done.stderr.strip().splitlines() or ["no message"])[-1][:300])
    return (done.stdout.strip().splitlines() or [""])[-1]
