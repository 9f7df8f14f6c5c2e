"""The facts of a state that are no action of the log's format, as one JSON object.

`_manifest.json` holds its members at the top, a JSON checkpoint in its leading commitInfo, a Parquet checkpoint in the
file's own metadata. Txns and removes are stored by each format in its way; what the format has no place for, such as
the version that wrote them, is told here in lists parallel to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from tarnlog.protocol.action_json import encode_action, from_object
from tarnlog.protocol.actions import Action, MetaData, Protocol, Skip, Txn
from tarnlog_server.codec.table_state import LaterRemoves, StateFacts, StateRemove

ActionT = TypeVar("ActionT", bound=Action)
_OBJECT = msgspec.json.Decoder(dict[str, Any])


class SideFacts(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """See the module. `skips` are the bodies of the actions."""

    timestamp: int
    put_id: str | None = None
    version_sha256: str | None = msgspec.field(default=None, name="versionSha256")
    truncation_length: int | None = None
    txn_versions: list[int] = []
    skips: list[Raw] = []
    dropped: bool = False
    adopted_from: int | None = None
    version_timestamps: list[tuple[int, int]] = []


def side_facts(facts: StateFacts) -> SideFacts:
    """The part of the facts that is told here; ValueError when the state could not be told to be ours."""
    if facts.version_sha256 is None:
        raise ValueError("a state names the SHA-256 of the version file that it describes: set version_sha256")
    return SideFacts(
        timestamp=facts.timestamp,
        put_id=facts.version_put_id,
        version_sha256=facts.version_sha256,
        truncation_length=facts.truncation_length,
        txn_versions=[version for _, version in facts.txns],
        skips=[body(skip) for skip in facts.skips],
        dropped=facts.dropped,
        adopted_from=facts.adopted_from,
        version_timestamps=list(facts.version_timestamps),
    )


def with_side_facts(
    side: SideFacts,
    version: int,
    protocol: Protocol,
    metadata: MetaData | None,
    txns: Sequence[Txn],
    removes: Sequence[StateRemove],
) -> StateFacts:
    """The facts put together again; ValueError when the parts do not belong to each other."""
    if len(side.txn_versions) != len(txns):
        raise ValueError(f"versions of {len(side.txn_versions)} txns are told, but {len(txns)} are there")
    return StateFacts(
        version=version,
        timestamp=side.timestamp,
        protocol=protocol,
        metadata=metadata,
        txns=tuple(zip(txns, side.txn_versions, strict=True)),
        skips=tuple(from_body(Skip, skip) for skip in side.skips),
        removes=removes if isinstance(removes, LaterRemoves) else tuple(removes),
        truncation_length=side.truncation_length,
        version_put_id=side.put_id,
        version_sha256=side.version_sha256,
        dropped=side.dropped,
        adopted_from=side.adopted_from,
        version_timestamps=tuple(side.version_timestamps),
    )


def body(action: Action) -> Raw:
    """An action's JSON without the wrapping in its type's name; unknown fields are in it."""
    line = encode_action(action)
    return Raw(line[line.index(b":") + 1 : -1])


def from_body(kind: type[ActionT], raw: Raw | bytes) -> ActionT:
    """An action from its JSON without wrapping, leniently."""
    return cast(ActionT, from_object(kind, _OBJECT.decode(raw)))
