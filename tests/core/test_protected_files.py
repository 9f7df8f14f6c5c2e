"""Objects that are not a table's to delete: by cases, and for any name and time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog_server.core.protected_files import (
    MARKERS,
    DataObject,
    Why,
    created_at,
    folders_above,
    is_table_metadata,
    markers_in,
    why_protected,
)
from tarnlog_server.core.setting_values import HOUR
from tarnlog_server.core.vacuum_plan import VacuumPlan
from tarnlog_server.core.vacuum_references import References

CREATED = 1_704_067_200_000


@pytest.mark.parametrize(
    "path,modified,why",
    [
        ("part-0.parquet", CREATED, None),
        ("part-0.parquet", CREATED - 1, Why.OLDER),
        ("day=1/part-0.parquet", CREATED + HOUR, None),
        ("metadata/v1.metadata.json", CREATED + HOUR, Why.OTHER_TABLE),
        ("metadata/snap-1-1-a.avro", CREATED + HOUR, Why.OTHER_TABLE),
        ("db/t/metadata/00000.metadata.json", CREATED + HOUR, Why.OTHER_TABLE),
        ("x/%6Detadata/a", CREATED + HOUR, Why.OTHER_TABLE),
        ("metadata", CREATED + HOUR, None),
        ("metadata=1/part-0.parquet", CREATED + HOUR, None),
        ("my-metadata/part-0.parquet", CREATED + HOUR, None),
        ("_delta_log/00000000000000000000.json", CREATED + HOUR, Why.NOT_DATA),
        ("old/_delta_log/00000000000000000000.json", CREATED + HOUR, Why.NOT_DATA),
        ("nested/_transaction_log/00000000000000000000.json", CREATED + HOUR, Why.NOT_DATA),
        ("_catalog/a/b/00000000000000000000.json", CREATED + HOUR, Why.NOT_DATA),
        (".hoodie/hoodie.properties", CREATED + HOUR, Why.NOT_DATA),
    ],
)
def test_what_is_protected(path: str, modified: int, why: Why | None) -> None:
    assert why_protected(DataObject(path, 1, modified), CREATED) is why


@pytest.mark.parametrize(
    "created_time,first_version,expected",
    [
        (CREATED, CREATED + 5, CREATED + 5),
        (CREATED, CREATED - 30_000, CREATED - 30_000),  # the replica's clock is ahead of the store's
        (CREATED, CREATED + 90 * 24 * HOUR, CREATED + 90 * 24 * HOUR),  # a copied or restored log
        (CREATED, None, CREATED),  # version 0 was cleaned up
        (CREATED + 999, None, CREATED),  # a file of the same second, in a store that counts seconds
        (None, CREATED, CREATED),
        (None, None, 0),
    ],
)
def test_when_a_table_was_created(created_time: int | None, first_version: int | None, expected: int) -> None:
    assert created_at(created_time, first_version) == expected


def test_the_folders_that_are_checked() -> None:
    assert folders_above("a/b/c.parquet") == ["", "a", "a/b"]
    assert folders_above("c.parquet") == [""]
    assert markers_in("a") == MARKERS
    assert "_transaction_log" not in markers_in(""), "the table's own log does not make its folder a foreign one"
    assert set(markers_in("")) == {"_delta_log", "metadata", ".hoodie", "_catalog"}


@pytest.mark.parametrize(
    "marker,name,is_metadata",
    [
        ("metadata", "v3.metadata.json", True),
        ("metadata", "00001-abc.metadata.json.gz", True),
        ("metadata", "version-hint.text", True),
        ("metadata", "snap-12-1-a.avro", True),
        ("metadata", "readme.txt", False),
        ("_delta_log", "00000000000000000000.json", True),
        ("_transaction_log", "anything", True),
    ],
)
def test_metadata_above_a_location(marker: str, name: str, is_metadata: bool) -> None:
    assert is_table_metadata(marker, name) is is_metadata


NAMES = st.lists(
    st.sampled_from(["a", "day=1", "metadata", "_delta_log", "part-0.parquet", ".x"]), min_size=1, max_size=4
).map("/".join)


@given(NAMES, st.integers(-2, 2), st.booleans(), st.integers(0, 10))
def test_no_plan_deletes_a_protected_object(path: str, offset: int, was_added: bool, retention_ms: int) -> None:
    """Not even one that the log names elsewhere, and however short the retention is."""
    references = References()
    if was_added:
        references.add("other")
    one = DataObject(path, 1, CREATED + offset)
    plan = VacuumPlan(references, (), now_ms=CREATED + HOUR, retention_ms=retention_ms, created_ms=CREATED)
    may_go = plan.orphans([one]).objects == (one,)
    assert may_go == (why_protected(one, CREATED) is None)
    if may_go:
        assert one.modified_ms >= CREATED
        assert not {"metadata", "_delta_log"} & set(path.split("/")[:-1])
