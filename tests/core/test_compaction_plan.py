"""What a compaction rewrites, and the order it writes in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog.protocol.schema import Field, Primitive, StructType
from tarnlog_server.core.compaction_plan import (
    FULL,
    Rewrite,
    choose,
    dead_entries,
    manifest_limit,
    partition_rank,
    pieces,
)
from tarnlog_server.core.state_files import Manifest, Tombstone


def manifests(*sizes: int) -> tuple[Manifest, ...]:
    """m0, m1, ...: each holds the files of its own version."""
    return tuple(Manifest(f"m{i}", size, i, i) for i, size in enumerate(sizes))


def stones(*counts: int) -> dict[str, Tombstone]:
    """So many dead entries in m0, m1, ..."""
    made = [Tombstone(f"{i}-{n}", f"{i}-{n}", 99, i) for i, count in enumerate(counts) for n in range(count)]
    return {one.key: one for one in made}


@pytest.mark.parametrize(
    "sizes,dead,added,max_manifests,dead_first,expected",
    [
        # nothing asks for it: whoever does anyway wants everything
        ((100, 100), (0, 0), 0, 20, False, FULL),
        # one manifest is a tenth of the table and wholly dead
        ((100,) * 10, (0, 0, 100), 0, 20, False, Rewrite(False, ("m2",))),
        # the worst first, until half the threshold is left
        ((100,) * 10, (10, 90, 40, 0), 0, 20, False, Rewrite(False, ("m1", "m2"))),
        # half of the table would be rewritten: all of it then
        ((100,) * 4, (50, 50), 0, 20, False, FULL),
        # too many: the small ones are merged, the large one stays
        ((1000, *(1,) * 20), (), 1, 20, False, Rewrite(False, tuple(f"m{i}" for i in range(1, 8)))),
        # after a merge every dead entry goes, however few there are
        ((100,) * 10, (1, 0, 1), 0, 20, True, Rewrite(False, ("m0", "m2"))),
        ((100,) * 10, (), 0, 20, True, FULL),
    ],
)
def test_choice(
    sizes: tuple[int, ...],
    dead: tuple[int, ...],
    added: int,
    max_manifests: int,
    dead_first: bool,
    expected: Rewrite,
) -> None:
    live = sum(sizes) - sum(dead) + added
    made = choose(
        manifests(*sizes),
        stones(*dead),
        live,
        added,
        tombstone_threshold=0.1,
        max_manifests=max_manifests,
        entries_per_manifest=50_000,
        dead_first=dead_first,
    )
    assert made == expected


def test_without_knowing_where_the_dead_are_everything_is_rewritten() -> None:
    both = (Manifest("m0", 10, 0, 5), Manifest("m1", 1000, 3, 9))
    assert dead_entries(both, {"a": Tombstone("a", "a", 9, 1)}) == {"m0": 1, "m1": 0}
    assert dead_entries(both, {"a": Tombstone("a", "a", 9, 4)}) is None
    assert dead_entries(both, {"a": Tombstone("a", "a")}) is None


@pytest.mark.parametrize(
    "setting,files,limit",
    [(20, 0, 20), (1, 50_000, 1), (20, 500_000, 20), (20, 1_000_000, 40), (20, 2_000_001, 82), (100, 1_000_000, 100)],
)
def test_a_large_table_may_have_more_manifests(setting: int, files: int, limit: int) -> None:
    assert manifest_limit(setting, files, 50_000) == limit


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=30),
    st.integers(0, 9),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    st.integers(1, 8),
    st.integers(1, 10),
)
def test_after_a_compaction_nothing_asks_for_another(
    loads: list[tuple[int, int]], added: int, threshold: float, max_manifests: int, per: int
) -> None:
    sizes = [size for size, _ in loads]
    dead = [min(count, size) for size, count in loads]
    live = sum(sizes) - sum(dead) + added
    made = choose(
        manifests(*sizes),
        stones(*dead),
        live,
        added,
        tombstone_threshold=threshold,
        max_manifests=max_manifests,
        entries_per_manifest=per,
    )
    if made.full:
        return
    chosen = {int(name[1:]) for name in made.names}
    left = sum(count for i, count in enumerate(dead) if i not in chosen)
    assert left <= threshold * live
    written = added + sum(sizes[i] - dead[i] for i in chosen)
    assert len(sizes) - len(chosen) + -(-written // per) <= manifest_limit(max_manifests, live, per)
    assert 2 * sum(sizes[i] for i in chosen) < sum(sizes)


@given(st.integers(0, 50), st.integers(1, 10))
def test_pieces_cover_everything_in_order(count: int, per: int) -> None:
    made = pieces(count, per)
    assert [one for start, stop in made for one in range(start, stop)] == list(range(count))
    assert all(0 < stop - start <= per for start, stop in made)
    assert len(made) == -(-count // per)


def test_partitions_are_ordered_by_type_and_nulls_come_first() -> None:
    schema = StructType(
        (Field("N", Primitive("integer")), Field("day", Primitive("date")), Field("s", Primitive("string")))
    )
    rank = partition_rank(schema, ["N", "day"])
    rows: list[dict[str, str | None]] = [
        {"N": "10", "day": "2024-01-02"},
        {"N": "9", "day": "2024-01-02"},
        {"N": "9", "day": "19723"},
        {"N": "9", "day": None},
        {"N": "9"},
        {"N": "what", "day": "2024-01-02"},
        {"N": None, "day": "2024-01-02"},
    ]
    ordered = sorted(rows, key=rank)
    assert [row["N"] for row in ordered] == [None, "9", "9", "9", "9", "10", "what"]
    assert [row.get("day") for row in ordered[1:5]] == [None, None, "19723", "2024-01-02"]
    assert partition_rank(schema, [])({"N": "1"}) == ()
    assert partition_rank(schema, ["unknown"])({"unknown": "x"}) == ((2, "x"),)
