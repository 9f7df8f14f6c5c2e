"""One version of a table as everyone past the codec sees it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET, Struct, UnsetType

from tarnlog.protocol.actions import Action, SubCommit

DROP = "DROP"
REGISTER = "REGISTER"
ERASE = "ERASE"
RESERVED = frozenset({DROP, REGISTER, ERASE})
"""Operations that mean something to readers of the log: only the service's own commits have them."""


PutId = str | None | UnsetType
"""The identity of a version file: None for a file of another writer, UNSET where it is not known."""


class VersionRecord(Struct, frozen=True):
    """A decoded version file. `timestamp` is always set: a file without one takes its object's time.

    `previous_put_id` is what the file says about the version before it; UNSET for files that say nothing, which are
    those of other writers and of older releases.
    """

    version: int
    timestamp: int
    put_id: str | None
    sub_commits: tuple[SubCommit, ...]
    actions: tuple[Action, ...]
    adopted_from: int | None = None
    previous_put_id: PutId = UNSET

    def groups(self) -> Iterator[tuple[SubCommit | None, tuple[Action, ...]]]:
        """Each sub-commit with its own actions; a version written by others is one sub-commit without a record."""
        if not self.sub_commits:
            yield None, self.actions
            return
        start = 0
        for sub in self.sub_commits:
            count = 0 if sub.action_count is UNSET else sub.action_count
            yield sub, self.actions[start : start + count]
            start += count
        if start < len(self.actions):
            yield None, self.actions[start:]

    @property
    def drops_table(self) -> bool:
        return any(sub.operation == DROP for sub in self.sub_commits)

    @property
    def registers_table(self) -> bool:
        return any(sub.operation == REGISTER for sub in self.sub_commits)

    @property
    def erases(self) -> bool:
        """Whether what was removed up to this version is to be forgotten."""
        return any(sub.operation == ERASE for sub in self.sub_commits)


def chain_fault(before: PutId, record: VersionRecord) -> str | None:
    """Why `record` cannot follow a version whose putId is `before`; None when it can, or when either is not known.

    A version that was written on one log and is read behind another version shows here: the log was forked, restored
    from copies of different times, or a file of it was replaced.
    """
    claimed = record.previous_put_id
    if claimed is UNSET or before is UNSET or claimed == before:
        return None
    return (
        f"it was written to follow {_identity(claimed)}, but version {record.version - 1} is {_identity(before)}: "
        "the log was forked, or files of it come from different copies"
    )


def _identity(put_id: PutId) -> str:
    return f"the file with putId {put_id}" if isinstance(put_id, str) else "a file without a putId"
