"""The state in another writer's checkpoint: its actions, applied in order, because some hold history and not a state.

Nothing tells when a file was added or which version wrote a txn: both are unknown. So is the checkpoint's time (-1),
for which the caller looks at the object's own.
"""

from __future__ import annotations

from collections.abc import Iterable

from tarnlog.protocol.actions import Action, Add, MetaData, Protocol, Remove, Skip, Txn
from tarnlog.protocol.paths import path_key
from tarnlog_server.codec.table_state import UNKNOWN_VERSION, State, StateFacts, StateFile, StateRemove
from tarnlog_server.codec.version_file import CorruptObject
from tarnlog_server.core.replay import NO_PROTOCOL

NO_TIME = -1


def replay_foreign(key: str, version: int, actions: Iterable[Action]) -> State:
    """The state after all actions; the newest about a thing counts."""
    protocol, metadata = NO_PROTOCOL, None
    files: dict[str, Add] = {}
    removes: dict[str, Remove] = {}
    txns: dict[str, Txn] = {}
    skips: dict[str, Skip] = {}
    any_action = False
    for action in actions:
        any_action = True
        if isinstance(action, Add):
            path = path_key(action.path)
            files.pop(path, None)
            files[path] = action
            removes.pop(path, None)
        elif isinstance(action, Remove):
            path = path_key(action.path)
            files.pop(path, None)
            skips.pop(path, None)
            removes[path] = action
        elif isinstance(action, Txn):
            txns[action.app_id] = action
        elif isinstance(action, Skip):
            skips[path_key(action.path)] = action
        elif isinstance(action, MetaData):
            metadata = action
        elif isinstance(action, Protocol):
            protocol = action
    if not any_action:
        raise CorruptObject(key, "it holds no action")
    facts = StateFacts(
        version=version,
        timestamp=NO_TIME,
        protocol=protocol,
        metadata=metadata,
        txns=tuple((txn, UNKNOWN_VERSION) for txn in txns.values()),
        skips=tuple(skips.values()),
        removes=tuple(
            StateRemove(remove.path, UNKNOWN_VERSION, remove.deletion_timestamp or 0, remove)
            for remove in removes.values()
        ),
    )
    # By path: in whichever checkpoint they are, files of unknown versions are listed in one order.
    adds = [files[path] for path in sorted(files)]
    return State(facts, [StateFile(add, UNKNOWN_VERSION, add.modification_time) for add in adds], ours=False)
