"""A child of the Spark benchmark without Spark: it answers as its peers do, and writes down what it was asked for.

`python -m tests.bench.turning NAME NOTES [fault]`: a line "NAME command" goes to the file NOTES for every command.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.peers.serving import serve
from bench.plan_layout import expected

PLANNED = 1_000
FILES = {"d": "partition", "x": "range 0.1 %"}
"""Which plan it is, by the first letter of its filter."""


class Fake:
    """A plan takes as many milliseconds as its table had commits."""

    def __init__(self, name: str, notes: Path, fault: str) -> None:
        self._name, self._notes, self._fault = name, notes, fault
        self._rows: dict[str, int] = {}
        self._commits = 0
        self._kept: tuple[str | None, int] = (None, 0)

    def verbs(self) -> dict[str, Callable[..., Any]]:
        names = ("create", "append", "check", "append_together", "check_together", "plan", "grow", "kept_files")
        every = (*names, "pid", "sleep", "fail", "leave", "chatter")
        return {name: self._noted(getattr(self, name)) for name in every}

    def _noted(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        def call(**setting: Any) -> Any:
            with self._notes.open("a") as notes:
                notes.write(f"{self._name} {verb.__name__}\n")
            return verb(**setting)

        return call

    def create(self, table: str) -> None:
        self._rows[table] = 0

    def append(self, table: str, count: int, rows: int) -> list[float]:
        self._rows[table] += count * rows
        return [0.5] * count

    def check(self, table: str, rows: int) -> None:
        if self._rows[table] != rows or (self._fault == "rows" and table == "small"):
            raise RuntimeError(f"{self._rows[table]} rows where {rows} were appended")

    def append_together(self, table: str, writers: int, each: int, rows: int) -> tuple[float, int]:
        self._rows[table] += (writers * each - 1) * rows
        return 2.0, 1

    def check_together(self, table: str, rows: int) -> None:
        assert self._rows[table] % rows == 0

    def plan(self, table: str, where: str | None, keep: bool = False) -> float:
        if keep:
            self._kept = (where, self._commits)
        return float(self._commits)

    def grow(self) -> None:
        self._commits += 1

    def kept_files(self) -> int:
        where, commits = self._kept
        name = FILES[where[0]] if where else "everything"
        return expected(PLANNED, name) + commits - (self._fault == "files")

    def pid(self) -> list[int]:
        """Of itself and of a process that it started."""
        return [os.getpid(), subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid]

    def sleep(self) -> None:
        time.sleep(600)

    def fail(self) -> None:
        raise ValueError("the disk\nis full")

    def leave(self) -> None:
        os.write(2, b"first\nkilled by something\n")
        os._exit(3)

    def chatter(self) -> str:
        """What Spark and its Java write to stdout, a line that looks like an answer among it."""
        print(json.dumps({"answer": "printed"}), end="", flush=True)
        subprocess.run([sys.executable, "-c", 'print(\'{"answer": "from below"}\')'], check=True)
        return sys.stdin.read() + "told"


def main(name: str, notes: str, fault: str = "") -> int:
    def start() -> tuple[Any, dict[str, Callable[..., Any]]]:
        if fault == "start":
            raise OSError("no jar")
        return {"versions": {name: "1"}}, Fake(name, Path(notes), fault).verbs()

    return serve(start)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
