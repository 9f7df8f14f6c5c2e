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
from tarnlog.protocol.actions import Action
from tarnlog_server.codec import checkpoint_order
from tarnlog_server.codec.checkpoint_parts import CheckpointInfo, EncodedCheckpoint, PartsManifest
from tarnlog_server.codec.sealed_lines import UNSEALED, seal
from tarnlog_server.codec.side_facts import side_facts
from tarnlog_server.codec.table_state import StateFacts, StateFile, StateRemove


class _Line(Struct, frozen=True, kw_only=True, rename="camel"):
    """The rest of the leading line behind its checksum."""

    timestamp: int
    checkpoint: CheckpointInfo


def encode_checkpoint(facts: StateFacts, files: Iterable[StateFile], *, compress: bool) -> EncodedCheckpoint:
    """A whole state in one object. `files` are sorted by path."""
    lines = _Lines(checkpoint_order.head(facts), checkpoint_order.tail(facts, files))
    return lines.encode(facts, number=1, last=True, set_id=None, compress=compress)


def encode_checkpoint_parts(
    facts: StateFacts,
    files: Iterable[StateFile],
    *,
    checkpoint_id: str,
    actions_per_part: int,
    compress: bool,
) -> Iterator[EncodedCheckpoint]:
    """The parts of a state, in order; holds the bytes of one at a time. `files` are sorted by path."""
    head = checkpoint_order.head(facts)
    rest = checkpoint_order.tail(facts, files)
    lines = _Lines(head, itertools.islice(rest, max(1, actions_per_part - len(head))))
    for number in itertools.count(1):
        following = next(rest, None)
        yield lines.encode(facts, number=number, last=following is None, set_id=checkpoint_id, compress=compress)
        if following is None:
            return
        lines = _Lines([], itertools.chain([following], itertools.islice(rest, max(0, actions_per_part - 1))))


def encode_parts_manifest(version: int, checkpoint_id: str, parts: Sequence[str], created_time: int) -> bytes:
    """The manifest of a checkpoint in parts: never compressed, one line, and nothing in it but what everybody knows."""
    manifest = PartsManifest(
        version=version, checkpoint_id=checkpoint_id, parts=tuple(parts), created_time=created_time
    )
    return msgspec.json.encode(manifest)


class _Lines:
    """The action lines of one object, and what its leading line says about them."""

    def __init__(self, head: Iterable[Action], items: Iterable[StateFile | StateRemove]) -> None:
        self.lines = [encode_action(action) for action in head]
        self.versions: list[int] = []
        self.times: list[int] = []
        for item in items:
            if isinstance(item, StateFile):
                self.lines.append(encode_action(item.add))
                self.versions.append(item.added_at_version)
                self.times.append(item.added_at_timestamp)
            else:
                self.lines.append(encode_action(item.remove))
                self.versions.append(item.version)
                self.times.append(item.deletion_timestamp)

    def encode(
        self, facts: StateFacts, *, number: int, last: bool, set_id: str | None, compress: bool
    ) -> EncodedCheckpoint:
        info = CheckpointInfo(
            version=facts.version,
            part=number,
            last=last,
            set_id=set_id,
            facts=side_facts(facts) if number == 1 else None,
            versions=self.versions,
            times=self.times,
        )
        rest = msgspec.json.encode(_Line(timestamp=facts.timestamp, checkpoint=info))
        first = UNSEALED + b'",' + rest[1:] + b"}"
        data = seal(b"\n".join([first, *self.lines, b""]), compress=compress)
        return EncodedCheckpoint(data, number, len(self.lines), last)
