"""A process that answers commands: JSON lines come in on stdin, one JSON line each goes out on stdout.

The first answer is that of the start, which nobody has to ask for. Whatever else writes to stdout (Spark, Ivy, a
library) lands on stderr, so it cannot break a line. The process ends when stdin does; if it is at work then, at once:
nobody waits for its answer. Standard library alone: the peers import it in their own environments.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

Verbs = Mapping[str, Callable[..., Any]]
_START = ""
"""In the place of a command. No command is empty: each ends with a line break."""


def serve(start: Callable[[], tuple[Any, Verbs]]) -> int:
    """Answer until stdin ends or a command fails; the exit code. `start` gives its own answer and what can be asked."""
    asked, answers = _own_streams()
    waiting: queue.Queue[str | None] = queue.Queue()
    waiting.put(_START)
    threading.Thread(target=_listen, args=(asked, waiting), daemon=True).start()
    verbs: Verbs = {}
    while (line := waiting.get()) is not None:
        try:
            if line == _START:
                answer, verbs = start()
            else:
                command = json.loads(line)
                answer = verbs[command.pop("do")](**command)
        except Exception as error:
            traceback.print_exc()
            _tell(answers, {"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]})
            return 1
        waiting.task_done()  # first: whoever has the answer may end this process, in order
        _tell(answers, {"answer": answer})
    return 0


def _own_streams() -> tuple[int, int]:
    """Where commands come from and answers go to, out of everybody else's reach."""
    asked, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return asked, answers


def _listen(asked: int, waiting: queue.Queue[str | None]) -> None:
    """By plain reads: a thread that waits inside a buffered one can make the interpreter's end fail."""
    rest = b""
    while piece := os.read(asked, 1 << 16):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            waiting.put(line.decode() + "\n")
    if waiting.unfinished_tasks:
        os._exit(1)
    waiting.put(None)


def _tell(answers: int, answer: dict[str, Any]) -> None:
    line = memoryview(json.dumps(answer).encode() + b"\n")
    while line:
        line = line[os.write(answers, line) :]
