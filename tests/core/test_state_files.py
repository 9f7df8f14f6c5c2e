"""Incremental states against plain replay: for our reading rule, and for the one of other software."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog.protocol.paths import path_key
from tarnlog_server.core import state_files as sf
from tarnlog_server.core.compaction_plan import choose, pieces
from tarnlog_server.core.state_files import Base, Change, Entry, Manifest, Removal, Tombstone

PER_MANIFEST = 3


def entry(path: str, version: int, size: int = 1) -> Entry:
    return Entry(path_key(path), path, version, size)


def visible_in_field(entries: Iterable[Entry], paths: Iterable[str]) -> list[Entry]:
    """The reading rule of other software: every entry whose path is not on the list."""
    hidden = frozenset(paths)
    return [entry for entry in entries if entry.path not in hidden]


def broken_promises(
    entries: Iterable[Entry], tombstones: Mapping[str, Tombstone], num_files: int, total_bytes: int
) -> list[str]:
    """The faults of a native state, as sentences; empty when both kinds of readers see what it records."""
    faults: list[str] = []
    seen: dict[str, Entry] = {}
    for entry in entries:
        if entry.key in seen:
            faults.append(f"{entry.path!r} has more than one entry: compact the table in full")
        seen[entry.key] = entry
    for key, tombstone in tombstones.items():
        hidden = seen.get(key)
        if hidden is None or hidden.path != tombstone.path:
            faults.append(f"the tombstone {tombstone.path!r} hides no entry of that spelling: compact the table")
        elif hidden.added_at >= tombstone.version:
            faults.append(f"the tombstone {tombstone.path!r} is older than its entry: rebuild the state")
    live = sf.visible(seen.values(), tombstones)
    count, size = len(live), sum(entry.size for entry in live.values())
    if (count, size) != (num_files, total_bytes):
        faults.append(f"it says {num_files} files of {total_bytes} bytes, and holds {count} of {size}: rebuild it")
    return faults


class Chain:
    """A table's states in a toy store, beside the dumb replay of its history."""

    def __init__(self) -> None:
        self.store: dict[str, list[Entry]] = {}
        self.base = Base(-1, (), {}, 0, 0)
        self.live: dict[str, Entry] = {}
        self.at_base: dict[str, Entry] = {}
        self.pending: list[Change] = []
        self.version = -1
        self.read: list[str] = []

    def commit(self, *changes: tuple[str, str, int]) -> None:
        """One version: (add or remove, path, size) in order. An add over a live path replaces it, as in replay."""
        self.version += 1
        for kind, path, size in changes:
            if kind == "add":
                made = entry(path, self.version, size)
                self.live[made.key] = made
                self.pending.append(made)
            else:
                self.live.pop(path_key(path), None)
                self.pending.append(Removal(path_key(path), self.version))

    def step(self) -> sf.Step:
        return sf.step(self.base, self.pending, self.at_base.get)

    def incremental(self, compact: Iterable[str] = ()) -> None:
        step = self.step()
        self.read = [*step.suspects, *compact]
        settled = sf.settle(self.base, step, {name: self.store[name] for name in self.read}, compact)
        self._write(settled.kept, settled.written, dict(settled.tombstones), step)

    def full(self) -> None:
        self._write((), tuple(self.live.values()), {}, self.step())

    def _write(
        self, kept: tuple[Manifest, ...], written: tuple[Entry, ...], tombstones: dict[str, Tombstone], step: sf.Step
    ) -> None:
        fresh = []
        ordered = sorted(written, key=lambda one: one.path)
        for start, stop in pieces(len(ordered), PER_MANIFEST):
            piece = ordered[start:stop]
            name = f"m{len(self.store)}"
            self.store[name] = piece
            versions = [one.added_at for one in piece]
            fresh.append(Manifest(name, len(piece), min(versions), max(versions)))
        self.base = Base(self.version, (*kept, *fresh), tombstones, step.num_files, step.total_bytes)
        self.at_base = dict(self.live)
        self.pending = []
        self.check()

    def entries(self) -> list[Entry]:
        return [one for manifest in self.base.manifests for one in self.store[manifest.name]]

    def check(self) -> None:
        base, entries = self.base, self.entries()
        assert broken_promises(entries, base.tombstones, base.num_files, base.total_bytes) == []
        assert sf.visible(entries, base.tombstones) == self.live, "our reading rule"
        field = visible_in_field(entries, [one.path for one in base.tombstones.values()])
        assert sorted(field, key=lambda one: one.key) == sorted(self.live.values(), key=lambda one: one.key)
        assert base.num_files == len(self.live)
        assert base.total_bytes == sum(one.size for one in self.live.values())


PATHS = st.sampled_from(["a", "b", "c", "d", "e", "x y", "x%20y", "./a", "p=1/f", "p%3D1/f"])
CHANGES = st.lists(st.tuples(st.sampled_from(["add", "remove"]), PATHS, st.integers(0, 9)), max_size=4)


STATES = st.sampled_from(["", "incremental", "some", "some", "chosen", "full"])


