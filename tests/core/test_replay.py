"""Replay against a dumb model: any history, any old snapshot, any page size."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarnlog.protocol.actions import Action, SubCommit
from tarnlog.protocol.paths import path_key
from tarnlog_server.core.file_log import FileLog
from tarnlog_server.core.replay import NO_PROTOCOL, ReplayError, Snapshot, append, empty
from tarnlog_server.core.version_record import DROP, REGISTER, VersionRecord
from tests.core.dumb_table import DumbTable
from tests.core.making import FIRST, add, foreign, metadata, protocol, record, remove, skip, txn

paths = st.sampled_from(["a", "b", "c", "d%20e", "d e", "x//y", "x/y"])
actions = st.one_of(
    st.builds(
        lambda path, size, count: add(path, size=size, num_records=count),
        paths,
        st.integers(0, 9),
        st.none() | st.integers(0, 9),
    ),
    st.builds(remove, paths),
    st.builds(lambda path, count: skip(path, skip_count=count), paths, st.integers(1, 3)),
    st.builds(txn, st.sampled_from(["s", "t"]), st.integers(0, 5)),
    st.builds(lambda text: metadata(description=text), st.sampled_from(["one", "two"])),
    st.builds(protocol, st.integers(1, 4), st.integers(1, 4)),
)
histories = st.lists(st.lists(actions, max_size=6).map(tuple), min_size=1, max_size=12)


def _compacted(snapshot: Snapshot) -> Snapshot:
    files = snapshot.files.compacted()
    return dataclasses.replace(snapshot, files=files, length=len(files))


@given(histories, st.sets(st.integers(0, 11)))
def test_replay_agrees_with_the_model_and_old_snapshots_stay_valid(
    history: list[tuple[Action, ...]], compact_after: set[int]
) -> None:
    model, head = DumbTable(), empty()
    kept: list[tuple[DumbTable, Snapshot]] = []
    for version, group in enumerate(history):
        before = dict(model.files)
        applied = append(head, foreign(version, *group))
        head = applied.snapshot
        model.apply(group)
        model.assert_same(head)
        for key, gone in applied.removed.items():
            assert gone is None or gone == before.get(key) or gone in group, "what a remove took away"
        kept.append((model.copied(), head))
        if version in compact_after:
            head = _compacted(head)
            kept.append((model.copied(), head))
    for old_model, old_snapshot in kept:
        old_model.assert_same(old_snapshot)


@given(histories)
def test_a_path_is_live_exactly_when_the_model_says_so(history: list[tuple[Action, ...]]) -> None:
    model, head = DumbTable(), empty()
    for version, group in enumerate(history):
        head = append(head, foreign(version, *group)).snapshot
        model.apply(group)
    for path in ("a", "b", "c", "d e", "x/y", "never"):
        assert head.files.live(path) == model.files.get(path)


def _pages(snapshot: Snapshot, size: int, other_replica: Snapshot) -> list[str]:
    """List a snapshot page by page; every page is continued on the other replica's copy, by version and path alone."""
    found: list[str] = []
    start, here = 0, snapshot
    for _ in range(1000):
        page = []
        for row, file in here.rows(start):
            page.append((row, file))
            if len(page) == size:
                break
        found += [file.path for _, file in page]
        if len(page) < size:
            return found
        row, file = page[-1]
        added_at = here.files.added_at(row)
        here = other_replica if here is snapshot else snapshot
        start = here.files.row_after(added_at, path_key(file.path))
    raise AssertionError("paging never ends")


