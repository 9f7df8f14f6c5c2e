"""Log lines on their way out: those of one turn of the event loop go in one write.

Everyone in a version is answered in the same turn, and each answer has an audit line: a write for each would be a call
into the system for each. What is urgent does not wait, nor does what is said outside of a loop.
"""

from __future__ import annotations

import asyncio
import atexit
from typing import Any, TextIO


class TurnLines:
    """A logger for structlog; one for the whole process."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._held: list[str] = []
        self._turn: asyncio.AbstractEventLoop | None = None
        """The loop that will write what is held."""
        atexit.register(self.flush)

    def msg(self, line: str) -> None:
        """Write at the end of this turn, or at once where there is none."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._write(line)
            return
        self._held.append(line)
        if self._turn is not loop:
            self._turn = loop
            loop.call_soon(self.flush)

    def now(self, line: str) -> None:
        """Write at once; on a loop, after what is held. Other threads leave alone what the loop's holds."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._write(line)
            return
        self._held.append(line)
        self.flush()

    def flush(self) -> None:
        """Write what is held."""
        self._turn = None
        held, self._held = self._held, []
        if held:
            self._write("\n".join(held))

    def _write(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()

    log = debug = info = msg
    warn = warning = error = err = critical = fatal = exception = failure = now


class TurnLinesFactory:
    """Gives everyone the same logger, so that lines keep their order."""

    def __init__(self, stream: TextIO) -> None:
        self._lines = TurnLines(stream)

    def __call__(self, *_: Any) -> TurnLines:
        return self._lines
