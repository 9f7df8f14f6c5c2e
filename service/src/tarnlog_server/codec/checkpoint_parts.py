"""A checkpoint as the parts it is stored in, JSON or Parquet, and how they become one state again.

Each object of ours says which part of which checkpoint it is; the last one says that too. So a part that is missing,
doubled, or left over from another try is noticed before any of it is believed.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from msgspec import Struct

from tarnlog.protocol.actions import Action, Add, MetaData, Protocol, Remove, Txn
from tarnlog_server.codec.damage import names_object
from tarnlog_server.codec.file_columns import FileColumns
from tarnlog_server.codec.foreign_checkpoint import replay_foreign
from tarnlog_server.codec.side_facts import SideFacts, with_side_facts
from tarnlog_server.codec.table_state import LaterRemoves, State, StateFile, StateRemove
from tarnlog_server.codec.version_file import CorruptObject


class CheckpointInfo(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Ours, inside commitInfo. Parallel to the file lines: `versions` and `times`.

    A member must not be called `checkpointId`: readers in the field take a first line with that word for a manifest.
    """

    version: int
    part: int = 1
    last: bool = False
    set_id: str | None = None
    facts: SideFacts | None = None
    versions: list[int] = []
    times: list[int] = []


class PartsManifest(Struct, frozen=True, kw_only=True, rename="camel"):
    """Completes a checkpoint in parts: `parts` are their names inside the log, in order."""

    version: int
    checkpoint_id: str
    parts: tuple[str, ...]
    created_time: int = 0
    format: str = "json"


class EncodedCheckpoint(Struct, frozen=True):
    """A checkpoint's object, or a part of it: `number` counts from 1, and one is the last."""

    data: bytes
    number: int
    actions: int
    last: bool


class CheckpointPart(Struct, frozen=True):
    """The decoded lines of one object. `info` None is another writer's.

    Many files of ours may be in `columns`, as entries for `FileColumns`, instead of among the actions. So may removes
    in `removes`, with what is told about them; `info` then tells about the files alone.
    """

    key: str
    info: CheckpointInfo | None
    actions: list[Action]
    columns: tuple[pa.RecordBatch, ...] = ()
    removes: LaterRemoves | None = None


def join_parts(key: str, version: int, manifest: PartsManifest | None, parts: Sequence[CheckpointPart]) -> State:
    """The state of all parts, in the manifest's order; `key` is the checkpoint's. CorruptObject names what is wrong."""
    if manifest is not None and len(manifest.parts) != len(parts):
        raise CorruptObject(key, f"it names {len(manifest.parts)} parts, but {len(parts)} were read")
    if not parts:
        raise CorruptObject(key, "it names no part")
    if all(part.info is None for part in parts):
        with names_object(key, "it"):
            return replay_foreign(key, version, [action for part in parts for action in part.actions])
    expected = manifest.checkpoint_id if manifest is not None else None
    for number, part in enumerate(parts, start=1):
        info = part.info
        if info is None or (info.version, info.part, info.set_id) != (version, number, expected):
            raise CorruptObject(part.key, f"it is not part {number} of the checkpoint of version {version}")
        if info.last != (number == len(parts)):
            raise CorruptObject(key, "a part of it is missing" if number == len(parts) else "it has too many parts")
    with names_object(key, "it"):
        return _join_ours(version, parts)


def _join_ours(version: int, parts: Sequence[CheckpointPart]) -> State:
    protocol: Protocol | None = None
    metadata: MetaData | None = None
    txns: list[Txn] = []
    files: list[StateFile] = []
    removes: list[StateRemove] = []
    for part in parts:
        assert part.info is not None  # join_parts checked it
        written = zip(part.info.versions, part.info.times, strict=True)
        for action in part.actions:
            if isinstance(action, Add):
                files.append(StateFile(action, *next(written)))
            elif isinstance(action, Remove):
                removes.append(StateRemove(action.path, *next(written), action))
            elif isinstance(action, Txn):
                txns.append(action)
            elif isinstance(action, MetaData):
                metadata = action
            elif isinstance(action, Protocol):
                protocol = action
        if next(written, None) is not None:
            raise CorruptObject(part.key, "it tells more versions than it has files")
    side = parts[0].info.facts if parts[0].info is not None else None
    if side is None or protocol is None:
        raise CorruptObject(parts[0].key, "its facts are missing")
    later = [part.removes for part in parts if part.removes is not None]
    if later:
        found = LaterRemoves(lambda: [*removes, *(one for some in later for one in some)])
        facts = with_side_facts(side, version, protocol, metadata, txns, found)
    else:
        facts = with_side_facts(side, version, protocol, metadata, txns, removes)
    batches = [batch for part in parts for batch in part.columns]
    if not batches:
        return State(facts, files, ours=True)
    columns = FileColumns.live(batches, {})
    return State(facts, [*columns, *files] if files else columns, ours=True)
