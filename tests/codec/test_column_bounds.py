"""Bounds of manifests: those of their files and nothing narrower, given up where a file does not tell."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarnlog.protocol.actions import Add, Format, MetaData
from tarnlog.protocol.predicates import And, Compare, CompareOp, IsNotNull, IsNull, Not, Or, Predicate
from tarnlog.protocol.schema import parse_schema
from tarnlog_server.codec.column_bounds import MOST_COLUMNS, ColumnBoundsBuilder, bounded_columns
from tarnlog_server.codec.manifest_filter import ManifestFilter
from tarnlog_server.codec.partition_bounds import BoundsBuilder, PartitionBounds, partition_fields
from tarnlog_server.codec.state_manifest import ManifestInfo
from tarnlog_server.core.file_filter import MAYBE_NULL
from tarnlog_server.core.match import compile_predicate


def metadata(columns: dict[str, str], partitions: tuple[str, ...] = ()) -> MetaData:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    schema = parse_schema({"type": "struct", "fields": fields}).to_schema_string()
    return MetaData(
        id="i", format=Format(), schema_string=schema, partition_columns=partitions, configuration={}, created_time=0
    )


def file(low: dict[str, str] | None, high: dict[str, str] | None) -> Add:
    return Add(
        path="p", partition_values={}, size=1, modification_time=0, data_change=True, min_values=low, max_values=high
    )


CASES: list[tuple[str, list[tuple[str | None, str | None]], tuple[str, str] | None]] = [
    ("long", [("9", "10"), ("-1", "7")], ("-1", "10")),
    ("long", [("9", "10"), (None, "7")], None),
    ("long", [("9", "10"), ("x", "y")], None),
    ("long", [("9", "1")], None),
    ("decimal(10,2)", [("1.50", "2.5"), ("1.6", "2.25")], ("1.50", "2.5")),
    ("date", [("2024-01-02", "2024-01-03"), ("19700", "19701")], ("19700", "2024-01-03")),
    ("timestamp", [("2024-01-01T00:00:00Z", "2024-01-01T10:00:00Z")], ("2024-01-01T00:00:00Z", "2024-01-01T10:00:00Z")),
    ("double", [("NaN", "1.0")], None),
    ("boolean", [("false", "false"), ("true", "true")], ("false", "true")),
    ("string", [("a", "b")], None),
    ("binary", [("a", "b")], None),
    ("long", [], None),
]


@pytest.mark.parametrize("kind, files, wanted", CASES)
def test_bounds(kind: str, files: list[tuple[str | None, str | None]], wanted: tuple[str, str] | None) -> None:
    builder = ColumnBoundsBuilder(bounded_columns(metadata({"c": kind})))
    for low, high in files:
        builder.note(file(None if low is None else {"c": low}, None if high is None else {"c": high}))
    assert builder.result() == (None if wanted is None else {"c": wanted})
    assert builder.fresh().result() is None


def test_which_columns() -> None:
    many = {f"c{number}": "long" for number in range(100)}
    assert len(bounded_columns(metadata(many))) == MOST_COLUMNS
    assert list(bounded_columns(metadata({"a": "long", "b": "long", "t": "string"}, ("A",)))) == ["b"]
    assert bounded_columns(None) == {}


SPELLED: dict[str, st.SearchStrategy[str]] = {
    "long": st.integers(-20, 20).map(str),
    "double": st.sampled_from(["-1.5", "0", "0.1", "1e3", "NaN", "Infinity", "-Infinity"]),
    "date": st.sampled_from(["2024-01-01", "2024-01-02", "19722", "1704326400000000", "soon"]),
    "timestamp": st.sampled_from(
        ["2024-01-01T00:00:00Z", "2024-01-01 10", "2024-01-01T10:00:00.5", "1704067200000000"]
    ),
}
ASKED: dict[str, list[Any]] = {
    "long": [-21, -3, 0, 7, 21],
    "double": [-2.0, 0.1, 5.0, "NaN"],
    "date": ["2023-12-31", "2024-01-01", "2024-01-04"],
    "timestamp": ["2024-01-01T05:00:00Z", "2024-01-02T00:00:00Z"],
}
NULLABLE: dict[str, list[str | None]] = {
    "string": [None, "", "__HIVE_DEFAULT_PARTITION__", "a", "z", "A"],
    "integer": [None, "1", "10", "9", ""],
    "date": [None, "2024-01-01", "2024-02-01"],
}


def partitioned(kind: str, values: list[str | None]) -> tuple[MetaData, ManifestInfo]:
    meta = metadata({"c": kind}, ("c",))
    builder = BoundsBuilder(partition_fields(meta))
    for value in values:
        builder.note({"c": value})
    return meta, ManifestInfo(path="m", num_entries=len(values), partition_bounds=builder.result())


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_nulls_of_partitions_never_hide_a_file_that_may_match(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(NULLABLE)))
    values = data.draw(st.lists(st.sampled_from(NULLABLE[kind]), min_size=1, max_size=4))
    other = Compare("ne", "c", {"integer": 10}.get(kind, "2024-01-01"))
    choices: tuple[Predicate, ...] = (IsNull("c"), IsNotNull("c"), other)
    asked = data.draw(st.sampled_from(choices))
    if data.draw(st.booleans()):
        asked = Not(asked)
    meta, info = partitioned(kind, values)
    matching = any(_truth(asked, meaning) for value in values for meaning in _meanings(kind, value))
    assert ManifestFilter(asked, meta).may_hold(info) or not matching


def _meanings(kind: str, value: str | None) -> list[Any]:
    """The values that a partition value may stand for: some writers spell null as a text."""
    null = [None] if value is None or value in MAYBE_NULL else []
    if value is None or (kind != "string" and value in MAYBE_NULL):
        return null
    return [*null, int(value) if kind == "integer" else value]


def _truth(predicate: Predicate, value: Any) -> bool | None:
    """SQL's three values, for the predicates of the test above."""
    if isinstance(predicate, Not):
        inner = _truth(predicate.arg, value)
        return None if inner is None else not inner
    if isinstance(predicate, IsNull | IsNotNull):
        return (value is None) is isinstance(predicate, IsNull)
    assert isinstance(predicate, Compare)
    return None if value is None else bool(value != predicate.value)


