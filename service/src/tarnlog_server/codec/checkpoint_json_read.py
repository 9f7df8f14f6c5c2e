"""JSON checkpoints, read: ours, those of others, and the oldest form, one object with lists of actions.

A single checkpoint and the manifest of one in parts have the same name; the content tells. Parts are decoded one by
one, in any order and in parallel, and then joined, which checks that none is missing or from another checkpoint.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from tarnlog.protocol.action_json import decode_lines, from_object
from tarnlog.protocol.actions import TYPES_BY_WIRE_NAME, Action, CommitInfo, MetaData, Remove
from tarnlog_server.codec.checkpoint_parts import CheckpointInfo, CheckpointPart, PartsManifest, join_parts
from tarnlog_server.codec.damage import names_object
from tarnlog_server.codec.sealed_lines import START, unseal
from tarnlog_server.codec.table_state import LaterRemoves, State, StateRemove
from tarnlog_server.codec.version_file import CorruptObject


class _CommitInfo(Struct, frozen=True):
    checkpoint: CheckpointInfo


class _FirstLine(Struct, frozen=True, rename="camel"):
    commit_info: _CommitInfo


_FIRST_LINE = msgspec.json.Decoder(_FirstLine)
_ANY = msgspec.json.Decoder()
_IS_MANIFEST = {"checkpointId", "parts"}
_NO_MANIFEST = (b"\x01", b"\x1f", START)
"""How what is compressed, and what is ours, begins."""
_ADD, _REMOVE = b'{"add":', b'{"remove":'
"""How we write the lines about which the first one tells more."""
_FEW_BYTES = 256 * 1024


def decode_checkpoint(key: str, version: int, data: bytes) -> State | PartsManifest:
    """The state in a checkpoint's object, or the manifest that names its parts; CorruptObject names the object."""
    manifest = None if data.startswith(_NO_MANIFEST) else _manifest(key, data)
    if manifest is None:
        return join_parts(key, version, None, [decode_part(key, data)])
    if manifest.version != version:
        raise CorruptObject(key, f"it describes version {manifest.version} in the place of {version}")
    return manifest


def decode_part(key: str, data: bytes) -> CheckpointPart:
    """The lines of one object: a single checkpoint or a part of one."""
    text, ours = unseal(key, data)
    with names_object(key, "it"):
        if not ours:
            return CheckpointPart(key, None, _actions_of_others(key, text))
        first, _, rest = text.partition(b"\n")
        info = _FIRST_LINE.decode(first).commit_info.checkpoint
        if len(rest) <= _FEW_BYTES:
            return _few_lines(key, info, rest)
        return CheckpointPart(key, info, _actions(rest))


def _few_lines(key: str, info: CheckpointInfo, text: bytes) -> CheckpointPart:
    """A part whose removes are left for later. It is taken line by line, which a large one is not worth."""
    at = 0 if text.startswith(_REMOVE) else text.find(b"\n" + _REMOVE) + 1
    if at == 0 and not text.startswith(_REMOVE):
        return CheckpointPart(key, info, _actions(text))
    removed = text[at:]
    if removed.count(b"\n") == removed.count(b"\n" + _REMOVE) + 1:
        return _removes_last(key, info, text[:at], removed)
    told = zip(info.versions, info.times, strict=True)
    later: list[tuple[bytes, tuple[int, int]]] = []
    others: list[bytes] = []
    files: list[tuple[int, int]] = []
    for line in text.split(b"\n"):
        if line.startswith(_REMOVE):
            later.append((line, next(told)))
        else:
            others.append(line)
            if line.startswith(_ADD):
                files.append(next(told))
    if next(told, None) is not None:
        raise ValueError("it tells more versions than it has lines about files")
    own = msgspec.structs.replace(info, versions=[one[0] for one in files], times=[one[1] for one in files])
    return CheckpointPart(key, own, _actions(b"\n".join(others)), removes=LaterRemoves(lambda: _removes(key, later)))


def _removes_last(key: str, info: CheckpointInfo, text: bytes, removed: bytes) -> CheckpointPart:
    """As checkpoints are written: no line is looked at but those of the files."""
    files = len(info.versions) - removed.count(b"\n")
    if files < 0:
        raise ValueError("it does not tell of each remove when it was written")
    own = msgspec.structs.replace(info, versions=info.versions[:files], times=info.times[:files])

    def removes() -> list[StateRemove]:
        told = zip(info.versions[files:], info.times[files:], strict=True)
        return _removes(key, list(zip(removed.split(b"\n")[:-1], told, strict=True)))

    return CheckpointPart(key, own, _actions(text), removes=LaterRemoves(removes))


def _removes(key: str, removed: list[tuple[bytes, tuple[int, int]]]) -> list[StateRemove]:
    with names_object(key, "a remove"):
        actions = decode_lines(b"\n".join(line for line, _ in removed))
        return [
            StateRemove(action.path, *stamp, action)
            for action, (_, stamp) in zip(actions, removed, strict=True)
            if isinstance(action, Remove)
        ]


def _actions(text: bytes) -> list[Action]:
    return [line for line in decode_lines(text) if isinstance(line, Action)]


def _manifest(key: str, data: bytes) -> PartsManifest | None:
    try:
        found = _ANY.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(found, dict) or not found.keys() >= _IS_MANIFEST:
        return None
    with names_object(key, "its list of parts"):
        manifest = msgspec.convert(found, PartsManifest)
    if manifest.format != "json":
        raise CorruptObject(key, f"its parts have the format {manifest.format!r}, but only json is known here")
    return manifest


def _actions_of_others(key: str, text: bytes) -> list[Action]:
    try:
        whole = _ANY.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        whole = None
    if isinstance(whole, dict) and any(isinstance(body, list) for body in whole.values()):
        actions = _one_object(whole)
    else:
        actions = [line for line in decode_lines(text) if not isinstance(line, CommitInfo)]
    if not actions:
        raise CorruptObject(key, "it holds no action")
    return actions


def _one_object(whole: dict[str, Any]) -> list[Action]:
    """The oldest form: a member a type, files in a list. Its metaData need not tell a format."""
    actions = []
    for name, found in whole.items():
        kind = TYPES_BY_WIRE_NAME.get(name)
        if kind is None or found is None or kind is CommitInfo:
            continue
        for body in found if isinstance(found, list) else [found]:
            if kind is MetaData and isinstance(body, dict):
                body = body | {"format": body.get("format") or {}}
            action = from_object(kind, body)
            if isinstance(action, Action):
                actions.append(action)
    return actions