@given(st.permutations("abcde"), st.lists(st.tuples(CHANGES, STATES), max_size=15), st.data())
def test_any_history_of_states_shows_what_replay_shows(
    first: list[str], history: list[tuple[list[tuple[str, str, int]], str]], data: st.DataObject
) -> None:
    chain = Chain()
    for path in first[: data.draw(st.integers(0, 5))]:  # a manifest for each, so that there is something to choose from
        chain.commit(("add", path, 1))
        chain.incremental()
    for changes, state in history:
        chain.commit(*changes)
        names = [manifest.name for manifest in chain.base.manifests]
        if state == "incremental":
            chain.incremental()
        elif state == "some":
            chain.incremental(data.draw(st.sets(st.sampled_from(names))) if names else ())
        elif state == "full":
            chain.full()
        elif state == "chosen":
            step = chain.step()
            rewrite = choose(
                chain.base.manifests,
                step.tombstones,
                step.num_files,
                len(step.added),
                tombstone_threshold=data.draw(st.sampled_from([0.0, 0.1, 0.5])),
                max_manifests=data.draw(st.integers(1, 4)),
                entries_per_manifest=PER_MANIFEST,
                dead_first=data.draw(st.booleans()),
            )
            chain.full() if rewrite.full else chain.incremental(rewrite.names)


def three_files() -> Chain:
    """Manifests m0 (a), m1 (b), m2 (c), at versions 0, 1, 2."""
    chain = Chain()
    for path in "abc":
        chain.commit(("add", path, 1))
        chain.incremental()
    return chain


def test_a_new_path_and_a_removal_read_no_manifest() -> None:
    chain = three_files()
    chain.commit(("remove", "a", 0), ("add", "d", 5))
    chain.incremental()
    assert chain.read == []
    assert [one.name for one in chain.base.manifests] == ["m0", "m1", "m2", "m3"]
    assert chain.base.tombstones == {"a": Tombstone("a", "a", 3, 0)}


@pytest.mark.parametrize("between", [True, False])
def test_a_path_that_comes_back_costs_its_old_manifest_only(between: bool) -> None:
    chain = three_files()
    chain.commit(("remove", "b", 0))
    if between:
        chain.incremental()
    chain.commit(("add", "b", 7))
    chain.incremental()
    assert chain.read == ["m1"]
    assert [one.name for one in chain.base.manifests] == ["m0", "m2", "m3"]
    assert chain.base.tombstones == {}


def test_a_tombstone_is_spelled_as_the_entry_it_hides() -> None:
    chain = Chain()
    chain.commit(("add", "x%20y", 1))
    chain.incremental()
    chain.commit(("remove", "x y", 0))
    chain.incremental()
    assert [one.path for one in chain.base.tombstones.values()] == ["x%20y"]


def test_what_came_and_went_since_the_base_leaves_nothing() -> None:
    chain = three_files()
    chain.commit(("add", "d", 1))
    chain.commit(("remove", "d", 0), ("remove", "never there", 0))
    chain.incremental()
    assert len(chain.base.manifests) == 3
    assert chain.base.tombstones == {}


def test_compacting_other_manifests_keeps_a_tombstone() -> None:
    chain = three_files()
    chain.commit(("remove", "a", 0))
    chain.incremental(compact=["m1", "m2"])
    assert list(chain.base.tombstones) == ["a"]
    chain.incremental(compact=["m0"])
    assert chain.base.tombstones == {}


def test_reading_states_of_other_writers() -> None:
    entries = [
        entry("old", 1),
        entry("back", 1),
        entry("back", 5),
        entry("gone", 4),
        entry("twice", 2),
        entry("twice", 1),
    ]
    stones = {key: Tombstone(key, key, 3) for key in ("old", "back")}
    stones["gone"] = Tombstone("gone", "gone")
    shown = sf.visible(entries, stones)
    assert {key: one.added_at for key, one in shown.items()} == {"back": 5, "twice": 2}
    assert sf.visible([entry("f", 0)], {"f": Tombstone("f", "f", 1)}) == {}, "an unknown version is older than any"


@pytest.mark.parametrize(
    "entries,stones,counts,word",
    [
        ([entry("a", 1), entry("a", 2)], {}, (1, 1), "more than one"),
        ([entry("a", 1)], {"b": Tombstone("b", "b", 2, 1)}, (1, 1), "hides no entry"),
        ([entry("x%20y", 1)], {"x y": Tombstone("x y", "x y", 2, 1)}, (0, 0), "hides no entry"),
        ([entry("a", 5)], {"a": Tombstone("a", "a", 2, 1)}, (1, 1), "older than its entry"),
        ([entry("a", 1)], {}, (2, 1), "holds 1"),
        ([entry("a", 1)], {}, (1, 3), "rebuild"),
    ],
)
def test_broken_promises_are_named(
    entries: list[Entry], stones: dict[str, Tombstone], counts: tuple[int, int], word: str
) -> None:
    assert any(word in fault for fault in broken_promises(entries, stones, *counts))


def test_ten_files_on_a_million_cost_the_ten() -> None:
    asked: list[str] = []

    def live_in_base(key: str) -> Entry | None:
        asked.append(key)
        return entry(key, 7) if key.startswith("old") else None

    manifests = tuple(Manifest(f"m{i}", 50_000, i, i) for i in range(20))
    base = Base(100, manifests, {}, 1_000_000, 1_000_000)
    changes: list[Change] = [entry(f"new{i}", 101) for i in range(10)]
    changes += [Removal("old1", 101)]
    step = sf.step(base, changes, live_in_base)
    assert len(asked) == 11
    assert step.suspects == ()
    settled = sf.settle(base, step, {})
    assert settled.kept == manifests
    assert len(settled.written) == 10
    assert (step.num_files, step.total_bytes) == (1_000_009, 1_000_009)
