"""The tarnlog client: commit to transactional tables on object storage, and know what became of it.

    from tarnlog import Client

    with Client() as client:
        with client.transaction("sales.orders") as tx:
            tx.add("part-0001.parquet", size=1024, num_records=10)
        print(tx.outcome.version)

`AsyncClient` is the same for asyncio, `tarnlog.testing.FakeTarnlog` the same in memory. The exceptions are TarnlogError
and its children. What a commit answers (Committed, Conflicted, Rejected, NotNow, Unknown) is a value, not an exception.

Names are loaded when they are first used: whoever needs only `tarnlog.protocol` pays for no HTTP library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tarnlog._api import TableApi
    from tarnlog._async_client import AsyncClient
    from tarnlog._client import Client
    from tarnlog._connection import new_commit_id
    from tarnlog._errors import (
        CommitConflict,
        CommitUnknown,
        Conflict,
        Corrupt,
        Denied,
        Expired,
        InvalidRequest,
        NotFound,
        ServerFault,
        TarnlogError,
        Unavailable,
        Unreachable,
        raise_for_outcome,
    )
    from tarnlog._long import OperationInfo, Progress
    from tarnlog._plans import ArrowPlan, Plan, PlanExplanation
    from tarnlog._results import (
        AuditInfo,
        CheckInfo,
        CheckpointInfo,
        CleanupInfo,
        CommitRecord,
        EraseInfo,
        Health,
        NotInLog,
        PropertyNote,
        RebuildInfo,
        SessionInfo,
        SnapshotInfo,
        StateInfo,
        TableEntry,
        TableInfo,
        TxnInfo,
        VacuumInfo,
        VersionChange,
        VersionInfo,
    )
    from tarnlog._sessions import AsyncWriteSession, WriteSession
    from tarnlog._table import Table
    from tarnlog._transaction import AsyncTransaction, Transaction
    from tarnlog.protocol.actions import Add, MetaData, Protocol, Remove, Skip, Txn
    from tarnlog.protocol.commits import CommitOutcome, Committed, Conflicted, NotNow, Reads, Rejected, Unknown, Winner
    from tarnlog.protocol.plans import Ledger, PlanSince

_HOMES = {
    "tarnlog._api": ("TableApi",),
    "tarnlog._async_client": ("AsyncClient",),
    "tarnlog._client": ("Client",),
    "tarnlog._connection": ("new_commit_id",),
    "tarnlog._errors": (
        "CommitConflict",
        "CommitUnknown",
        "Conflict",
        "Corrupt",
        "Denied",
        "Expired",
        "InvalidRequest",
        "NotFound",
        "ServerFault",
        "TarnlogError",
        "Unavailable",
        "Unreachable",
        "raise_for_outcome",
    ),
    "tarnlog._long": ("OperationInfo", "Progress"),
    "tarnlog._plans": ("ArrowPlan", "Plan", "PlanExplanation"),
    "tarnlog.protocol.plans": ("Ledger", "PlanSince"),
    "tarnlog._results": (
        "AuditInfo",
        "CheckInfo",
        "CheckpointInfo",
        "CleanupInfo",
        "CommitRecord",
        "Health",
        "NotInLog",
        "PropertyNote",
        "RebuildInfo",
        "SessionInfo",
        "SnapshotInfo",
        "StateInfo",
        "TableEntry",
        "TableInfo",
        "TxnInfo",
        "EraseInfo",
        "VacuumInfo",
        "VersionChange",
        "VersionInfo",
    ),
    "tarnlog._sessions": ("AsyncWriteSession", "WriteSession"),
    "tarnlog._table": ("Table",),
    "tarnlog._transaction": ("AsyncTransaction", "Transaction"),
    "tarnlog.protocol.actions": ("Add", "MetaData", "Protocol", "Remove", "Skip", "Txn"),
    "tarnlog.protocol.commits": (
        "CommitOutcome",
        "Committed",
        "Conflicted",
        "NotNow",
        "Reads",
        "Rejected",
        "Unknown",
        "Winner",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Add",
    "ArrowPlan",
    "AsyncClient",
    "AsyncTransaction",
    "AsyncWriteSession",
    "AuditInfo",
    "CheckInfo",
    "CheckpointInfo",
    "CleanupInfo",
    "Client",
    "CommitConflict",
    "CommitOutcome",
    "CommitRecord",
    "CommitUnknown",
    "Committed",
    "Conflict",
    "Conflicted",
    "Corrupt",
    "Denied",
    "EraseInfo",
    "Expired",
    "Health",
    "InvalidRequest",
    "Ledger",
    "MetaData",
    "NotFound",
    "NotInLog",
    "NotNow",
    "OperationInfo",
    "Plan",
    "PlanExplanation",
    "PlanSince",
    "Progress",
    "PropertyNote",
    "Protocol",
    "Reads",
    "RebuildInfo",
    "Rejected",
    "Remove",
    "ServerFault",
    "SessionInfo",
    "Skip",
    "SnapshotInfo",
    "StateInfo",
    "Table",
    "TableApi",
    "TableEntry",
    "TableInfo",
    "TarnlogError",
    "Transaction",
    "Txn",
    "TxnInfo",
    "Unavailable",
    "Unknown",
    "Unreachable",
    "VacuumInfo",
    "VersionChange",
    "VersionInfo",
    "Winner",
    "WriteSession",
    "new_commit_id",
    "raise_for_outcome",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'tarnlog' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
