"""A table whose files are packed while it goes on: nobody can tell it from one that was never packed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tarnlog.protocol.actions import Action
from tarnlog.protocol.predicates import And, Compare, IsNull, Or, Predicate
from tarnlog_server.codec.entry_batch import entry_batch
from tarnlog_server.codec.file_columns import FileColumns
from tarnlog_server.codec.scan_rows import prune
from tarnlog_server.codec.table_state import StateFile
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.core.snapshot_tracker import SnapshotTracker
from tests.core.making import FIRST, add, record, remove, tracker

PATHS = [f"f{number}" for number in range(6)]
VERSIONS = st.lists(
    st.lists(
        st.tuples(st.sampled_from(PATHS), st.integers(0, 4)), min_size=1, max_size=4, unique_by=lambda one: one[0]
    ),
    max_size=12,
)


DAYS = ("mon", "tue", None)
FILTERS: list[Predicate] = [
    Compare("eq", "day", "mon"),
    Compare("ge", "id", 3),
    And((Compare("ge", "id", 3), Compare("ne", "day", "tue"))),
    Or((Compare("lt", "id", 2), IsNull("day"))),
]


def actions(changes: list[tuple[str, int]], version: int) -> tuple[Action, ...]:
    """Of each path whether it goes (0), comes on one of the days, or goes and comes again (4)."""
    found: list[Action] = []
    for path, kind in changes:
        if kind in (0, 4):
            found.append(remove(path))
        if kind > 0:
            found.append(add(path, DAYS[(kind + version) % 3], low=version, high=version + 1, size=version))
    return tuple(found)


def segment_of(snapshot: Snapshot) -> FileColumns:
    files = snapshot.files
    entries = [StateFile(one, files.added_at(row), files.added_time(row)) for row, one in snapshot.rows()]
    assert snapshot.metadata is not None
    return FileColumns([entry_batch(entries)] if entries else [], snapshot.metadata.partition_columns)


def listing(snapshot: Snapshot) -> list[tuple[int, object]]:
    return [(snapshot.files.added_at(row), one) for row, one in snapshot.rows()]


def plan(snapshot: Snapshot, asked: Predicate) -> tuple[list[object], int, int]:
    """The files that a filter leaves, and how many each step left."""
    pruned = prune(snapshot, asked)
    return [snapshot.files.file(row) for row in pruned.rows], pruned.after_partitions, pruned.after_skipping


def check(packed: SnapshotTracker, plain: SnapshotTracker) -> None:
    assert listing(packed.head) == listing(plain.head)
    assert packed.head.num_files == plain.head.num_files == packed.head.files.live_count
    for path in PATHS:
        assert packed.head.files.live(path) == plain.head.files.live(path)
        assert packed.head.files.live_since(path) == plain.head.files.live_since(path)
    for version in range(packed.head.version + 1):
        found, expected = packed.snapshot_at(version), plain.snapshot_at(version)
        assert expected is not None
        if found is not None:
            assert (found.version, listing(found)) == (version, listing(expected))
            for asked in FILTERS:
                assert plan(found, asked) == plan(expected, asked)


@settings(max_examples=150, deadline=None)
@given(VERSIONS, VERSIONS, VERSIONS)
def test_packing_changes_nothing_that_can_be_seen(
    before: list[list[tuple[str, int]]], meanwhile: list[list[tuple[str, int]]], after: list[list[tuple[str, int]]]
) -> None:
    packed, plain = tracker(record(0, FIRST)), tracker(record(0, FIRST))

    def go_on(versions: list[list[tuple[str, int]]]) -> None:
        for changes in versions:
            version = plain.head.version + 1
            for one in (packed, plain):
                one.advance(record(version, actions(changes, version)))

    go_on(before)
    for _ in range(2):
        snapshot = packed.head
        segment = segment_of(snapshot)
        go_on(meanwhile)
        packed.reseat(snapshot, segment)
        assert packed.head.files.segment is segment
        check(packed, plain)
        go_on(after)
        check(packed, plain)


def test_snapshots_of_a_table_that_only_grew_stay_at_hand() -> None:
    grown = tracker(record(0, FIRST), *(record(n, (add(f"g{n}"),)) for n in range(1, 8)))
    grown.reseat(grown.head, segment_of(grown.head))
    assert all(grown.snapshot_at(version) is not None for version in range(8))
    grown.advance(record(8, (remove("g3"),)))
    grown.advance(record(9, (add("g9"),)))
    grown.reseat(grown.head, segment_of(grown.head))
    assert [version for version in range(10) if grown.snapshot_at(version) is not None] == [8, 9]


def test_files_of_another_log_are_not_taken() -> None:
    grown, other = tracker(record(0, FIRST)), tracker(record(0, FIRST))
    segment = segment_of(other.head)
    grown.reseat(other.head, segment)
    assert grown.head.files.segment is None
