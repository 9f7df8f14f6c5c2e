"""Pruning tables: files that must be dropped, files that must stay, and filters that do not fit the schema."""

from __future__ import annotations

from typing import Any

import pytest

from tarnlog.protocol.predicates import PredicateError, parse_predicate
from tarnlog.protocol.schema import Schema, parse_schema
from tarnlog_server.core.match import check_predicate, compile_predicate, may_match

MICROS = 1_000_000
DAY = 86_400 * MICROS
JAN_31 = 19753  # 2024-01-31 in epoch days

TYPES: dict[str, object] = {
    "id": "long",
    "small": "byte",
    "price": "decimal(20,4)",
    "real": "double",
    "single": "float",
    "flag": "boolean",
    "day": "date",
    "at": "timestamp",
    "wall": "timestamp_ntz",
    "name": "string",
    "code": "varchar(40)",
    "fixed": "char(4)",
    "raw": "binary",
    "list": {"type": "array", "elementType": "long", "containsNull": True},
    "nest": {"type": "struct", "fields": [{"name": "inner", "type": "long"}]},
    "p": "string",
    "pday": "date",
    "pnum": "integer",
    "preal": "double",
}
PARTITIONS = ("p", "pday", "pnum", "preal")


def make_schema() -> Schema:
    fields = [{"name": name, "type": data_type} for name, data_type in TYPES.items()]
    collated = {"name": "collated", "type": "string", "metadata": {"__COLLATIONS": {"collated": "spark.UTF8_LCASE"}}}
    return parse_schema({"type": "struct", "fields": [*fields, collated]})


SCHEMA = make_schema()


def c(op: str, column: str, value: object) -> dict[str, Any]:
    return {"op": op, "column": column, "values" if op == "in" else "value": value}


def no(arg: object) -> dict[str, Any]:
    return {"op": "not", "arg": arg}


def both(*args: object) -> dict[str, Any]:
    return {"op": "and", "args": list(args)}


def either(*args: object) -> dict[str, Any]:
    return {"op": "or", "args": list(args)}


def null(column: str, not_null: bool = False) -> dict[str, Any]:
    return {"op": "is-not-null" if not_null else "is-null", "column": column}


def by_bounds(tree: object, low: str | None, high: str | None, truncation: int = 32) -> bool:
    """Ask with the same bounds for every column of the table."""
    lows = None if low is None else dict.fromkeys(SCHEMA.names, low)
    highs = None if high is None else dict.fromkeys(SCHEMA.names, high)
    return may_match(parse_predicate(tree), SCHEMA, (), {}, lows, highs, truncation)


def by_partition(tree: object, **values: str | None) -> bool:
    return may_match(parse_predicate(tree), SCHEMA, PARTITIONS, values, None, None)


