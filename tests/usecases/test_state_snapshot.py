"""A snapshot from a state: rows are in the order of versions, whatever another writer's state says of them."""

from __future__ import annotations

import msgspec

from tarnlog_server.codec.table_state import State, StateFile
from tarnlog_server.core.snapshot_tracker import SnapshotTracker
from tarnlog_server.usecases.state_snapshot import snapshot_of
from tests.codec.states import FACTS
from tests.core.making import add, metadata, record
from tests.core.test_reseat import listing, segment_of


def test_no_file_is_newer_than_its_state() -> None:
    """Packing puts rows in the order of versions: files that claim one of the future would move behind later ones."""
    claimed = {"b0": 1, "b1": 99, "b2": 0, "b3": 98, "b4": 5}
    files = [StateFile(add(path), version, 0) for path, version in claimed.items()]
    facts = msgspec.structs.replace(FACTS, version=5, metadata=metadata())
    state = SnapshotTracker(snapshot_of(State(facts, files, ours=False)))
    for version in (6, 7, 8):
        state.advance(record(version, (add(f"n{version}"),)))
    assert [version for version, _ in listing(state.head)] == [0, 1, 5, 5, 5, 6, 7, 8]
    before = [snapshot for version in (5, 6, 7, 8) if (snapshot := state.snapshot_at(version)) is not None]
    expected = [listing(snapshot) for snapshot in before]
    state.reseat(state.head, segment_of(state.head))
    after = [snapshot for version in (5, 6, 7, 8) if (snapshot := state.snapshot_at(version)) is not None]
    assert [listing(snapshot) for snapshot in after] == expected
    assert len(expected) == 4
