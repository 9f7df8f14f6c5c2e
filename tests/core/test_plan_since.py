"""What a plan gained and lost since a version: with it, the plan of then is the plan of now, whatever happened."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarnlog_server.codec.scan_rows import prune
from tarnlog_server.core import plan_since as ours
from tarnlog_server.core.plan_since import plan_since
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.core.snapshot_tracker import SnapshotTracker, Window
from tests.core.making import FIRST, NOW, add, metadata, record, remove, tracker
from tests.core.test_reseat import VERSIONS, actions, segment_of

MANY = tuple(add(f"base{number}", "tue") for number in range(60))
"""Files that stay: what changes is little beside them."""


def rows_of(snapshot: Snapshot, days: set[str | None]) -> list[int]:
    """A plan, by hand: the files of some days."""
    return [row for row, file in snapshot.rows() if file.partition_values["day"] in days]


def paths(snapshot: Snapshot, rows: list[int]) -> dict[str, int]:
    """Sizes tell the files of a path apart: each version writes its own."""
    files = [snapshot.files.file(row) for row in rows]
    found = {file.path: file.size for file in files}
    assert len(found) == len(files)
    return found


@settings(max_examples=150, deadline=None)
@given(before=VERSIONS, after=VERSIONS, packed=st.booleans(), days=st.sampled_from([{"mon"}, {"tue"}, {"mon", "tue"}]))
def test_an_older_plan_with_the_difference_is_the_newer_one(
    before: list[list[tuple[str, int]]], after: list[list[tuple[str, int]]], packed: bool, days: set[str | None]
) -> None:
    state = tracker(record(0, FIRST), record(1, MANY))
    plans = []
    for version, changes in enumerate([*before, *after], 2):
        plans.append((state.head.version, paths(state.head, rows_of(state.head, days))))
        state.advance(record(version, actions(changes, version)))
        if packed and version == 2 + len(before):
            state.reseat(state.head, segment_of(state.head))
    rows = rows_of(state.head, days)
    for version, known in [*plans, (state.head.version, paths(state.head, rows))]:
        found = plan_since(state, state.head, rows, version)
        if found is None:
            few, repacked = "tue" not in days, packed and version < 2 + len(before)
            assert few or repacked, "a plan of few files is told whole, or one from before files were packed"
            continue
        assert (found.older.version, found.older.timestamp) == (version, NOW + version)
        left = {path: size for path, size in known.items() if path not in found.gone}
        assert left | paths(state.head, list(found.rows)) == paths(state.head, rows)
        assert not left.keys() & paths(state.head, list(found.rows)).keys()


def planned(state: SnapshotTracker, since: int, version: int | None = None) -> ours.RowsSince | None:
    snapshot = state.head if version is None else state.snapshot_at(version)
    assert snapshot is not None
    return plan_since(state, snapshot, prune(snapshot, None).rows, since)


def grown(**options: Any) -> SnapshotTracker:
    more = (record(n, (add(f"f{n}"), remove(f"base{n}"))) for n in range(2, 8))
    return tracker(record(0, FIRST), record(1, MANY), *more, window=Window(**options))


def test_versions_above_the_planned_one_are_not_told() -> None:
    found = planned(grown(), since=3, version=5)
    assert found is not None
    assert found.gone == ("base4", "base5")
    assert len(found.rows) == 2
    assert planned(grown(), since=6, version=5) is None


def test_a_version_that_is_not_known_any_more_is_told_whole() -> None:
    assert planned(grown(versions=3), since=4) is not None
    assert planned(grown(versions=3), since=3) is None
    assert planned(grown(snapshots=3), since=5) is not None
    assert planned(grown(snapshots=3), since=4) is None, "its files could not be told from those of another log"
    assert planned(grown(), since=99) is None


def test_a_change_of_what_filters_mean_is_told_whole() -> None:
    state = grown()
    state.advance(record(8, (metadata(description="later"),)))
    assert [planned(state, since=n) is None for n in (6, 7, 8)] == [True, True, False]
    state.advance(record(9, (add("x"),)))
    assert [planned(state, since=n) is None for n in (7, 8, 9)] == [True, False, False]
    assert planned(state, since=5, version=7) is not None, "the change came later"


def test_a_difference_that_is_no_smaller_is_told_whole() -> None:
    state = tracker(record(0, FIRST), record(1, MANY), record(2, tuple(remove(f"base{n}") for n in range(20))))
    assert planned(state, since=1) is not None
    state.advance(record(3, (remove("base20"),)))
    assert planned(state, since=1) is None
    assert planned(state, since=0) is None


def test_very_many_paths_are_told_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "MOST_GONE", 3)
    assert planned(grown(), since=4) is not None
    assert planned(grown(), since=3) is None