PRUNED: list[tuple[object, str, str]] = [
    # numbers are numbers, not text
    (c("eq", "id", 5), "10", "20"),
    (c("eq", "id", 100), "10", "20"),
    (c("lt", "id", 10), "10", "20"),
    (c("le", "id", 9), "10", "20"),
    (c("gt", "id", 20), "10", "20"),
    (c("ge", "id", 21), "9", "20"),
    (c("eq", "id", 10.5), "11", "20"),
    (c("gt", "id", 20.0), "10", "20"),
    (c("gt", "id", 9223372036854775806), "0", "9223372036854775806"),
    (c("eq", "small", 300), "-128", "127"),
    (c("ne", "id", 7), "7", "7"),
    (c("in", "id", [1, 9, 21, None]), "10", "20"),
    (no(c("in", "id", [6, 7])), "7", "7"),
    (no(c("eq", "id", 7)), "7", "7"),
    (no(c("ne", "id", 7)), "8", "9"),
    (no(c("lt", "id", 30)), "10", "20"),
    (no(c("ge", "id", 10)), "10", "20"),
    # decimals are exact
    (c("eq", "price", "0.1001"), "0.1002", "5"),
    (c("gt", "price", "99999999999999.9999"), "0", "99999999999999.9999"),
    (c("ne", "price", "1.50"), "1.5", "1.5000"),
    (c("lt", "price", 1), "1.0000", "2"),
    # doubles: only what NaN cannot spoil
    (c("eq", "real", 5.0), "6", "7.5"),
    (c("lt", "real", 5), "5.1", "7.5"),
    (c("le", "single", -1), "-0.5", "Infinity"),
    (c("in", "real", [1, 2.5]), "3.0E0", "1e3"),
    (no(c("ne", "real", 5.0)), "6", "7"),
    # booleans
    (c("eq", "flag", True), "false", "false"),
    (c("ne", "flag", True), "true", "TRUE"),
    (c("lt", "flag", True), "true", "true"),
    # dates in three spellings, also mixed
    (c("eq", "day", "2024-02-01"), "2024-01-01", "2024-01-31"),
    (c("eq", "day", "2024-02-01"), "19723", str(JAN_31)),
    (c("eq", "day", "2024-02-01"), str(19723 * DAY), str(JAN_31 * DAY)),
    (c("gt", "day", "2024-01-31"), "2024-01-01", str(JAN_31 * DAY)),
    (c("lt", "day", "1969-12-31"), "-1", "0"),
    (c("ne", "day", "2024-01-31"), "2024-01-31", str(JAN_31)),
    # timestamps as microseconds or ISO
    (c("gt", "at", "2024-01-31T00:00:00Z"), "0", str(JAN_31 * DAY)),
    (c("lt", "at", "2024-01-31"), str(JAN_31 * DAY), str(JAN_31 * DAY + 5)),
    (c("ge", "at", "2024-01-31T00:00:00.124Z"), "2024-01-30T00:00:00Z", "2024-01-31T00:00:00.123Z"),
    (c("lt", "at", "2024-01-31T02:00:00+02:00"), "2024-01-31T00:00:00Z", "2024-02-01T00:00:00Z"),
    (c("eq", "at", "2024-01-31T12:00:00Z"), "2024-02-02 00:00:00", "2024-02-02 10:00:00"),
    (c("gt", "wall", "2024-01-31T10:00:01"), "2024-01-31T09:00:00", "2024-01-31T10:00:00.000000"),
    # text by code point
    (c("eq", "name", "b"), "c", "d"),
    (c("eq", "name", "B"), "a", "c"),
    (c("gt", "name", "b"), "a", "b"),
    (c("eq", "name", "z"), "ä", "ü"),
    (c("ge", "code", "ba"), "a", "b"),
    (c("starts-with", "name", "ab"), "b", "c"),
    (c("starts-with", "name", "ab"), "aa", "aaz"),
    (c("starts-with", "name", "ab"), "ac", "b" * 40),
    (no(c("starts-with", "name", "ab")), "ab", "abz"),
    (c("lt", "name", "a" * 32), "a" * 32, "b" * 32),
    (c("in", "name", ["a", "z"]), "b", "y"),
    # trees
    (both(c("ge", "id", 0), c("gt", "id", 20)), "10", "20"),
    (either(c("lt", "id", 10), c("gt", "id", 20)), "10", "20"),
    (no(either(c("le", "id", 15), c("le", "id", 30))), "10", "20"),
    (no(both(c("ge", "id", 10), c("le", "id", 20))), "10", "20"),
    (no(no(c("eq", "id", 5))), "10", "20"),
    (c("in", "id", [None]), "10", "20"),
    (no(c("in", "id", [5, None])), "10", "20"),
]


@pytest.mark.parametrize("tree, low, high", PRUNED)
def test_files_that_must_be_dropped(tree: object, low: str, high: str) -> None:
    assert not by_bounds(tree, low, high)


@pytest.mark.parametrize("tree", [c("in", "id", [None]), no(c("in", "id", [5, None]))])
def test_what_no_row_can_satisfy_needs_no_bounds(tree: object) -> None:
    assert not by_bounds(tree, None, None)


