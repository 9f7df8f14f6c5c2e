"""The order of a checkpoint: protocol, metaData, txns, then live files and unexpired removes by path.

Files come sorted, because a million of them are not sorted twice; removes are few and are sorted here. In a checkpoint
nothing changes data, so `dataChange` is false.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

import msgspec

from tarnlog.protocol.actions import Action
from tarnlog_server.codec.table_state import StateFacts, StateFile, StateRemove


def head(facts: StateFacts) -> list[Action]:
    """The actions before the files."""
    actions: list[Action] = [facts.protocol]
    if facts.metadata is not None:
        actions.append(facts.metadata)
    actions.extend(txn for txn, _ in facts.txns)
    return actions


def count_actions(facts: StateFacts, num_files: int) -> int:
    """How many actions the checkpoint holds: what decides on parts, and `_last_checkpoint.size`."""
    return len(head(facts)) + len(facts.removes) + num_files


def tail(facts: StateFacts, files: Iterable[StateFile]) -> Iterator[StateFile | StateRemove]:
    """Files and removes by path; ValueError when the files are not sorted by it."""
    removes = sorted(facts.removes, key=_path)
    return heapq.merge(map(unchanged, _in_order(files)), map(_unchanged_remove, removes), key=_path)


def _path(item: StateFile | StateRemove) -> str:
    return item.add.path if isinstance(item, StateFile) else item.path


def _in_order(files: Iterable[StateFile]) -> Iterator[StateFile]:
    previous = ""
    for file in files:
        if file.add.path < previous:
            raise ValueError(f"a checkpoint's files come sorted by path, but {file.add.path!r} follows {previous!r}")
        previous = file.add.path
        yield file


def unchanged(file: StateFile) -> StateFile:
    """A file as a checkpoint has it."""
    if not file.add.data_change:
        return file
    add = msgspec.structs.replace(file.add, data_change=False)
    return StateFile(add, file.added_at_version, file.added_at_timestamp)


def _unchanged_remove(item: StateRemove) -> StateFile | StateRemove:
    if not item.remove.data_change:
        return item
    remove = msgspec.structs.replace(item.remove, data_change=False)
    return StateRemove(item.path, item.version, item.deletion_timestamp, remove)
