"""One version of a table as everyone past the codec sees it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET, Struct

from tarnlog.protocol.actions import Action, SubCommit

DROP = "DROP"
REGISTER = "REGISTER"


class VersionRecord(Struct, frozen=True):
    """A decoded version file. `timestamp` is always set: a file without one takes its object's time."""

    version: int
    timestamp: int
    put_id: str | None
    sub_commits: tuple[SubCommit, ...]
    actions: tuple[Action, ...]
    adopted_from: int | None = None

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
