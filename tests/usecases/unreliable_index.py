"""An index in memory that is down, hangs, or stops in the middle, as a test says."""

from __future__ import annotations

import asyncio
from typing import Any

from tarnlog_server.adapters.memory_index import MemoryIndex
from tarnlog_server.ports.index import IndexUnavailable


class UnreliableIndex(MemoryIndex):
    """Every call first meets what the test has in mind for it."""

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.hangs = False
        self.fail_next: set[str] = set()
        """Names of calls that fail once, before they did anything."""
        self.lose_next: set[str] = set()
        """Names of calls that fail once, after they did everything: the answer is lost."""
        self.calls: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or name == "close" or not asyncio.iscoroutinefunction(found):
            return found

        async def met(*arguments: Any) -> Any:
            self.calls.append(name)
            if self.hangs:
                await asyncio.Event().wait()
            if self.down or name in self.fail_next:
                self.fail_next.discard(name)
                raise IndexUnavailable("the test took it away")
            result = await found(*arguments)
            if name in self.lose_next:
                self.lose_next.discard(name)
                raise IndexUnavailable("the test took the answer away")
            return result

        return met