@pytest.mark.parametrize("tree, low, high", [case for case in PRUNED if "None" not in str(case[0])])
def test_missing_or_unreadable_bounds_keep_the_file(tree: object, low: str, high: str) -> None:
    assert by_bounds(tree, low, None)
    assert by_bounds(tree, None, high)
    if "'name'" not in str(tree) and "'code'" not in str(tree):
        for unreadable in ("", "x", "NaN", "1_0", "٣", "2024-13-01", "9" * 80, "1e99999", "+-inf"):
            assert by_bounds(tree, unreadable, high)
            assert by_bounds(tree, low, unreadable)


KEPT: list[tuple[object, str, str]] = [
    (c("eq", "id", 9), "8", "10"),
    (c("le", "id", 10), "10", "20"),
    (c("ge", "id", 20.0), "10", "20"),
    (c("ne", "id", 7), "7", "8"),
    (c("in", "id", [1, 15]), "10", "20"),
    (no(c("in", "id", [7])), "7", "8"),
    (no(c("gt", "id", 10)), "10", "20"),
    (no(c("ge", "id", 11)), "10", "20"),
    (no(c("lt", "id", 20)), "10", "20"),
    (no(c("le", "id", 19)), "10", "20"),
    (c("eq", "id", 9007199254740992.0), "9007199254740993", "9007199254740993"),
    (null("id"), "1", "2"),
    (null("id", not_null=True), "1", "2"),
    (no(null("id")), "1", "2"),
    (c("eq", "id", 5), "9", "1"),
    # NaN may hide in any file of a floating column, above everything or beside everything
    (c("gt", "real", 100), "1", "2"),
    (c("ge", "single", 100), "1", "2"),
    (c("ne", "real", 1), "1", "1"),
    (no(c("eq", "real", 1)), "1", "1"),
    (no(c("in", "real", [1])), "1", "1"),
    (no(c("gt", "real", 0)), "1", "2"),
    (no(c("lt", "real", 9)), "1", "2"),
    (c("eq", "real", "NaN"), "1", "2"),
    (c("lt", "real", "NaN"), "Infinity", "Infinity"),
    (c("in", "real", [0, "NaN"]), "1", "2"),
    (c("eq", "real", 5), "1", "NaN"),
    (c("eq", "real", 5), "NaN", "NaN"),
    (c("eq", "real", 0), "-0.0", "-0.0"),
    (c("le", "real", -0.0), "0.0", "1"),
    (c("eq", "real", "Infinity"), "1", "1e400"),
    # a float's spelling is not its value as a double
    (c("eq", "single", 0.10000000149011612), "0.1", "0.1"),
    (c("eq", "single", 0.1), "0.1", "0.1"),
    (c("lt", "real", 0.69999999), "0.7", "0.7"),
    (c("eq", "real", 9007199254740993), "9007199254740992", "9007199254740992"),
    (c("eq", "price", 0.1), "0.1", "0.1"),
    # a date as microseconds must be a midnight
    (c("eq", "day", "2030-01-01"), "0", str(JAN_31 * DAY + 1)),
    # a maximum in ISO may have been cut to milliseconds, and text without a zone may be of any zone
    (c("gt", "at", "2024-01-31T00:00:00.123Z"), "2024-01-30T00:00:00Z", "2024-01-31T00:00:00.123Z"),
    (c("eq", "at", "2024-01-31T10:00:00.5Z"), "2024-01-31T10:00:00Z", "2024-01-31T10:00:00Z"),
    (c("eq", "at", "2024-01-31T10:00:00Z"), "2024-01-31 20:00:00", "2024-01-31 21:00:00"),
    (c("eq", "wall", "2024-01-31T10:00:00"), "2024-01-31T10:00:00", "2024-01-31T10:00:00"),
    # a maximum of 32 UTF-16 units has no upper end, for every operator
    (c("eq", "name", "zz"), "a", "b" * 32),
    (c("gt", "name", "zz"), "a", "b" * 32),
    (c("ge", "name", "zz"), "a", "b" * 40),
    (c("in", "name", ["zz"]), "a", "b" * 32),
    (c("ne", "name", "b" * 32), "b" * 32, "b" * 32),
    (no(c("eq", "name", "b" * 32)), "b" * 32, "b" * 32),
    (no(c("in", "name", ["b" * 32])), "b" * 32, "b" * 32),
    (c("starts-with", "name", "zz"), "a", "b" * 32),
    (no(c("starts-with", "name", "b")), "b", "b" * 32),
    (no(c("le", "name", "c")), "a", "b" * 32),
    (c("gt", "name", "zz"), "a", "😀" * 16),
    (c("gt", "name", "c"), "a", "b" * 30 + "😀"),
    # bounds that were taken by UTF-16 unit
    (c("eq", "name", "\uffee"), "😀", "\uffef"),
    (c("eq", "name", "😀"), "a", "\uffee"),
    # what readers may compare in another way
    (c("eq", "fixed", "ab"), "ab  ", "ab  "),
    (c("eq", "collated", "AB"), "ab", "ab"),
    (c("starts-with", "collated", "AB"), "ab", "ab"),
    (c("eq", "nest.inner", 5), "10", "20"),
    (both(c("eq", "id", 15), null("name")), "10", "20"),
]


