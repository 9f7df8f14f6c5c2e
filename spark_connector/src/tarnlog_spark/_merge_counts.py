"""How many rows a merge inserted, updated, deleted and carried along, for its caller and for history.

Nothing is read for it: the pass that finds the files counts what it changes in them, and the footers of the new files
say how many rows they hold.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tarnlog.protocol.actions import Add
from tarnlog_spark._changing import ChangeResult
from tarnlog_spark._target import Pinned


class MergeResult(ChangeResult, frozen=True, kw_only=True):
    """What a merge did. `num_rows` are the rows inserted, updated or deleted; copied ones only lay in files with such
    rows."""

    num_inserted_rows: int = 0
    num_updated_rows: int = 0
    num_deleted_rows: int = 0
    num_copied_rows: int = 0
    num_files_before_skipping: int = 0
    """The files of the table; those after skipping may hold a key of the source, and only they were read."""
    num_files_after_skipping: int = 0


class MergeCounts(Struct, frozen=True, kw_only=True):
    """The rows of a merge by what became of them, and its files."""

    inserted: int
    updated: int
    deleted: int
    copied: int
    added_files: int
    removed_files: int
    all_files: int
    candidate_files: int

    def metrics(self) -> dict[str, str]:
        """As history shows them, by the names that Delta's users know."""
        return {
            "numTargetRowsInserted": str(self.inserted),
            "numTargetRowsUpdated": str(self.updated),
            "numTargetRowsDeleted": str(self.deleted),
            "numTargetRowsCopied": str(self.copied),
            "numTargetFilesAdded": str(self.added_files),
            "numTargetFilesRemoved": str(self.removed_files),
            "numTargetFilesBeforeSkipping": str(self.all_files),
            "numTargetFilesAfterSkipping": str(self.candidate_files),
        }

    def result(self, version: int) -> MergeResult:
        return MergeResult(
            version=version,
            num_rows=self.inserted + self.updated + self.deleted,
            num_removed_files=self.removed_files,
            num_added_files=self.added_files,
            num_inserted_rows=self.inserted,
            num_updated_rows=self.updated,
            num_deleted_rows=self.deleted,
            num_copied_rows=self.copied,
            num_files_before_skipping=self.all_files,
            num_files_after_skipping=self.candidate_files,
        )


def nothing_done(pinned: Pinned) -> MergeResult:
    """The result of a merge that changes no row."""
    return MergeResult(
        version=pinned.version,
        changed=False,
        num_files_before_skipping=all_files_of(pinned),
        num_files_after_skipping=len(pinned.files),
    )


def all_files_of(pinned: Pinned) -> int:
    """How many files the table has at the pinned version."""
    total = pinned.plan.total_files
    return len(pinned.files) if total is None else total


def counts_of(
    pinned: Pinned, touched: Sequence[Add], written: Sequence[Add], updated: int, deleted: int
) -> MergeCounts:
    """What is left over of the new files' rows, when those of the old ones are taken away, was inserted."""
    untold = [file for file in touched if file.num_records is None]  # of other writers: their rows have to be counted
    before = sum(file.num_records or 0 for file in touched) + (pinned.rows(untold).count() if untold else 0)
    return MergeCounts(
        inserted=sum(file.num_records or 0 for file in written) - (before - deleted),
        updated=updated,
        deleted=deleted,
        copied=before - updated - deleted,
        added_files=len(written),
        removed_files=len(touched),
        all_files=all_files_of(pinned),
        candidate_files=len(pinned.files),
    )