@pytest.mark.parametrize(
    "kind, values, predicate, kept",
    [
        ("date", ["2024-01-01", "2024-01-02"], IsNull("c"), False),
        ("date", ["2024-01-01", None], IsNull("c"), True),
        ("date", [None, None], IsNull("c"), True),
        ("date", ["2024-01-01"], Not(IsNotNull("c")), False),
        ("date", [None, None], IsNotNull("c"), False),
        ("date", [None, "2024-01-01"], IsNotNull("c"), True),
        ("date", [None, None], Compare("eq", "c", "2024-01-01"), False),
        ("date", ["2024-01-01"], Or((IsNull("c"), Compare("eq", "c", "2024-01-01"))), True),
        ("date", ["2024-01-01"], And((IsNull("c"), Compare("eq", "c", "2024-01-01"))), False),
        ("string", ["a", "b"], IsNull("c"), False),
        ("string", ["", "b"], IsNull("c"), True),
        ("string", ["A", "a"], IsNull("c"), True),
    ],
)
def test_is_null_prunes_manifests_by_contains_null(
    kind: str, values: list[str | None], predicate: Predicate, kept: bool
) -> None:
    """A text that some writers use for null, such as `""`, keeps the manifest that may hold it."""
    meta, info = partitioned(kind, values)
    held, because = ManifestFilter(predicate, meta).decided(info)
    assert held is kept
    assert kept or {leaf.decider.value for leaf in because} == {"bounds"}


def test_another_writers_silence_about_nulls_prunes_nothing() -> None:
    meta, _ = partitioned("date", ["2024-01-01"])
    info = ManifestInfo(
        path="m", num_entries=1, partition_bounds={"c": PartitionBounds(min="2024-01-01", max="2024-01-02")}
    )
    assert ManifestFilter(IsNull("c"), meta).may_hold(info)


OPS: list[CompareOp] = ["eq", "ne", "lt", "le", "gt", "ge"]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_manifest_is_kept_while_one_of_its_files_is(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(SPELLED)))
    bounds = data.draw(st.lists(st.tuples(SPELLED[kind], SPELLED[kind]), min_size=1, max_size=4))
    predicate = Compare(data.draw(st.sampled_from(OPS)), "c", data.draw(st.sampled_from(ASKED[kind])))
    meta = metadata({"c": kind})
    builder = ColumnBoundsBuilder(bounded_columns(meta))
    for low, high in bounds:
        builder.note(file({"c": low}, {"c": high}))
    info = ManifestInfo(path="m", num_entries=len(bounds), column_bounds=builder.result())
    test = compile_predicate(
        predicate,
        parse_schema({"type": "struct", "fields": [{"name": "c", "type": kind, "nullable": True, "metadata": {}}]}),
        (),
    )
    kept = any(test({}, {"c": low}, {"c": high}) for low, high in bounds)
    assert ManifestFilter(predicate, meta).may_hold(info) or not kept