@pytest.mark.parametrize("tree, low, high", KEPT)
def test_files_that_must_stay(tree: object, low: str, high: str) -> None:
    assert by_bounds(tree, low, high)


def test_the_recorded_truncation_length_can_be_shorter_but_never_longer_than_32() -> None:
    assert not by_bounds(c("gt", "name", "c"), "a", "b" * 10)
    assert by_bounds(c("gt", "name", "c"), "a", "b" * 10, 10)
    assert by_bounds(c("gt", "name", "c"), "a", "b" * 40, 64)


PARTITION_CASES: list[tuple[object, dict[str, str | None], bool]] = [
    (c("eq", "p", "a"), {"p": "a"}, True),
    (c("eq", "P", "a"), {"p": "b"}, False),
    (c("ne", "p", "a"), {"p": "a"}, False),
    (c("ne", "p", "a"), {"p": None}, False),
    (no(c("eq", "p", "a")), {"p": None}, False),
    (no(c("in", "p", ["a"])), {}, False),
    (no(c("starts-with", "p", "a")), {"p": None}, False),
    (no(both(c("eq", "p", "a"), c("eq", "pnum", 1))), {"p": None, "pnum": "2"}, True),
    (no(either(c("eq", "p", "a"), c("eq", "pnum", 1))), {"p": None, "pnum": "2"}, False),
    (null("p"), {"p": None}, True),
    (null("p"), {}, True),
    (null("p"), {"p": "a"}, False),
    (no(null("p")), {"p": "a"}, True),
    (null("p", not_null=True), {"p": None}, False),
    (null("p", not_null=True), {"p": "a"}, True),
    (null("p"), {"p": ""}, True),
    (null("p", not_null=True), {"p": ""}, True),
    (c("eq", "p", "x"), {"p": "__HIVE_DEFAULT_PARTITION__"}, True),
    (c("gt", "p", "x" * 40), {"p": "x" * 39}, False),  # partition values are never cut
    (c("ne", "p", "x" * 40), {"p": "x" * 40}, False),
    (c("starts-with", "p", "ab"), {"p": "abc"}, True),
    (c("starts-with", "p", "ab"), {"p": "b"}, False),
    (no(c("starts-with", "p", "ab")), {"p": "abc"}, False),
    (c("lt", "pday", "2024-02-01"), {"pday": "2024-02-01"}, False),
    (c("lt", "pday", "2024-02-01"), {"pday": "19753"}, True),
    (c("lt", "pday", "2024-02-01"), {"pday": "someday"}, True),
    (c("gt", "pnum", 9), {"pnum": "10"}, True),
    (c("in", "pnum", [1, 2]), {"pnum": "10"}, False),
    (c("in", "pnum", [1, 10]), {"pnum": "10"}, True),
    (c("gt", "preal", 5), {"preal": "1.5"}, False),  # the value is known, so no NaN hides
    (no(c("lt", "preal", 5)), {"preal": "1.5"}, False),
    (c("gt", "preal", 5), {"preal": "NaN"}, True),
    (c("eq", "preal", "NaN"), {"preal": None}, False),
]


