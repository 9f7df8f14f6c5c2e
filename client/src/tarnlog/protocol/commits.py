"""A commit as a client asks for it, and the answers it can get."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from tarnlog.protocol.actions import ActionLine, Count

Isolation = Literal["serializable", "write-serializable", "snapshot"]
Operation = Annotated[str, Meta(min_length=1, max_length=128)]


def position(version: int, seq: int) -> str:
    """Where a commit is in the log: the version, and its place within the version for all but the first."""
    return f"{version}.{seq}" if seq else str(version)


class Reads(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel", gc=False
):
    """What the client's decision rested on; `filters` are predicates, each as SQL text or as a tree."""

    whole_table: bool = False
    filters: tuple[Any, ...] = ()
    paths: tuple[str, ...] = ()
    app_ids: tuple[str, ...] = ()


class CommitRequest(
    Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel", gc=False
):
    """Intent, not a version: the service finds the slot."""

    actions: Annotated[tuple[ActionLine, ...], Meta(min_length=1)]
    commit_id: str | None = None
    read_version: Count | None = None
    isolation: Isolation = "write-serializable"
    coalesce: bool | None = None
    reads: Reads = Reads()
    operation: Operation = "WRITE"
    operation_parameters: dict[str, Any] = {}
    operation_metrics: dict[str, Any] = {}


class Winner(Struct, frozen=True, kw_only=True, rename="camel"):
    """A commit in the log that another one conflicts with."""

    version: int
    seq: int
    commit_id: str | None
    operation: str

    def __str__(self) -> str:
        commit_id = "" if self.commit_id is None else f", commit {self.commit_id}"
        return f"version {position(self.version, self.seq)} ({self.operation}{commit_id})"


class Committed(Struct, frozen=True, kw_only=True, rename="camel", tag_field="outcome", tag="committed", gc=False):
    """Durable, at that version and seq, exactly once."""

    commit_id: str
    version: int
    seq: int
    timestamp: int
    replayed: bool = False
    attempts: int = 1
    rebased_over: tuple[int, ...] = ()

    def __str__(self) -> str:
        again = ", which was there already" if self.replayed else ""
        return f"committed at version {position(self.version, self.seq)}{again} (commit {self.commit_id})"


class Conflicted(Struct, frozen=True, kw_only=True, rename="camel", tag_field="outcome", tag="conflict"):
    """Not committed, and it never will be as sent: `winners` are in the log. `retry` says whether a rebase can help.

    `as_of_version` is set where this rests on the newest version at that time: an earlier send of the same commit whose
    answer was lost may still be written.
    """

    commit_id: str
    rule: str
    detail: str
    winners: tuple[Winner, ...] = ()
    paths: tuple[str, ...] = ()
    retry: Literal["rebase", "never"] = "rebase"
    last_txn_version: int | None = None
    as_of_version: int | None = None


class Rejected(Struct, frozen=True, kw_only=True, rename="camel", tag_field="outcome", tag="rejected"):
    """Not committed; the problem says why. Only `commit-invalid` means that it never will be as sent."""

    commit_id: str | None
    problem: dict[str, Any]


class NotNow(Struct, frozen=True, kw_only=True, rename="camel", tag_field="outcome", tag="not-now"):
    """Not committed yet: resend the same commit id after `retry_after` seconds."""

    commit_id: str | None
    problem: dict[str, Any]
    retry_after: float


class Unknown(Struct, frozen=True, kw_only=True, rename="camel", tag_field="outcome", tag="unknown"):
    """Not settled: it may be in the log or get there. Ask by id or resend the same commit id; delete nothing."""

    commit_id: str
    retry_after: float


CommitOutcome = Committed | Conflicted | Rejected | NotNow | Unknown
