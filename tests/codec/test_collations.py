"""Columns under a collation: how they are known, and that nothing in the log decides a comparison of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarnlog import InvalidRequest
from tarnlog._row_filter import check_collations, compared_columns
from tarnlog.protocol.actions import Add
from tarnlog.protocol.predicates import And, Compare, In, IsNotNull, IsNull, Not, Or, Predicate, to_builtins
from tarnlog.protocol.schema import Schema, parse_schema, parse_schema_string
from tarnlog_server.codec.column_bounds import ColumnBoundsBuilder, bounded_columns
from tarnlog_server.codec.manifest_filter import ManifestFilter
from tarnlog_server.codec.partition_bounds import BoundsBuilder, for_other_readers, partition_fields
from tarnlog_server.codec.scan_rows import explain, prune
from tarnlog_server.codec.segment_filter import SegmentFilter
from tarnlog_server.codec.state_manifest import ManifestInfo
from tarnlog_server.codec.wanted_entries import Wanted
from tarnlog_server.core.conflict import Ground, reads_match
from tarnlog_server.core.evolution import SchemaChangeNotAllowed, check_evolution, check_replacement
from tarnlog_server.core.match import file_filter
from tests.codec.scans import metadata, packed, snapshot_with
from tests.core.making import intent, txn
from tests.core.test_match_soundness import OPS


def field(name: str, kind: object = "string", collation: object = None) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {"__COLLATIONS": collation} if collation else {}}


def schema(*fields: dict[str, Any]) -> Schema:
    return parse_schema({"type": "struct", "fields": list(fields)})


NAMES = {
    "spark.UTF8_LCASE": "spark.UTF8_LCASE",
    "icu.UNICODE": "icu.UNICODE",
    "icu.UNICODE_CI_RTRIM": "icu.UNICODE_CI_RTRIM",
    "icu.de_CI_AI.75.1": "icu.de_CI_AI.75.1",
    "spark.UTF8_BINARY_RTRIM": "spark.UTF8_BINARY_RTRIM",
    "spark.UTF8_BINARY": None,
    "UTF8_BINARY": None,
}


@pytest.mark.parametrize("name, collation", NAMES.items())
def test_only_utf8_binary_compares_by_bytes(name: str, collation: str | None) -> None:
    for one in (field("c", "string", {"c": name}), field("c", "varchar(3)", {"c": name})):
        assert schema(one).fields[0].collation == collation
    text = schema(field("c", "string", {"c": name})).to_schema_string()
    assert parse_schema_string(text).fields[0].metadata == {"__COLLATIONS": {"c": name}}, "kept as it came"


def test_what_is_no_map_of_names_is_no_binary_collation() -> None:
    assert schema(field("c", "string", "icu.UNICODE")).fields[0].collation == "icu.UNICODE"
    assert schema(field("c", "string", {"other": "icu.UNICODE"})).fields[0].collation == "icu.UNICODE"
    assert schema(field("c")).fields[0].collation is None


def test_parts_have_collations_of_their_own() -> None:
    array = {"type": "array", "elementType": "string", "containsNull": True}
    parts = schema(
        field("arr", array, {"arr.element": "icu.UNICODE_CI"}),
        field("St.x"),
        field("st", {"type": "struct", "fields": [field("X", "string", {"X": "icu.UNICODE"})]}),
    )
    assert parts.fields[0].collation is None, "an array is not compared"
    assert parts.fields[0].collations == {"arr.element": "icu.UNICODE_CI"}
    found = parts.find("ST.x")
    assert found is not None
    assert found.collation is None, "a column whose name has a dot"
    nested = schema(parts.to_json_object()["fields"][2]).find("sT.x")  # type: ignore[index]
    assert nested is not None
    assert nested.collation == "icu.UNICODE"
    assert [parts.find(name) for name in ("no", "arr.element", "st.no", "st.X.y", "")] == [None] * 5


def test_the_spelling_as_a_type_becomes_metadata() -> None:
    """Spark reads `string collate X` and writes the metadata."""
    map_type = {"type": "map", "keyType": "string collate de", "valueType": "string", "valueContainsNull": True}
    array = {"type": "array", "elementType": map_type, "containsNull": True}
    given = schema(field("a", "string collate UTF8_LCASE"), field("b", "string collate UTF8_BINARY"), field("c", array))
    assert given.to_json_object()["fields"] == [
        field("a", "string", {"a": "spark.UTF8_LCASE"}),
        field("b"),
        field("c", {**array, "elementType": {**map_type, "keyType": "string"}}, {"c.element.key": "icu.de"}),
    ]
    assert parse_schema_string(given.to_schema_string()) == given


PLAIN, LCASE = field("c"), field("c", "string", {"c": "spark.UTF8_LCASE"})


@pytest.mark.parametrize("old, new", [(PLAIN, LCASE), (LCASE, PLAIN), (LCASE, field("c", "string", {"c": "icu.de"}))])
def test_a_collation_does_not_change(old: dict[str, Any], new: dict[str, Any]) -> None:
    with pytest.raises(SchemaChangeNotAllowed, match="c: the collation cannot change"):
        check_evolution(schema(old), schema(new), ())
    check_replacement(schema(old), schema(new), ())  # no file of the old schema stays
    with pytest.raises(SchemaChangeNotAllowed, match="c: the table is partitioned by it"):
        check_replacement(schema(old), schema(new), ("c",))


def test_binary_by_name_is_no_change() -> None:
    named = field("c", "string", {"c": "spark.UTF8_BINARY"})
    check_evolution(schema(PLAIN), schema(named), ("c",))
    check_replacement(schema(named), schema(PLAIN), ("c",))


TABLE = schema(
    field("id", "long"), field("name", "string", {"name": "icu.UNICODE_CI"}), field("p", "string", {"p": "icu.de"})
)
META = metadata(TABLE.to_schema_string(), ("p",))
TEXTS = st.sampled_from(["a", "A", "b", "ä", "", "zz", "__HIVE_DEFAULT_PARTITION__"])


def comparisons(column: str) -> st.SearchStrategy[Predicate]:
    found = st.builds(Compare, st.sampled_from([*OPS, "starts-with"]), st.just(column), TEXTS)
    listed = st.builds(In, st.just(column), st.lists(TEXTS, min_size=1, max_size=3).map(tuple))
    return found | listed | (found | listed).map(Not)


@st.composite
def files(draw: st.DrawFn) -> list[Add]:
    """Files of one or more rows, whose bounds are those of bytes."""
    made = []
    for number in range(draw(st.integers(1, 8))):
        low, high = sorted((draw(TEXTS), draw(TEXTS)))
        made.append(
            Add(
                path=f"{number:03}",
                partition_values={"p": draw(TEXTS | st.none())},
                size=1,
                modification_time=number,
                data_change=True,
                min_values={"id": str(10 * number), "name": low},
                max_values={"id": str(10 * number + 9), "name": high},
            )
        )
    return made


def manifest(some: list[Add]) -> ManifestInfo:
    partitions, columns = BoundsBuilder(partition_fields(META)), ColumnBoundsBuilder(bounded_columns(META))
    for add in some:
        partitions.note(add.partition_values)
        columns.note(add)
    bounds = partitions.result()
    assert for_other_readers(bounds, partition_fields(META)) is None
    return ManifestInfo(
        path="m", num_entries=len(some), partition_bounds=bounds, column_bounds=columns.result(), sha256="x"
    )


def kept(predicate: Predicate, some: list[Add], packed_rows: int) -> list[str]:
    """The files that stay, which every way of pruning must agree on."""
    tree = file_filter(predicate, TABLE, ("p",))
    found = [add for add in some if tree(add.partition_values, add.min_values, add.max_values)]
    rows = SegmentFilter(packed(some, ("p",))).select(tree)
    assert (list(range(len(some))) if rows is None else rows.to_pylist()) == [some.index(add) for add in found]
    snapshot = snapshot_with(some, packed_rows, META)
    assert list(prune(snapshot, predicate).rows) == [some.index(add) for add in found]
    assert [one.path for one in explain(snapshot, predicate) if one.kept] == [add.path for add in found]
    wanted = Wanted(tree, ("p",))
    assert all(wanted((add.partition_values["p"],)) for add in found)
    assert ManifestFilter(predicate, META).may_hold(manifest(some)) or not found
    ground = Ground(snapshot, TABLE, ("p",), META)
    reads = (to_builtins(predicate),)
    reader = intent(1, txn("a", 1), filters=reads, schema=META.schema_string, partitions=("p",), read_version=0)
    assert [add for add in some if reads_match(reader, add, ground)] == found, "as conflicts are judged"
    return [add.path for add in found]


@settings(max_examples=60, deadline=None)
@given(files(), comparisons("name"), comparisons("p"), st.integers(0, 8))
def test_no_comparison_leaves_out_a_file_that_has_a_value(
    some: list[Add], by_name: Predicate, by_partition: Predicate, packed_rows: int
) -> None:
    packed_rows = min(packed_rows, len(some))
    everything = [add.path for add in some]
    assert kept(by_name, some, packed_rows) == everything
    # Null is not equal, less or greater under any collation.
    valued = [add.path for add in some if add.partition_values["p"] is not None]
    assert kept(by_partition, some, packed_rows) == valued
    assert kept(Or((by_name, Compare("eq", "id", 1))), some, packed_rows) == everything
    # Other columns decide as ever, and so does whether there is a value.
    assert kept(And((by_name, Compare("lt", "id", 10))), some, packed_rows) == everything[:1]
    nulls = [add.path for add in some if add.partition_values["p"] in (None, "", "__HIVE_DEFAULT_PARTITION__")]
    assert kept(IsNull("p"), some, packed_rows) == nulls
    assert kept(And((by_name, IsNotNull("p"))), some, packed_rows) == valued


ROWS: list[tuple[Predicate, set[str]]] = [
    (Compare("eq", "name", "a"), {"name"}),
    (Compare("starts-with", "NAME", "a"), {"NAME"}),
    (And((Compare("eq", "id", 1), Not(In("p", ("a",))))), {"id", "p"}),
    (Or((IsNull("name"), Compare("lt", "p", "a"))), {"p"}),
]


@pytest.mark.parametrize("predicate, compared", ROWS)
def test_rows_are_not_compared_by_their_bytes(predicate: Predicate, compared: set[str]) -> None:
    assert compared_columns(predicate) == compared
    with pytest.raises(InvalidRequest, match=r"has the collation icu\..* Read without that condition") as refused:
        check_collations(predicate, TABLE)
    assert refused.value.slug == "filter-invalid"


def test_what_asks_for_values_alone_is_applied_to_rows() -> None:
    check_collations(And((IsNull("name"), IsNotNull("p"), Compare("eq", "id", 1))), TABLE)
    check_collations(Compare("eq", "name", "a"), schema(field("name", "string", {"name": "spark.UTF8_BINARY"})))


def test_a_column_that_is_binary_by_name_still_leaves_out_files() -> None:
    binary = schema(field("c", "string", {"c": "spark.UTF8_BINARY"}))
    assert not file_filter(Compare("eq", "c", "A"), binary, ())({}, {"c": "a"}, {"c": "b"})
