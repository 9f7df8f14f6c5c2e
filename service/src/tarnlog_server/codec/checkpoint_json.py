"""JSON checkpoints, written: NDJSON of wrapped actions, in one object or in parts.

Every reader of the format takes the actions; ours also takes the leading `commitInfo` line, which others ignore. It
holds the checksum, the facts that are no action, and for each file line the version and time that wrote it. In a
checkpoint of parts each part has such a line, and the first one the facts. A manifest, written last, names the parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from tarnlog.protocol.action_json import encode_action
from tarnlog_server.codec import checkpoint_order
from tarnlog_server.codec.checkpoint_parts import CheckpointInfo, EncodedCheckpoint, PartsManifest
from tarnlog_server.codec.sealed_lines import UNSEALED, seal
from tarnlog_server.codec.side_facts import side_facts
from tarnlog_server.codec.table_state import StateFacts, StateFile

_GZIP_BYTES = 64
"""What framed gzip may add to a text that cannot be compressed, besides a thousandth."""


class _Line(Struct, frozen=True, kw_only=True, rename="camel"):
    """The rest of the leading line behind its checksum."""

    timestamp: int
    checkpoint: CheckpointInfo


def encode_checkpoint(facts: StateFacts, files: Iterable[StateFile], *, compress: bool) -> EncodedCheckpoint:
    """A whole state in one object. `files` are sorted by path."""
    part = _Part(facts, 1, None)
    for line in _lines(facts, files):
        part.take(line)
    return part.encode(last=True, compress=compress)


def encode_checkpoint_parts(
    facts: StateFacts,
    files: Iterable[StateFile],
    *,
    checkpoint_id: str,
    actions_per_part: int,
    compress: bool,
    max_file_size: int = 128 * 1024 * 1024,
) -> Iterator[EncodedCheckpoint]:
    """The parts of a state, in order; holds the bytes of one at a time. `files` are sorted by path.

    A part has at most `actions_per_part` actions and `max_file_size` bytes, counted before compression: what is
    written is never larger. Two things are not divided: an action, and the facts of the table in the first part.
    """
    lines = _lines(facts, files)
    line = next(lines, None)
    limit = max_file_size - max_file_size // 1024 - _GZIP_BYTES
    for number in itertools.count(1):
        part = _Part(facts, number, checkpoint_id)
        while line is not None and (
            not part.lines or (len(part.lines) < actions_per_part and part.size + line.size <= limit)
        ):
            part.take(line)
            line = next(lines, None)
        yield part.encode(last=line is None, compress=compress)
        if line is None:
            return


def encode_parts_manifest(version: int, checkpoint_id: str, parts: Sequence[str], created_time: int) -> bytes:
    """The manifest of a checkpoint in parts: never compressed, one line, and nothing in it but what everybody knows."""
    manifest = PartsManifest(
        version=version, checkpoint_id=checkpoint_id, parts=tuple(parts), created_time=created_time
    )
    return msgspec.json.encode(manifest)


class _FileLine(Struct, frozen=True, gc=False):
    """The line of an action; of a file also the version and time that the leading line gets."""

    text: bytes
    stamp: tuple[int, int] | None = None

    @property
    def size(self) -> int:
        """The bytes that it takes, those in the leading line included."""
        return len(self.text) + 1 + (0 if self.stamp is None else len(f"{self.stamp[0]},{self.stamp[1]},"))


def _lines(facts: StateFacts, files: Iterable[StateFile]) -> Iterator[_FileLine]:
    for action in checkpoint_order.head(facts):
        yield _FileLine(encode_action(action))
    for item in checkpoint_order.tail(facts, files):
        if isinstance(item, StateFile):
            yield _FileLine(encode_action(item.add), (item.added_at_version, item.added_at_timestamp))
        else:
            yield _FileLine(encode_action(item.remove), (item.version, item.deletion_timestamp))


class _Part:
    """The lines of one object, and what its leading line says about them."""

    def __init__(self, facts: StateFacts, number: int, set_id: str | None) -> None:
        self.lines: list[bytes] = []
        self._facts = facts
        self._info = CheckpointInfo(
            version=facts.version, part=number, set_id=set_id, facts=side_facts(facts) if number == 1 else None
        )
        self._versions: list[int] = []
        self._times: list[int] = []
        self.size = len(self._leading(last=True)) + len(b',"versions":[],"times":[]\n')
        """Bytes so far, before compression."""

    def take(self, line: _FileLine) -> None:
        self.lines.append(line.text)
        self.size += line.size
        if line.stamp is not None:
            self._versions.append(line.stamp[0])
            self._times.append(line.stamp[1])

    def encode(self, *, last: bool, compress: bool) -> EncodedCheckpoint:
        data = seal(b"\n".join([self._leading(last=last), *self.lines, b""]), compress=compress)
        return EncodedCheckpoint(data, self._info.part, len(self.lines), last)

    def _leading(self, *, last: bool) -> bytes:
        info = msgspec.structs.replace(self._info, last=last, versions=self._versions, times=self._times)
        rest = msgspec.json.encode(_Line(timestamp=self._facts.timestamp, checkpoint=info))
        return UNSEALED + b'",' + rest[1:] + b"}"
