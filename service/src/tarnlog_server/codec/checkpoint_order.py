"""The order of a checkpoint: protocol, metaData, txns, then live files by path, then unexpired removes by path.

Files come sorted, because a million of them are not sorted twice; removes are few and are sorted here. They come last,
so that who opens a table finds at once where they begin and leaves them. Checkpoints of before have both in one order.
In a checkpoint nothing changes data, so `dataChange` is false.
"""

from __future__ import annotations

import itertools
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
    """Files, then removes, both by path; ValueError when the files are not sorted by it."""
    removes = sorted(facts.removes, key=lambda item: item.path)
    return itertools.chain(map(unchanged, _in_order(files)), map(_unchanged_remove, removes))


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


def _unchanged_remove(item: StateRemove) -> StateRemove:
    if not item.remove.data_change:
        return item
    remove = msgspec.structs.replace(item.remove, data_change=False)
    return StateRemove(item.path, item.version, item.deletion_timestamp, remove)
