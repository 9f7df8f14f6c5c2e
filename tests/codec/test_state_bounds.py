"""Partition bounds: compared as the column's type does, and never narrower than the values."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog.protocol.actions import Format, MetaData
from tarnlog.protocol.schema import Field, Primitive
from tarnlog_server.codec.partition_bounds import BoundsBuilder, PartitionBounds, for_other_readers, partition_fields
from tests.codec.states import METADATA


def bounds_of(kind: str | None, values: Sequence[str | None]) -> PartitionBounds | None:
    builder = BoundsBuilder({"c": None if kind is None else Field("c", Primitive(kind))})
    for value in values:
        builder.note({"c": value})
    return (builder.result() or {}).get("c")


@pytest.mark.parametrize(
    "kind, values, expected",
    [
        ("integer", ["10", "9", "100"], ("9", "100", False)),
        ("long", ["-1", "-10", None], ("-10", "-1", True)),
        ("string", ["10", "9", "100"], ("10", "9", False)),
        (None, ["10", "9", "100"], ("10", "9", False)),
        ("string", ["b", "B", "ä", "\U0001f600", ""], ("", "\U0001f600", False)),
        ("date", ["2024-01-10", "19000", "2023-12-31"], ("19000", "2024-01-10", False)),
        ("double", ["1e3", "-Infinity", "5"], ("-Infinity", "1e3", False)),
        ("boolean", ["true", "false"], ("false", "true", False)),
        ("decimal", ["9.5", "10.25"], ("9.5", "10.25", False)),
        ("integer", [None, None], (None, None, True)),
        ("integer", [], (None, None, False)),
    ],
)
def test_bounds_by_type(kind: str | None, values: list[str | None], expected: tuple[object, ...]) -> None:
    bounds = bounds_of(kind, values)
    assert bounds is not None
    assert (bounds.min, bounds.max, bounds.contains_null) == expected


@pytest.mark.parametrize(
    "kind, values",
    [("integer", ["1", "x"]), ("double", ["1", "NaN"]), ("date", ["yesterday"]), ("char", ["a"]), ("binary", ["a"])],
)
def test_a_value_that_cannot_be_compared_leaves_no_bounds(kind: str, values: list[str]) -> None:
    assert bounds_of(kind, values) is None


def test_another_spelling_of_a_column_is_no_null() -> None:
    builder = BoundsBuilder({"day": None})
    builder.note({"day": "a"})
    builder.note({"Day": "b"})
    assert builder.result() is None
    absent = BoundsBuilder({"day": None})
    absent.note({"day": "a"})
    absent.note({})
    assert absent.result() == {"day": PartitionBounds(min="a", max="a", contains_null=True)}


def test_fresh_builders_share_nothing() -> None:
    builder = BoundsBuilder({"day": None})
    builder.note({"day": "a"})
    other = builder.fresh()
    other.note({"day": "b"})
    assert builder.result() == {"day": PartitionBounds(min="a", max="a", contains_null=False)}
    assert other.result() == {"day": PartitionBounds(min="b", max="b", contains_null=False)}
    assert BoundsBuilder({}).result() is None


@given(st.lists(st.none() | st.integers(-(10**20), 10**20), min_size=1))
def test_whole_numbers_against_pythons(values: list[int | None]) -> None:
    bounds = bounds_of("long", [None if value is None else str(value) for value in values])
    known = [value for value in values if value is not None]
    assert bounds is not None
    assert bounds.contains_null is (None in values)
    assert (bounds.min, bounds.max) == ((str(min(known)), str(max(known))) if known else (None, None))


@given(st.lists(st.text(max_size=3), min_size=1))
def test_bounds_for_other_readers_hold_in_utf16_order_too(values: list[str]) -> None:
    bounds = bounds_of("string", values)
    assert bounds is not None
    told = for_other_readers({"c": bounds}, {"c": Field("c", Primitive("string"))}) or {}
    for own in told.values():
        units = [value.encode("utf-16-be") for value in values]
        assert own["min"].encode("utf-16-be") == min(units)
        assert own["max"].encode("utf-16-be") == max(units)


@pytest.mark.parametrize(
    "kind, bounds, told",
    [
        ("date", ("2024-01-01", "2024-02-01", False), True),
        ("date", ("19000", "2024-02-01", False), False),
        ("date", ("2024-01-01", "2024-02-01", True), False),
        ("date", ("2024-01-01", "2024-02-01", None), False),
        ("integer", ("9", "10", False), False),
        ("timestamp", ("2024-01-01", "2024-02-01", False), False),
        ("string", ("a", "b", False), True),
        ("string", ("a", "ö", False), False),
        ("string", (None, None, False), False),
    ],
)
def test_what_other_readers_are_told(kind: str, bounds: tuple[str | None, str | None, bool | None], told: bool) -> None:
    low, high, null = bounds
    own = {"c": PartitionBounds(min=low, max=high, contains_null=null)}
    expected = {"c": {"min": low, "max": high}} if told else None
    assert for_other_readers(own, {"c": Field("c", Primitive(kind))}) == expected


def test_the_fields_of_partition_columns() -> None:
    fields = partition_fields(METADATA)
    assert {name: field and str(field.type) for name, field in fields.items()} == {"day": "date", "n": "integer"}
    assert partition_fields(None) == {}
    odd = MetaData(id="i", format=Format(), schema_string="nonsense", partition_columns=("a",), configuration={})
    assert partition_fields(odd) == {"a": None}