@given(histories, st.integers(1, 4), st.data())
@settings(max_examples=200)
def test_any_page_size_lists_everything_once_also_across_replicas(
    history: list[tuple[Action, ...]], size: int, data: st.DataObject
) -> None:
    snapshots: list[Snapshot] = []
    head = empty()
    for version, group in enumerate(history):
        head = append(head, foreign(version, *group)).snapshot
        snapshots.append(head)
    at = data.draw(st.integers(0, len(history) - 1), label="version listed")
    rebuilt = empty()
    for version, group in enumerate(history[: at + 1]):
        rebuilt = append(rebuilt, foreign(version, *group)).snapshot
    whole = [file.path for _, file in snapshots[at].rows()]
    assert _pages(snapshots[at], size, snapshots[at]) == whole
    assert _pages(snapshots[at], size, rebuilt) == whole
    assert _pages(snapshots[at], size, _compacted(rebuilt)) == whole


def test_a_path_added_twice_in_one_version_does_not_turn_a_listing_round() -> None:
    head = append(empty(), foreign(0, add("a", size=1), add("b"), add("a", size=2))).snapshot
    assert [(file.path, file.size) for _, file in head.rows()] == [("a", 2), ("b", 10)]
    assert _pages(head, 1, head) == ["a", "b"]


def test_the_place_after_a_file_that_is_not_there_is_the_end_of_its_version() -> None:
    files = FileLog()
    for version, path in enumerate("abc"):
        files.add(path, add(path), version)
    assert files.row_after(1, "nobody") == 2
    assert files.row_after(-1, "a") == 0
    assert files.row_after(7, "a") == 3


@pytest.mark.parametrize("attempted, at", [(0, 0), (2, 0), (1, 5), (7, 5), (5, 5), (-1, 0)])
def test_a_wrong_version_is_refused_naming_both(attempted: int, at: int) -> None:
    state = empty(at - 1)
    state = append(state, foreign(at, *FIRST)).snapshot
    with pytest.raises(ReplayError, match=f"version {attempted}, but the state is at version {at}$"):
        append(state, foreign(attempted, txn("a", 1)))
    DumbTable().assert_same(empty())


def test_a_refused_version_changes_nothing() -> None:
    state = append(empty(), foreign(0, *FIRST, add("a"))).snapshot
    with pytest.raises(ReplayError):
        append(state, foreign(5, add("b"), remove("a")))
    assert [file.path for _, file in state.rows()] == ["a"]
    assert state.files.live("b") is None


def test_a_log_without_protocol_is_version_one() -> None:
    assert append(empty(), foreign(0, metadata())).snapshot.protocol == NO_PROTOCOL
    assert (NO_PROTOCOL.min_reader_version, NO_PROTOCOL.min_writer_version) == (1, 1)


def _operation(version: int, operation: str) -> VersionRecord:
    sub = SubCommit(commit_id="c", seq=0, operation=operation, action_count=0)
    return VersionRecord(version, version, "p", (sub,), ())


def test_a_drop_holds_until_the_table_is_registered_again() -> None:
    state = append(empty(), record(0, FIRST)).snapshot
    dropped = append(state, _operation(1, DROP)).snapshot
    after = append(dropped, record(2, (add("a"),))).snapshot
    back = append(after, _operation(3, REGISTER)).snapshot
    assert [s.dropped for s in (state, dropped, after, back)] == [False, True, True, False]
    assert back.table_id == "table-1"


def test_groups_of_a_version() -> None:
    one, two = (add("a"), add("b")), (remove("c"),)
    assert [(sub.seq if sub else None, group) for sub, group in record(1, one, (), two).groups()] == [
        (0, one),
        (1, ()),
        (2, two),
    ]
    assert list(foreign(1, *one).groups()) == [(None, one)]


def test_the_cost_of_a_version_does_not_grow_with_the_table() -> None:
    """Counted, not timed: a version touches its own rows of the file log only."""
    head = append(empty(), foreign(0, *FIRST, *(add(f"f{n}") for n in range(5000)))).snapshot
    rows_before = head.files
    for version in range(1, 50):
        head = append(head, foreign(version, add(f"g{version}"), remove(f"f{version}"))).snapshot
        assert head.files is rows_before, "no version copies the files"
    assert (head.num_files, head.files.dead_rows, len(head.files)) == (5000, 49, 5049)