@pytest.mark.parametrize("tree, values, expected", PARTITION_CASES)
def test_partition_values(tree: object, values: dict[str, str | None], expected: bool) -> None:
    assert by_partition(tree, **values) is expected


def test_a_compiled_predicate_serves_many_files() -> None:
    tree = parse_predicate(both(c("eq", "p", "a"), c("in", "id", list(range(0, 10_000, 10)))))
    test = compile_predicate(tree, SCHEMA, PARTITIONS)
    kept = [n for n in range(100) if test({"p": "a"}, {"id": str(n)}, {"id": str(n)})]
    assert kept == list(range(0, 100, 10))
    assert not test({"p": "b"}, None, None)
    assert test({"p": "a"}, None, None)


MISFITS: list[tuple[object, str, str]] = [
    (c("eq", "nope", 1), "/column", "no column 'nope'"),
    (c("eq", "nest.nope", 1), "/column", "no column"),
    (c("eq", "id.x", 1), "/column", "no column"),
    (null("nope"), "/column", "no column"),
    (both(null("id"), no(c("eq", "nope", 1))), "/args/1/arg/column", "no column"),
    (c("eq", "id", "5"), "/value", "id is long: write the value as a number"),
    (c("eq", "id", True), "/value", "number"),
    (c("in", "id", [1, "x"]), "/values/1", "number"),
    (c("eq", "price", "1,5"), "/value", "decimal text"),
    (c("eq", "price", False), "/value", "number"),
    (c("eq", "real", "1.5"), "/value", "NaN"),
    (c("eq", "real", True), "/value", "number"),
    (c("eq", "flag", 1), "/value", "true or false"),
    (c("eq", "day", 19753), "/value", "date such as"),
    (c("eq", "day", "2024-02-30"), "/value", "date such as"),
    (c("eq", "day", "20240201"), "/value", "date such as"),
    (c("eq", "day", "2024-02-01T00:00:00Z"), "/value", "date such as"),
    (c("eq", "at", 1704067200000), "/value", "ISO 8601"),
    (c("eq", "at", "yesterday"), "/value", "ISO 8601"),
    (c("eq", "at", "2024-01-01T25:00:00Z"), "/value", "ISO 8601"),
    (c("eq", "wall", "2024-01-01T00:00:00Z"), "/value", "no time zone"),
    (c("eq", "name", 5), "/value", "as text"),
    (c("eq", "fixed", 5), "/value", "as text"),
    (c("eq", "raw", "00"), "/value", "only is-null"),
    (c("eq", "list", 1), "/value", "only is-null"),
    (c("eq", "nest", 1), "/value", "only is-null"),
    (c("starts-with", "id", "1"), "/column", "text column"),
    (c("starts-with", "day", "2024"), "/column", "text column"),
]


@pytest.mark.parametrize("tree, pointer, message", MISFITS)
def test_filters_that_do_not_fit_the_schema(tree: object, pointer: str, message: str) -> None:
    with pytest.raises(PredicateError) as caught:
        check_predicate(parse_predicate(tree), SCHEMA, pointer="/filter")
    assert caught.value.pointer == "/filter" + pointer
    assert message in caught.value.message


@pytest.mark.parametrize(
    "tree",
    [
        null("raw"),
        null("list", not_null=True),
        null("nest.inner"),
        c("eq", "NEST.Inner", 5),
        c("eq", "ID", 2.5),
        c("eq", "price", "1e3"),
        c("lt", "real", "-Infinity"),
        c("eq", "at", "2024-01-31 10:00:00.123456789+05:30"),
        c("eq", "at", "2024-01-31"),
        c("starts-with", "fixed", "a"),
    ],
)
def test_filters_that_fit(tree: object) -> None:
    check_predicate(parse_predicate(tree), SCHEMA)
