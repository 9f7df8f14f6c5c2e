"""Version files: NDJSON, plain or compressed, `commitInfo` first.

Reads plain text, raw gzip, and gzip behind the two-byte frame `01 01`. Writes plain text below 4 KiB and framed gzip
above: every known reader takes both. Our files carry a CRC-32 of their own text at a fixed place, so that a flipped bit
is noticed even where the JSON still parses. Anything empty, cut off or unparsable is corruption and says so.
"""

from __future__ import annotations

import msgspec

from tarnlog.protocol.action_json import MalformedLine, decode_lines, encode_action
from tarnlog.protocol.actions import Action, CommitInfo
from tarnlog_server.codec.sealed_lines import NO_CRC, CorruptObject, check_seal, inflate, seal
from tarnlog_server.core.version_record import VersionRecord

__all__ = ["CorruptObject", "ErasedVersion", "decode", "encode", "encode_erased", "inflate", "put_id_of"]
ERASED = b'{"erased":'


class ErasedVersion(CorruptObject):
    """What an erase left in the slot of a version: its commit ids, and none of its actions.

    The slot stays taken, so that a replica that is behind cannot write into it, and a commit that is sent again is
    still recognised. A reader that meets it is behind the floor and has to open the log again; one that does not know
    of erasures takes it for a damaged file, and does the same.
    """

    def __init__(self, key: str, record: VersionRecord) -> None:
        super().__init__(key, "its content was erased: only versions from the floor on can be read")
        self.record = record


def encode(info: CommitInfo, lines: list[bytes], *, compress: bool) -> bytes:
    """The bytes of a version: its commitInfo, then the encoded action lines. Costs their size."""
    first = encode_action(msgspec.structs.replace(info, crc32=NO_CRC))
    return seal(b"\n".join([first, *(line for line in lines if line), b""]), compress=compress)


def encode_erased(record: VersionRecord, floor: int) -> bytes:
    """The bytes that replace a version below `floor`: who put it, and the ids of its commits.

    The counts of actions stay, although there are none: readers that do not know the second line notice that.
    """
    known = record.previous_put_id is not msgspec.UNSET
    subs = [msgspec.structs.replace(one, operation_parameters={}, operation_metrics={}) for one in record.sub_commits]
    info = CommitInfo(
        timestamp=record.timestamp,
        version=record.version if known else None,
        put_id=record.put_id,
        previous_put_id=record.previous_put_id if isinstance(record.previous_put_id, str) else None,
        sub_commits=tuple(subs),
        adopted_from=record.adopted_from,
    )
    return encode(info, [ERASED + b'{"floor":%d}}' % floor], compress=True)


def decode(key: str, version: int, data: bytes, modified_ms: int | None = None) -> VersionRecord:
    """A version from its bytes; CorruptObject names the object. `modified_ms` stands in for a missing timestamp.

    ErasedVersion, which is a CorruptObject, for what an erase left of it.
    """
    text = inflate(key, data)
    if not text.strip():
        raise CorruptObject(key, "it is empty")
    erased = check_seal(key, text) and text.partition(b"\n")[2].startswith(ERASED)
    try:
        decoded = decode_lines(text)
    except MalformedLine as error:
        raise CorruptObject(key, str(error)) from error
    except msgspec.MsgspecError as error:
        raise CorruptObject(key, str(error)) from error
    if not decoded:
        raise CorruptObject(key, "it holds no action")
    info = next((action for action in decoded if isinstance(action, CommitInfo)), None)
    actions = tuple(action for action in decoded if isinstance(action, Action))
    if info is not None and info.sub_commits and not erased:
        expected = sum(sub.action_count for sub in info.sub_commits if isinstance(sub.action_count, int))
        if expected != len(actions):
            raise CorruptObject(key, f"its commitInfo announces {expected} actions, but {len(actions)} are there")
    # A member of the same name in another writer's commitInfo means nothing here.
    numbered = info is not None and info.put_id is not None and info.version is not None
    if info is not None and numbered and info.version != version:
        raise CorruptObject(key, f"it is the file of version {info.version}, in the place of version {version}")
    timestamp = info.timestamp if info is not None and info.timestamp is not None else modified_ms
    record = VersionRecord(
        version=version,
        timestamp=timestamp if timestamp is not None else -1,
        put_id=info.put_id if info else None,
        sub_commits=info.sub_commits if info else (),
        actions=actions,
        adopted_from=info.adopted_from if info else None,
        previous_put_id=info.previous_put_id if info is not None and numbered else msgspec.UNSET,
    )
    if erased:
        raise ErasedVersion(key, record)
    return record


def put_id_of(key: str, data: bytes) -> str | None:
    """Whose object this is; None for other writers' files. Only looks at the first line."""
    text = inflate(key, data)
    first = text.split(b"\n", 1)[0]
    try:
        found = decode_lines(first)
    except MalformedLine:
        return None
    return next((action.put_id for action in found if isinstance(action, CommitInfo)), None)
