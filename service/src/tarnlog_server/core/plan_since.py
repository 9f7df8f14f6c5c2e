"""What a plan gained and lost since an older version: for readers that still have the plan of that one.

Pure: told from the versions that a tracker keeps in memory. Where it cannot be told, a plan is answered whole.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from msgspec import Struct

from tarnlog_server.core.replay import Snapshot
from tarnlog_server.core.snapshot_tracker import SnapshotTracker

MOST_GONE = 10_000
"""Files that a plan may have lost: their paths travel in one piece, before all others."""


class RowsSince(Struct, frozen=True):
    """The difference between two plans with the same filter."""

    version: int
    """The older version, and its time: by both a reader knows that it has the plan of the same log."""
    timestamp: int
    rows: Sequence[int]
    """The rows of the plan that were added after that version."""
    gone: tuple[str, ...]
    """The paths that were live then and went since, whether the plan of then had them or not. One that came again is
    among the rows too."""


def plan_since(tracker: SnapshotTracker, snapshot: Snapshot, rows: Sequence[int], version: int) -> RowsSince | None:
    """How the plan of `rows` differs from that of an older version; None where it must be told whole.

    That is where the versions in between are not in memory, where one of them changed what a filter means (metaData),
    or where a difference would be no smaller. Costs the actions in between.
    """
    timestamp = tracker.timestamp_of(version)
    steps = tracker.steps_after(version) if version <= snapshot.version else None
    if steps is None or timestamp is None:
        return None
    steps = steps[: snapshot.version - version]
    if any(step.metadata_before is not snapshot.metadata for step in steps):
        return None
    gone = {add.path for step in steps for add, added_at in step.gone_since.values() if added_at <= version}
    came = rows[bisect_left(rows, snapshot.files.first_of(version + 1)) :]
    if len(gone) > MOST_GONE or 2 * (len(gone) + len(came)) > len(rows):
        return None
    return RowsSince(version, timestamp, came, tuple(sorted(gone)))
