"""What a replica keeps of a table: windows that end where they say, and old snapshots that outlive compaction."""

from __future__ import annotations

import pytest

from tarnlog.protocol.actions import Remove
from tarnlog_server.core.replay import empty
from tarnlog_server.core.snapshot_tracker import SnapshotTracker, Window
from tarnlog_server.core.version_record import VersionRecord
from tests.core.making import FIRST, NOW, add, metadata, record, remove, sub_id, tracker

LATER = metadata(description="later")


def test_the_window_of_versions() -> None:
    state = tracker(record(0, FIRST), *(record(n, (add(f"f{n}"),)) for n in range(1, 10)), window=Window(versions=4))
    assert state.steps_after(9) == []
    assert state.steps_after(12) == []
    found = state.steps_after(5)
    assert found is not None
    assert [step.record.version for step in found] == [6, 7, 8, 9]
    assert state.steps_after(4) is None
    assert [state.step(n) is not None for n in (5, 6, 9, 10)] == [False, True, True, False]


def test_the_window_is_bounded_by_what_the_versions_hold() -> None:
    heavy = [record(n, tuple(add(f"f{n}.{i}") for i in range(100))) for n in range(1, 10)]
    state = tracker(record(0, FIRST), *heavy, window=Window(weight=250))
    assert state.steps_after(7) is not None
    assert state.steps_after(6) is None
    single = tracker(record(0, FIRST), heavy[0], window=Window(weight=1))
    assert single.steps_after(0) is not None, "the newest version is always at hand"


def test_old_snapshots_do_not_hold_on_to_what_was_replaced_long_ago() -> None:
    """A table that is overwritten again and again: each old snapshot keeps a whole table of its own alive."""
    records = [record(0, FIRST), record(1, tuple(add(f"f1.{i}") for i in range(50)))]
    for n in range(2, 30):
        gone = tuple(remove(f"f{n - 1}.{i}") for i in range(50))
        records.append(record(n, (*gone, *(add(f"f{n}.{i}") for i in range(50)))))
    state = tracker(*records, window=Window(weight=200))
    kept = [version for version in range(30) if state.snapshot_at(version) is not None]
    assert kept == [25, 26, 27, 28, 29]
    assert all((found := state.snapshot_at(version)) is not None and found.num_files == 50 for version in kept)


def test_the_window_of_snapshots() -> None:
    state = tracker(record(0, FIRST), *(record(n, (add(f"f{n}"),)) for n in range(1, 10)), window=Window(snapshots=3))
    for version in (7, 8, 9):
        snapshot = state.snapshot_at(version)
        assert snapshot is not None
        assert (snapshot.version, snapshot.num_files) == (version, version)
    assert state.snapshot_at(6) is None
    assert state.snapshot_at(10) is None


def test_times_and_versions() -> None:
    state = tracker(record(0, FIRST), record(1, (), timestamp=NOW + 10), record(2, (), timestamp=NOW + 20))
    assert [state.timestamp_of(n) for n in (-1, 0, 1, 2, 3)] == [None, NOW, NOW + 10, NOW + 20, None]
    found = {offset: state.version_at(NOW + offset) for offset in (-1, 0, 9, 10, 19, 20, 10**9)}
    assert found == {-1: None, 0: 0, 9: 0, 10: 1, 19: 1, 20: 2, 10**9: 2}


def test_the_metadata_of_every_version() -> None:
    state = tracker(record(0, FIRST), record(1, (add("a"),)), record(2, (LATER,)), record(3, (add("b"),)))
    assert [state.metadata_at(n) for n in (-1, 0, 1, 2, 3, 9)] == [None, FIRST[1], FIRST[1], LATER, LATER, LATER]
    found = state.steps_after(0)
    assert found is not None
    assert [step.metadata_before for step in found] == [FIRST[1], FIRST[1], LATER]


def test_ids_are_known_from_the_versions() -> None:
    state = tracker(record(0, FIRST), record(1, (add("a"),), (add("b"),)))
    known = state.ids.recent(str(sub_id(1, 1)))
    assert known is not None
    assert (known.version, known.seq, known.timestamp) == (1, 1, NOW + 1)


def test_dead_rows_are_given_back_and_old_snapshots_stay_valid() -> None:
    count = 10_000
    state = tracker(record(0, FIRST), record(1, tuple(add(f"f{n}") for n in range(count + 5))))
    before = state.head
    state.advance(record(2, tuple(remove(f"f{n}") for n in range(count - 1))))
    assert state.head.files is before.files, "below the threshold nothing moves"
    state.advance(record(3, (remove(f"f{count}"), add("new"))))
    assert state.head.files is not before.files
    assert (len(state.head.files), state.head.files.dead_rows) == (state.head.num_files, 0)
    left = [*(f"f{n}" for n in range(count + 1, count + 5)), f"f{count - 1}", "new"]
    assert [file.path for _, file in state.head.rows()] == left
    state.advance(record(4, (remove("new"), add("newer"))))
    assert [file.path for _, file in state.head.rows()] == [*left[:-1], "newer"]
    counts = [len(list(snapshot.rows())) for n in (1, 2, 3, 4) if (snapshot := state.snapshot_at(n)) is not None]
    assert counts == [count + 5, 6, 6, 6]
    third = state.snapshot_at(3)
    assert third is not None
    assert [file.path for _, file in third.rows()] == left


@pytest.mark.parametrize("version", [0, 1, 3, 5])
def test_a_version_that_does_not_follow_changes_nothing(version: int) -> None:
    state = tracker(record(0, FIRST), record(1, (add("a"),)))
    head = state.head
    with pytest.raises(ValueError, match=f"version {version}, but the state is at version 1"):
        state.advance(record(version, (add("b"),)))
    assert state.head is head
    assert [file.path for _, file in head.rows()] == ["a"]
    assert (state.timestamp_of(2), state.ids.recent(str(sub_id(5, 0)))) == (None, None)


def test_removes_that_vacuum_needs_no_more_are_given_back() -> None:
    day = 24 * 3600 * 1000
    tracked = SnapshotTracker(empty())
    for version in range(2001):
        old = Remove(path=f"f{version}", data_change=True, deletion_timestamp=version * day // 100)
        tracked.advance(VersionRecord(version, version * day // 100, f"put{version}", (), (old,)))
    kept = sorted(int(key[1:]) for key in tracked.head.tombstones)
    assert kept == list(range(1301, 2001)), "seven days, at a hundred versions a day"
