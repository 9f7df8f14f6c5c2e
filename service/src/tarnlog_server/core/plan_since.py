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

    older: Snapshot
    """The table at the older version."""
    rows: Sequence[int]
    """The rows of the plan that were added after that version."""
    gone: tuple[str, ...]
    """The paths that were live then and went since, whether the plan of then had them or not. One that came again is
    among the rows too."""


def plan_since(tracker: SnapshotTracker, snapshot: Snapshot, rows: Sequence[int], version: int) -> RowsSince | None:
    """How the plan of `rows` differs from that of an older version; None where it must be told whole.

    That is where the versions in between are not in memory, where one of them changed what a filter means (metaData),
    or where a difference would be no smaller. Costs the files that went in between, and a look at each version that
    the tracker keeps.
    """
    older = tracker.snapshot_at(version)
    steps = tracker.steps_after(version)
    if older is None or steps is None or not 0 <= snapshot.version - version <= len(steps):
        return None
    steps = steps[: snapshot.version - version]
    if any(step.metadata_before is not snapshot.metadata for step in steps):
        return None
    came = rows[bisect_left(rows, snapshot.files.first_of(version + 1)) :]
    most = min(MOST_GONE, len(rows) // 2 - len(came))
    gone: set[str] = set()
    for step in steps:
        gone.update(add.path for add, added_at in step.gone_since.values() if added_at <= version)
        if len(gone) > most:
            return None
    return None if most < 0 else RowsSince(older, came, tuple(sorted(gone)))
