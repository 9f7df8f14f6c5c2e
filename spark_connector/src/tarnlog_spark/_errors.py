"""What the connector raises beside the client's own errors.

    TarnlogError (of the client)
    ├── Conflict
    │   └── ConflictError      not committed: another commit got in between; names its rule and winners
    ├── InvalidRequest
    │   ├── SchemaMismatch     the DataFrame does not fit the table; names its columns
    │   ├── ConstraintError    rows that break what the operation promises (replaceWhere, a merge that matches twice)
    │   └── JavaNotUsable      there is no Java that Spark can start on

Everything else (NotFound, Denied, Unavailable, CommitUnknown ...) comes from `tarnlog` as it is.
"""

from __future__ import annotations

from tarnlog import Conflict, Conflicted, InvalidRequest, Winner


class ConflictError(Conflict):
    """Not committed: another commit got in between. `retry` is `rebase` when running it again may succeed."""

    def __init__(self, outcome: Conflicted, table: str) -> None:
        named = "; ".join(map(str, outcome.winners)) or "none is named"
        super().__init__(
            f"The commit to {table} lost by rule {outcome.rule}: {outcome.detail}. Winners: {named}.",
            slug="commit-conflict",
            status=409,
        )
        self.table = table
        self.rule = outcome.rule
        self.winners: tuple[Winner, ...] = outcome.winners
        self.paths = outcome.paths
        self.retry = outcome.retry
        self.last_txn_version = outcome.last_txn_version


class SchemaMismatch(InvalidRequest):
    """The DataFrame does not fit the table's schema; `columns` maps each offending column to what is wrong with it."""

    def __init__(self, columns: dict[str, str], *, table: str = "", advice: str = "") -> None:
        listed = "; ".join(f"{name}: {fault}" for name, fault in columns.items())
        where = f" of {table}" if table else ""
        super().__init__(f"The rows do not fit the schema{where}: {listed}. {advice}".strip(), slug="schema-mismatch")
        self.columns = columns


class ConstraintError(InvalidRequest):
    """Rows break what the operation promises; nothing was committed."""


class JavaNotUsable(InvalidRequest):
    """There is no Java that Spark can start on; the sentence says what to do."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, slug="java-not-usable")


for _kind in (ConflictError, SchemaMismatch, ConstraintError, JavaNotUsable):
    _kind.__module__ = "tarnlog_spark"  # where users import it from, and so what tracebacks and Spark's errors name
del _kind
