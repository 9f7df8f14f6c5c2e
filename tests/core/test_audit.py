"""What an audit decides without storage: gaps, doubles, and where two snapshots differ."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog.protocol.actions import Action, Add, Format, MetaData, Protocol, Remove, Skip, Txn
from tarnlog_server.core.audit import SHOWN, SeenIds, differences, missing_versions, some
from tarnlog_server.core.replay import Snapshot, append, empty
from tarnlog_server.core.tombstones import Tombstones
from tarnlog_server.core.version_record import VersionRecord


@given(st.sets(st.integers(0, 40)), st.integers(0, 20), st.integers(-1, 45))
def test_missing_versions_are_what_a_set_says(there: set[int], first: int, last: int) -> None:
    expected = [number for number in range(first, last + 1) if number not in there]
    assert missing_versions(sorted(there), first, last) == expected


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 9)), max_size=20))
def test_ids_that_are_there_twice_are_what_a_dict_says(seen: list[tuple[str, int]]) -> None:
    ids = SeenIds()
    places: dict[str, list[int]] = {}
    for commit_id, version in seen:
        ids.add(commit_id, version)
        places.setdefault(commit_id, []).append(version)
    assert len(ids) == len(seen)
    assert ids.twice() == sorted(tuple(found) for found in places.values() if len(found) > 1)


def test_a_few_examples_stand_for_many() -> None:
    assert some([]) == ""
    assert some(["a", "b"]) == "a, b"
    assert some([str(n) for n in range(SHOWN + 2)]) == "0, 1, 2, 3, 4 and 2 more"
    assert some(["a"], 1 + SHOWN).endswith("and 1 more")


METADATA = MetaData(
    id="i", format=Format(provider="parquet"), schema_string="{}", partition_columns=(), configuration={}
)


def add(path: str, **fields: Any) -> Add:
    known: dict[str, Any] = {"partition_values": {}, "size": 10, "modification_time": 1, "data_change": True}
    return Add(path=path, **(known | fields))


def replayed(*versions: tuple[Action, ...]) -> Snapshot:
    state = empty()
    for number, actions in enumerate(versions):
        state = append(state, VersionRecord(number, 100 + number, "p", (), actions)).snapshot
    return state


def history(**last: Any) -> Snapshot:
    """Three files, one of which was removed; `last` changes the file that was added last."""
    return replayed(
        (Protocol(min_reader_version=4, min_writer_version=4), METADATA),
        (add("a"), add("b"), Txn(app_id="job", version=1)),
        (Remove(path="a", data_change=True), Skip(path="b", skip_timestamp=1, reason="r", operation="o")),
        (add(**({"path": "c"} | last)),),
    )


def test_equal_snapshots_have_no_difference() -> None:
    assert differences(history(), history()) == []
    assert differences(empty(), empty()) == []


def test_a_state_may_have_forgotten_removes_and_tells_of_no_change_of_data() -> None:
    stored = dataclasses.replace(history(data_change=False), tombstones=empty().tombstones)
    assert differences(history(), stored) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"size": 11},
        {"modification_time": 2},
        {"num_records": 5},
        {"partition_values": {"p": "1"}},
        {"doc_mapping_ref": "h"},
        {"stats": "{}"},
        {"path": "d"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_every_difference_of_a_file_is_told(changed: dict[str, Any]) -> None:
    assert differences(history(), history(**changed))


def _with_one_more(tombstones: Tombstones) -> Tombstones:
    return Tombstones(tombstones.known.set("z", (Remove(path="z", data_change=True), 1)))


def test_every_difference_of_the_facts_is_told() -> None:
    right = history()
    other = msgspec.structs.replace(METADATA, id="j")
    for wrong, word in (
        (dataclasses.replace(right, version=9), "version"),
        (dataclasses.replace(right, timestamp=9), "timestamp"),
        (dataclasses.replace(right, protocol=Protocol(min_reader_version=1, min_writer_version=1)), "protocol"),
        (dataclasses.replace(right, metadata=other), "metadata"),
        (dataclasses.replace(right, dropped=True), "dropped"),
        (dataclasses.replace(right, total_bytes=9), "total bytes"),
        (dataclasses.replace(right, txns=empty().txns), "txns"),
        (dataclasses.replace(right, skips=empty().skips), "skips"),
        (
            dataclasses.replace(right, tombstones=_with_one_more(right.tombstones)),
            "z",
        ),
    ):
        assert any(word in sentence for sentence in differences(right, wrong)), word


def test_a_file_that_was_added_at_another_version_is_told() -> None:
    early = replayed((add("a"),), (add("b"),))
    late = replayed((add("b"),), (add("a"),))
    assert differences(early, late)


@pytest.mark.parametrize(
    "first,second,same",
    [
        ("old", "old", True),
        ("old", "new", True),
        ("docMappingSchema.old", "new", True),
        ("old", "other", False),
        ("old", "unknown", False),
        ("old", None, False),
        ("unknown", "unknown", True),
    ],
)
def test_a_mapping_may_go_by_another_name_only_if_it_means_the_same(
    first: str | None, second: str | None, same: bool
) -> None:
    texts = {"old": '{"b":1,"a":2}', "new": '{"a":2, "b":1}', "other": '{"a":3}'}
    metadata = msgspec.structs.replace(
        METADATA, configuration={f"docMappingSchema.{ref}": text for ref, text in texts.items()}
    )

    def table(ref: str | None) -> Snapshot:
        return replayed(
            (Protocol(min_reader_version=4, min_writer_version=4), metadata), (add("a", doc_mapping_ref=ref),)
        )

    assert (differences(table(first), table(second)) == []) == same
