"""Processes that wait for commands, each with a Spark of its own, and the turns that they take.

The machine's speed drifts within minutes. So all systems are up at the same time, and each is asked for a little before
the next one is: a ratio compares neighbours in time. Nothing outlives the benchmark: whoever makes a child ends it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from bench.peer_runs import ROOT, PeerError

TIMEOUT = 900.0
"""Seconds that one answer may take."""
GRACE = 20.0
"""Seconds that a child has to end its Spark before it is killed."""
_KILLED_AFTER = 3.0


class Child:
    """One process (see bench.peers.serving) and all that it starts; `failure` makes the error of what goes wrong."""

    def __init__(
        self, command: Sequence[str], log: Path, failure: Callable[[str], Exception], timeout: float = TIMEOUT
    ) -> None:
        self._log, self._failure, self._timeout = log, failure, timeout
        with log.open("wb") as out:
            # A group of its own: Ctrl-C reaches only this process, which ends the child and its Java together.
            self._process = subprocess.Popen(
                list(command),
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                start_new_session=True,
            )
        assert self._process.stdin
        assert self._process.stdout
        self._asked: IO[bytes] = self._process.stdin
        self._answers: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    def started(self) -> Any:
        """What it answers when it is up."""
        return self._answer()

    def ask(self, do: str, **setting: Any) -> Any:
        """The answer to one command."""
        # A child that is gone is noticed when its answer is missed, with what it complained of last.
        with contextlib.suppress(OSError):
            self._asked.write(json.dumps({"do": do, **setting}).encode() + b"\n")
            self._asked.flush()
        return self._answer()

    def end(self) -> None:
        """End it and everything that it started; in order if it waits for a command, by force if it does not go."""
        with contextlib.suppress(OSError):
            self._asked.close()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE)
        finally:
            self._kill_the_rest()

    def _kill_the_rest(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
            deadline = time.monotonic() + _KILLED_AFTER
            while time.monotonic() < deadline:
                self._process.poll()
                os.killpg(self._process.pid, 0)  # as long as there is somebody left
                time.sleep(0.05)
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _answer(self) -> Any:
        try:
            line = self._answers.get(timeout=self._timeout)
        except queue.Empty:
            raise self._failure(f"it did not answer within {self._timeout:g} s") from None
        if not line:
            self._answers.put(b"")  # for whoever asks again
            raise self._failure(self._last_words())
        answer = json.loads(line)
        if "error" in answer:
            raise self._failure(answer["error"])
        return answer["answer"]

    def _listen(self, answers: IO[bytes]) -> None:
        """Every line, then an empty one: the process answers no more."""
        for line in answers:
            self._answers.put(line)
        self._answers.put(b"")

    def _last_words(self) -> str:
        return (self._log.read_text(errors="replace").strip().splitlines() or ["it ended without a message"])[-1][:300]


def order(systems: Sequence[str], number: int) -> tuple[str, ...]:
    """Who goes when in a round: one order after the other, so that nobody always goes first."""
    every = list(itertools.permutations(systems))
    return every[number % len(every)]


class Turns:
    """Children that are asked for the same, one after the other. A peer that fails is out, with the reason."""

    def __init__(self) -> None:
        self._children: dict[str, Child] = {}
        self._rounds: Counter[str] = Counter()
        self.absent: dict[str, str] = {}

    @property
    def systems(self) -> list[str]:
        """Those that are measured, in the order in which they joined."""
        return list(self._children)

    def join(self, system: str, child: Child) -> Any:
        """Takes the child over, to its end; what it answered when it was up. Raises what it fails with."""
        self._children[system] = child
        try:
            return child.started()
        except PeerError:
            self._leave(system)
            raise

    def ask(self, do: str, **setting: Any) -> dict[str, Any]:
        """One round: the answers of those that answered. Each kind of command has an order that goes on by itself."""
        answers: dict[str, Any] = {}
        for system in order(self.systems, self._rounds[do]):
            try:
                answers[system] = self._children[system].ask(do, **setting)
            except PeerError as error:
                self.absent[system] = str(error)
                self._leave(system)
        self._rounds[do] += 1
        return answers

    def end(self) -> None:
        """End every child, whatever happens to the others."""
        with contextlib.ExitStack() as stack:
            for system in self.systems:
                stack.callback(self._leave, system)

    def _leave(self, system: str) -> None:
        self._children[system].end()
        del self._children[system]
