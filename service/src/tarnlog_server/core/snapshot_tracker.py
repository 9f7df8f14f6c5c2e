"""What one replica knows of one table: the head, a window behind it, and how long ago it was seen.

Pure: it is fed version records in order and never asks for one. Everything kept is bounded, whatever the history.
"""

from __future__ import annotations

import dataclasses
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Mapping

from tarnlog.protocol.actions import Add, MetaData
from tarnlog_server.core.dedupe import CLOCK_TOLERANCE_MS, CommitIds
from tarnlog_server.core.file_log import Segment
from tarnlog_server.core.replay import Snapshot, append
from tarnlog_server.core.table_settings import setting
from tarnlog_server.core.tombstones import Tombstones
from tarnlog_server.core.version_record import VersionRecord

BYTES_A_STEP, BYTES_AN_ACTION = 1500, 1200
"""What a version of the window takes, and an action of it that is not held as a file besides: measured."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A version with what the conflict rules need of it."""

    record: VersionRecord
    removed: dict[str, Add | None]
    metadata_before: MetaData | None
    gone_since: dict[str, tuple[Add, int]] = dataclasses.field(default_factory=dict)
    """Files that were live before this version and are not after it, with the version that added each."""

    @property
    def weight(self) -> int:
        return 1 + len(self.record.actions) + len(self.record.sub_commits)


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """How much a tracker keeps behind the head: versions and their weight for conflicts, snapshots, commit ids.

    Old snapshots are cheap while files are only added. What was removed since lives on in them, so that is bounded by
    the weight as well.
    """

    versions: int = 10_000
    weight: int = 100_000
    snapshots: int = 1000
    recent_ids: int = 50_000
    defaults: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The service's settings for table properties."""


