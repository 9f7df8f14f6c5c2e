"""Code-point order from servers that list in the order of a directory tree.

S3 lists keys in code-point order. Stores built on a file tree (SeaweedFS, some gateways) list `a/x` before `a-b`, since
to them `a` is an entry that comes first. Pages of such a listing cannot be put right afterwards: what belongs into the
first page may be in the last. So the tree is walked level by level, as on a local disk, and a directory is held back
until every sibling that sorts before `name/` was seen. It is right on any server; the price is a request per directory
that is entered, and a few more for the place where the listing starts.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from tarnlog_server.ports.object_store import ObjectInfo

Level = Callable[[str, str | None], AsyncGenerator[ObjectInfo | str, None]]
"""One level of the tree: for a prefix and the key to start after, objects and directories (`a/b/`), ordered by name.

It may or may not give directories whose name is the beginning of the start: the walk looks for those itself.
"""


async def page(level: Level, prefix: str, start_after: str | None, limit: int) -> list[ObjectInfo]:
    """Up to `limit` objects in code-point order of their keys."""
    found: list[ObjectInfo] = []
    if limit <= 0:
        return found
    async with aclosing(_walk(level, prefix, start_after or "")) as objects:
        async for info in objects:
            found.append(info)
            if len(found) == limit:
                break
    return found


async def _walk(level: Level, prefix: str, start: str) -> AsyncGenerator[ObjectInfo, None]:
    after, held = _entry_point(prefix, start)
    seen = set(held)
    heapq.heapify(held)
    async with aclosing(level(prefix, after)) as entries:
        async for entry in entries:
            name = entry.rstrip("/") if isinstance(entry, str) else entry.key
            while held and held[0] < name:
                async for info in _walk(level, heapq.heappop(held), start):
                    yield info
            if isinstance(entry, ObjectInfo):
                if entry.key > start:
                    yield entry
            elif entry not in seen and start[: len(entry)] <= entry:
                seen.add(entry)
                heapq.heappush(held, entry)
    while held:
        async for info in _walk(level, heapq.heappop(held), start):
            yield info


def _entry_point(prefix: str, start: str) -> tuple[str | None, list[str]]:
    """Where a level begins, and the directories before that place, in a tree's order, whose keys sort after `start`."""
    if not start.startswith(prefix):
        return None, []  # wholly after the start (what is wholly before it is never entered)
    slash = start.find("/", len(prefix))
    name = start if slash < 0 else start[:slash]
    ends = [i for i in range(len(prefix), len(name)) if name[i] < "/"] + [len(name)]
    # After `a-b.json` come the keys in the directories `a`, `a-b` and, should there be one, `a-b.json`.
    folders = [f"{name[:i]}/" for i in ends if name[:i].rpartition("/")[2] not in ("", ".", "..")]
    return name or None, folders
