"""Tombstones that are made when they are asked for, and not before."""

from __future__ import annotations

import dataclasses

import immutables

from tarnlog.protocol.actions import Add, Remove
from tarnlog_server.core.replay import append, empty
from tarnlog_server.core.tombstones import Removed, Tombstones
from tarnlog_server.core.version_record import VersionRecord

GONE: dict[str, Removed] = {name: (Remove(path=name, data_change=True), 3) for name in "abc"}


def test_they_are_made_once_and_only_when_asked_for() -> None:
    made: list[str] = []

    def make() -> dict[str, Removed]:
        made.append("once")
        return GONE

    stones = Tombstones(make=make)
    assert made == []
    assert ("a" in stones, "z" in stones, len(stones), stones["b"]) == (True, False, 3, GONE["b"])
    assert (dict(stones), made) == (GONE, ["once"])


def test_they_are_equal_by_what_they_hold() -> None:
    assert Tombstones(make=lambda: GONE) == Tombstones(immutables.Map(GONE)) == GONE
    assert Tombstones() == {}
    assert Tombstones() != GONE


def test_replay_goes_on_from_them() -> None:
    base = dataclasses.replace(empty(3), tombstones=Tombstones(make=lambda: GONE))
    add = Add(path="a", partition_values={}, size=1, modification_time=0, data_change=True)
    remove, timed = (Remove(path="d", data_change=True, deletion_timestamp=time) for time in (None, 4))
    after = append(base, VersionRecord(4, 4, "p", (), (add, remove))).snapshot
    assert after.tombstones == {"b": GONE["b"], "c": GONE["c"], "d": (timed, 4)}
    assert base.tombstones == GONE
    same = append(after, VersionRecord(5, 5, "p", (), ())).snapshot
    assert same.tombstones is after.tombstones