class SnapshotTracker:
    """The applied prefix of a log, from `base` to the head."""

    def __init__(self, base: Snapshot, window: Window | None = None) -> None:
        window = window or Window()
        self.head = base
        self.ids = CommitIds(window.recent_ids)
        self.observed_at = float("-inf")
        """Monotonic time at which the head was known to be the head."""
        self.foreign_times: dict[int, int] = {}
        """The timestamps of versions that other writers made: their files may not tell, so states remember them."""
        self.foreign_base = False
        """Whether the base is another writer's state."""
        self.adopted_from: int | None = None
        """The last version of other writers before the log was taken over; None when it always was ours."""
        self.erased_at = -1
        """The last ERASE that was applied: states of older versions are deleted, so nothing is built on them."""
        self._steps: deque[Step] = deque()
        self._weight = 0
        self._forgets_at = base.version + 1000
        self._max_versions = window.versions
        self._max_weight = window.weight
        self._defaults = window.defaults
        # A base that is a state knows its own time; the empty one before version 0 has none.
        self._timestamps = array("q", [base.timestamp] if base.version >= 0 and base.timestamp >= 0 else [])
        self._snapshots: deque[tuple[Snapshot, int]] = deque([(base, 0)])
        """Each with how many files its version removed."""
        self._removed = 0
        self._max_snapshots = window.snapshots
        self._metadata_changes: list[tuple[int, MetaData | None]] = [(base.version, base.metadata)]
        self._first_timed = base.version + 1 - len(self._timestamps)

    def advance(self, record: VersionRecord) -> Snapshot:
        """Apply the next version. Costs its actions only."""
        before = self.head
        applied = append(before, record)
        self.head = self._without_dead_rows(applied.snapshot)
        self._keep_snapshot(self.head, len(applied.removed))
        self._timestamps.append(record.timestamp)
        if record.put_id is None:
            self.foreign_times[record.version] = record.timestamp
        elif record.adopted_from is not None and self._is_foreign(record.adopted_from):
            self.adopted_from = record.adopted_from
        self.ids.record(record)
        if record.erases:
            self.erased_at = record.version
        if record.version % 1000 == 0:
            self.head = self._without_expired_removes(self.head)
        if self.head.metadata is not before.metadata:
            self._metadata_changes.append((record.version, self.head.metadata))
        step = Step(record, applied.removed, before.metadata, applied.gone_since)
        self._steps.append(step)
        self._weight += step.weight
        while len(self._steps) > 1 and (len(self._steps) > self._max_versions or self._weight > self._max_weight):
            self._weight -= self._steps.popleft().weight
        return self.head

    def first_file(self) -> int:
        """From which version on there are version files without a gap, as far as other writers' go."""
        last = self.adopted_from
        if self.foreign_base:
            return self.base_version + 1
        if last is None:
            return 0
        while last in self.foreign_times:
            last -= 1
        return last + 1

    @property
    def head_has_file(self) -> bool:
        """Whether the head has a version file; else it is only in another writer's state."""
        return not (self.foreign_base and self.head.version == self.base_version)

    @property
    def is_ours(self) -> bool:
        """Whether the log was begun here or taken over, so that only version files count."""
        return self.adopted_from is not None or not (self.foreign_base or 0 in self.foreign_times)

    def _is_foreign(self, version: int) -> bool:
        """A log of ours that is taken up again after a drop stays ours."""
        return version in self.foreign_times or (self.foreign_base and version == self.base_version)

    def steps_after(self, version: int) -> list[Step] | None:
        """The versions in (version, head], oldest first; None when the window does not reach that far back."""
        count = self.head.version - version
        if count <= 0:
            return []
        if count > len(self._steps):
            return None
        return list(self._steps)[-count:]

    @property
    def first_step(self) -> int:
        """The oldest version of the window; one above the head when the window is empty."""
        return self.head.version + 1 - len(self._steps)

    def step(self, version: int) -> Step | None:
        """One version of the window."""
        index = len(self._steps) - 1 - (self.head.version - version)
        return self._steps[index] if 0 <= index < len(self._steps) else None

    def snapshot_at(self, version: int) -> Snapshot | None:
        """A recent snapshot; None when it must be rebuilt from the log."""
        if version == self.head.version:
            return self.head
        index = len(self._snapshots) - 1 - (self.head.version - version)
        return self._snapshots[index][0] if 0 <= index < len(self._snapshots) else None

    @property
    def base_version(self) -> int:
        """The version of the state it started from; what lies before is not known here."""
        return self._metadata_changes[0][0]

    @property
    def oldest_version(self) -> int:
        """The oldest version whose timestamp is known here; 8 bytes are kept for each."""
        return self._first_timed

    def timestamp_of(self, version: int) -> int | None:
        """When a version was committed."""
        index = version - self._first_timed
        return self._timestamps[index] if 0 <= index < len(self._timestamps) else self.foreign_times.get(version)

    def version_at(self, timestamp: int) -> int | None:
        """The highest version whose timestamp is at or before a time; None when that is before the oldest one."""
        index = bisect_right(self._timestamps, timestamp)
        return self._first_timed + index - 1 if index > 0 else None

    def metadata_at(self, version: int) -> MetaData | None:
        """The metaData in force at a version; None for versions before the base, which are not known here."""
        for changed_at, metadata in reversed(self._metadata_changes):
            if changed_at <= version:
                return metadata
        return None

    def _keep_snapshot(self, snapshot: Snapshot, removed: int) -> None:
        """Keep it, and let go of the oldest once there are too many, or too much was removed since."""
        if self._snapshots:
            self._removed += removed
        self._snapshots.append((snapshot, removed))
        while len(self._snapshots) > 1 and (
            len(self._snapshots) > self._max_snapshots or self._removed > self._max_weight
        ):
            self._snapshots.popleft()
            self._removed -= self._snapshots[0][1]

    def forget_expired_ids(self, now_ms: int) -> None:
        """Drop ids older than the window, every thousand versions; between those it costs a comparison.

        An id counts as old only where this clock and the log agree: one clock that stepped ahead forgets nothing.
        """
        if self.head.version < self._forgets_at:
            return
        self._forgets_at = self.head.version + 1000
        configuration = self.head.metadata.configuration if self.head.metadata is not None else {}
        window = int(setting(configuration, "commit.dedupe.duration", self._defaults))
        self.ids.forget_before(min(self.head.timestamp, now_ms) - window - CLOCK_TOLERANCE_MS)

    def _without_expired_removes(self, snapshot: Snapshot) -> Snapshot:
        """Removes that vacuum needs no more, by the version's own time: a few thousand versions keep them too long."""
        configuration = snapshot.metadata.configuration if snapshot.metadata is not None else {}
        retention = int(setting(configuration, "deletedFileRetention.duration", self._defaults))
        since = snapshot.timestamp - retention
        expired = [
            key
            for key, (remove, _) in snapshot.tombstones.known.items()
            if remove.deletion_timestamp is not None and remove.deletion_timestamp <= since
        ]
        if not expired:
            return snapshot
        tombstones = snapshot.tombstones.known.mutate()
        for key in expired:
            del tombstones[key]
        return dataclasses.replace(snapshot, tombstones=Tombstones(tombstones.finish()))

    @property
    def nbytes(self) -> int:
        """About how much memory the files and the window take. Files that are not packed are those of the window."""
        files = self.head.files
        actions = self._weight - 2 * len(self._steps)
        own = max(0, actions - (len(files) - files.base))
        return files.nbytes + len(self._steps) * BYTES_A_STEP + own * BYTES_AN_ACTION

    def forget_steps(self, version: int) -> None:
        """Let go of the versions up to one, as if the table had been opened from a state of it."""
        while self._steps and self._steps[0].record.version <= version:
            self._weight -= self._steps.popleft().weight

    def reseat(self, packed: Snapshot, segment: Segment) -> None:
        """Go on with the files of a former head in one segment, which takes a fraction of the memory.

        Older snapshots go on likewise where nothing was removed since; the others must be rebuilt when asked for.
        """
        old = self.head.files
        if packed.files is not old:
            return
        files = old.resealed(segment, packed.version, packed.length)
        last_removal = max((gone for gone in old.removals() if gone <= packed.version), default=-1)
        dead = old.gone(packed.version)

        def moved(snapshot: Snapshot) -> Snapshot:
            before = min(snapshot.length, packed.length)
            length = before - bisect_left(dead, before) + snapshot.length - before
            return dataclasses.replace(snapshot, files=files, length=length)

        kept = [(one, removed) for one, removed in self._snapshots if one.files is old and one.version >= last_removal]
        self._snapshots = deque((moved(one), removed) for one, removed in kept)
        self._removed = sum(removed for _, removed in kept[1:])
        self.head = moved(self.head)

    def _without_dead_rows(self, snapshot: Snapshot) -> Snapshot:
        """Give dead rows back once they outnumber the live ones: amortised O(1) a removal."""
        if snapshot.files.dead_rows < 10_000 or snapshot.files.dead_rows < snapshot.num_files:
            return snapshot
        files = snapshot.files.compacted()
        return dataclasses.replace(snapshot, files=files, length=len(files))
