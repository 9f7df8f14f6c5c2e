"""The pieces of work of the open benchmark: histories, many files, a cold plan, a million files."""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from bench.open_tables import appended, checkpoint, forget_states, rolling, state_bytes
from bench.peer_runs import ROOT, PeerError, python_of
from bench.progress import say
from bench.quiet import busy_share

FORMATS = ("avro", "json", "parquet")
LIVE = 10
"""Live files of every history: what differs is how long it took to come to them."""


MOST_REPLAYS = 3
"""Replays of a long history, which take seconds each."""
OTHER_VERSIONS = 20
"""Versions of the table that a process opens before it is measured."""


class OpenSize(msgspec.Struct, frozen=True):
    """How far to go."""

    rounds: int
    histories: tuple[int, ...]
    files: int
    """Files of the table that is compared with deltalake's."""
    planned: int
    grown: int


class Opened(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Opening one table from one source, the median of cold processes."""

    system: str
    source: str
    versions: int
    files: int
    open_ms: float
    list_ms: float
    state_bytes: int = 0
    rounds: list[float] = []

    @property
    def total_ms(self) -> float:
        return self.open_ms + self.list_ms


class Planned(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A cold plan with a partition filter."""

    source: str
    files: int
    found: int
    plan_ms: float
    manifests: str


class Grown(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a large table costs to open and to write."""

    files: int
    open_ms: float
    incremental_ms: float
    open_peak_mb: float
    compact_s: float = 0.0
    write_peak_mb: float = 0.0


class OpenBench:
    """Makes tables below a scratch folder and measures them."""

    def __init__(self, scratch: Path, size: OpenSize) -> None:
        self._scratch = scratch
        self._size = size
        self.busy: list[float] = []

    def histories(self) -> list[Opened]:
        """Opening from every format and by replay, against the length of the history, for the same live files."""
        tables = {}
        for versions in self._size.histories:
            folder = self._folder(f"rolling-{versions}")
            say(f"making a history of {versions} versions")
            asyncio.run(rolling(folder, versions, LIVE))
            tables[versions] = folder
        return self._by_turns(tables, self._others())

    def _others(self) -> dict[str, str]:
        """By source, another table that each process opens from the like before it is measured."""
        found = {}
        for source in ("replay", *FORMATS):
            folder = self._folder(f"other-{source}")
            asyncio.run(rolling(folder, OTHER_VERSIONS, LIVE))
            if source != "replay":
                asyncio.run(checkpoint(folder, source))
            found[source] = str(folder)
        return found

    def many_files(self) -> list[Opened]:
        """As many files in as many versions (what deltalake opens too), and in ten."""
        tables = {}
        for versions in (10, self._size.files):
            folder = self._folder(f"appended-{versions}")
            say(f"making {self._size.files} files in {versions} versions")
            asyncio.run(appended(folder, versions, self._size.files))
            tables[versions] = folder
        return self._by_turns(tables)

    def deltalake(self, found: dict[str, str]) -> list[Opened]:
        """deltalake on the same number of versions and files. Raises PeerError."""
        versions, rounds = self._size.files, min(self._size.rounds, 3)
        setting = {"folder": str(self._folder("delta")), "versions": versions, "rounds": rounds}
        say(f"deltalake: {versions} versions")
        command = [str(python_of("lake")), "-m", "bench.peers.delta_open", json.dumps(setting)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PeerError((done.stderr.strip().splitlines() or ["no message"])[-1])
        answer = json.loads(done.stdout.splitlines()[-1])
        found.update(answer["versions"])
        return [
            Opened(
                system="deltalake",
                source={"json": "replay", "checkpoint": "parquet"}[source],
                versions=versions,
                files=answer[source][0][2],
                open_ms=statistics.median(one[0] for one in answer[source]),
                list_ms=statistics.median(one[1] for one in answer[source]),
                rounds=[round(one[0] + one[1], 2) for one in answer[source]],
            )
            for source in ("json", "checkpoint")
        ]

    def plans(self) -> list[Planned]:
        """A cold plan for one day of a year."""
        folder = self._folder("planned")
        say(f"making {self._size.planned} files to plan on")
        asyncio.run(appended(folder, 4, self._size.planned))
        found = []
        for form in FORMATS:
            forget_states(folder)
            asyncio.run(checkpoint(folder, form))
            runs = [self._child(work="plan", folder=str(folder)) for _ in range(self._size.rounds)]
            found.append(
                Planned(
                    source=form,
                    files=self._size.planned,
                    found=runs[0]["files"],
                    plan_ms=statistics.median(run["plan_ms"] for run in runs),
                    manifests=runs[0]["manifests"],
                )
            )
            say(f"plan from {form}: {found[-1].plan_ms:.0f} ms")
        return found

    def growth(self) -> list[Grown]:
        """Ten new files on a small and on a large table, and the memory of the large one."""
        found = []
        for files in (10_000, self._size.grown):
            folder = self._folder(f"grown-{files}")
            say(f"making a table of {files} files")
            asyncio.run(appended(folder, max(1, files // 50_000), files))
            asyncio.run(checkpoint(folder, "avro"))
            run = self._child(work="grow", folder=str(folder), compact=files == self._size.grown)
            found.append(Grown(**{**run, "files": files}))
            say(f"{files} files: open {found[-1].open_ms:.0f} ms, incremental state {found[-1].incremental_ms:.0f} ms")
        return found

    def _by_turns(self, tables: dict[int, Path], others: dict[str, str] | None = None) -> list[Opened]:
        """Each table, by its versions, from each source: a copy for each, and all of them once in every turn.

        So what the machine does meanwhile hits all alike, which are then compared with each other.
        """
        folders = {}
        for versions, folder in tables.items():
            folders[versions, "replay"] = folder
            folders |= {(versions, form): self._with_state(folder, form) for form in FORMATS}
        runs: dict[tuple[int, str], list[dict[str, Any]]] = {which: [] for which in folders}
        for turn in range(self._size.rounds):
            self.busy.append(busy_share())
            say(f"opening each table, turn {turn + 1} of {self._size.rounds}")
            for (versions, source), place in folders.items():
                if source != "replay" or versions < 1000 or turn < MOST_REPLAYS:
                    warm = None if others is None else others[source]
                    runs[versions, source].append(self._child(work="open", folder=str(place), warm=warm))
        return [self._opened(*which, found, folders[which]) for which, found in runs.items()]

    def _with_state(self, folder: Path, form: str) -> Path:
        copy = folder.with_name(f"{folder.name}-{form}")
        shutil.copytree(folder, copy)
        asyncio.run(checkpoint(copy, form))
        return copy

    def _opened(self, versions: int, source: str, runs: list[dict[str, Any]], folder: Path) -> Opened:
        names = {"avro-state": "avro"}
        if any(names.get(run["source"], run["source"]) != source or run["version"] != versions for run in runs):
            raise RuntimeError(f"asked for {source} at version {versions}, but the table was opened as {runs[0]}")
        one = Opened(
            system="tarnlog",
            source=source,
            versions=versions,
            files=runs[0]["files"],
            open_ms=statistics.median(run["open_ms"] for run in runs),
            list_ms=statistics.median(run["list_ms"] for run in runs),
            state_bytes=state_bytes(folder),
            rounds=[round(run["open_ms"], 2) for run in runs],
        )
        say(f"{versions} versions, {one.files} files from {source}: {one.open_ms:.1f} ms")
        return one

    def _child(self, **setting: Any) -> dict[str, Any]:
        command = [sys.executable, "-m", "bench.open_child", json.dumps(setting)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"a measurement failed: {done.stderr.strip().splitlines()[-1:]}")
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    def _folder(self, name: str) -> Path:
        folder = self._scratch / name
        folder.mkdir(parents=True)
        return folder
