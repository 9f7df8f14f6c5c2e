"""The few files of a small state as JSON, in the document that completes it: to open it, nothing else is decoded.

Its manifests or columns tell the same, to other readers and to states that build on them; an audit compares the two.
Only a whole list is told: of few files, short as text, and without a member that we do not know.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Raw

from tarnlog.protocol.action_json import unknown_fields
from tarnlog.protocol.actions import Add
from tarnlog_server.codec.side_facts import body
from tarnlog_server.codec.table_state import StateFile

FEW, FEW_BYTES = 100, 16 * 1024
"""Files and bytes up to which a list is told: as much as is decoded without a thread."""
NOT_TOLD = Raw(b"null")
_FILES = msgspec.json.Decoder(list[tuple[int, int, Add]] | None)


def tell(files: Iterable[StateFile], partition_columns: Sequence[str] = ()) -> Raw:
    """The files with the version and time that added each, or NOT_TOLD. Looks at FEW files and one more.

    Partition columns that a file does not mention are null, where the state tells no more of them than that.
    """
    some = list(itertools.islice(files, FEW + 1))
    if len(some) > FEW or any(unknown_fields(file.add) for file in some):
        return NOT_TOLD
    rows = [
        (file.added_at_version, file.added_at_timestamp, body(_completed(file.add, partition_columns))) for file in some
    ]
    text = msgspec.json.encode(rows)
    return Raw(text) if len(text) <= FEW_BYTES else NOT_TOLD


def told(text: Raw) -> list[StateFile] | None:
    """The files that `tell` told; None for NOT_TOLD, and for a list with something in it that only later versions know.

    Only for a document whose checksum is right: so what cannot be decoded is not damage.
    """
    try:
        rows = _FILES.decode(text)
    except msgspec.ValidationError:
        return None
    return None if rows is None else [StateFile(add, version, time) for version, time, add in rows]


def same_files(left: Iterable[StateFile], right: Iterable[StateFile]) -> bool:
    """Whether two lists, in whatever order, are of the same files."""
    return sorted(left, key=_place) == sorted(right, key=_place)


def _place(file: StateFile) -> tuple[int, str]:
    return file.added_at_version, file.add.path


def _completed(add: Add, partition_columns: Sequence[str]) -> Add:
    if len(add.partition_values) >= len(partition_columns):
        return add
    return msgspec.structs.replace(add, partition_values=dict.fromkeys(partition_columns) | add.partition_values)
