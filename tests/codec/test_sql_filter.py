"""SQL filters: what each spelling means, what is refused and where, and that any tree survives the way through SQL."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarnlog.protocol.predicates import (
    And,
    Compare,
    In,
    IsNotNull,
    IsNull,
    Not,
    Or,
    Predicate,
    PredicateError,
)
from tarnlog.protocol.schema import parse_schema
from tarnlog_server.codec.sql_filter import EVERYTHING, MAX_TEXT, NOTHING, SqlFilterError, parse_sql_filter
from tarnlog_server.core.match import check_predicate

COLUMNS = {
    "id": "long",
    "name": "string",
    "price": "decimal(38,10)",
    "amount": "double",
    "ok": "boolean",
    "date": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "order": "integer",
    "größe": "integer",
    "a b": "string",
    "a`b": "string",
    "dot.ted": "long",
}
SCHEMA = parse_schema(
    {
        "type": "struct",
        "fields": [
            *({"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in COLUMNS.items()),
            {
                "name": "who",
                "type": {
                    "type": "struct",
                    "fields": [{"name": "City", "type": "string", "nullable": True, "metadata": {}}],
                },
                "nullable": True,
                "metadata": {},
            },
        ],
    }
)


def eq(column: str, value: Any) -> Compare:
    return Compare("eq", column, value)


MEANINGS: list[tuple[str, Predicate]] = [
    ("id = 5", eq("id", 5)),
    ("id == 5", eq("id", 5)),
    ("5 = id", eq("id", 5)),
    ("id <> 5", Compare("ne", "id", 5)),
    ("id != 5", Compare("ne", "id", 5)),
    ("5 < id", Compare("gt", "id", 5)),
    ("5 <= id", Compare("ge", "id", 5)),
    ("5 > id", Compare("lt", "id", 5)),
    ("5 >= id", Compare("le", "id", 5)),
    ("id < -5", Compare("lt", "id", -5)),
    ("id = - -5", eq("id", 5)),
    ("id = +5", eq("id", 5)),
    ("id = 5L", eq("id", 5)),
    ("id = 5.0", eq("id", 5)),
    ("id > 5.5", Compare("gt", "id", 5.5)),
    ("id = CAST('7' AS BIGINT)", eq("id", 7)),
    ("((id = (5)))", eq("id", 5)),
    ("id BETWEEN 5 AND 9", And((Compare("ge", "id", 5), Compare("le", "id", 9)))),
    ("id NOT BETWEEN 5 AND 9", Not(And((Compare("ge", "id", 5), Compare("le", "id", 9))))),
    ("id IN (1, 2, NULL)", In("id", (1, 2, None))),
    ("id NOT IN (1)", Not(In("id", (1,)))),
    ("id IS NULL", IsNull("id")),
    ("id IS NOT NULL", IsNotNull("id")),
    ("NOT id IS NULL", IsNotNull("id")),
    ("id <=> 5", And((IsNotNull("id"), eq("id", 5)))),
    ("5 <=> id", And((IsNotNull("id"), eq("id", 5)))),
    ("id <=> NULL", IsNull("id")),
    ("id IS DISTINCT FROM 5", Not(And((IsNotNull("id"), eq("id", 5))))),
    ("name LIKE 'ab%'", Compare("starts-with", "name", "ab")),
    ("name NOT LIKE 'ab%'", Not(Compare("starts-with", "name", "ab"))),
    ("name LIKE 'ab'", eq("name", "ab")),
    ("name LIKE '%'", IsNotNull("name")),
    (r"name LIKE '50\%\_%'", Compare("starts-with", "name", "50%_")),
    ("name LIKE '50!%%' ESCAPE '!'", Compare("starts-with", "name", "50%")),
    ("startswith(name, 'ab')", Compare("starts-with", "name", "ab")),
    ("name = 'it''s'", eq("name", "it's")),
    (r"name = 'it\'s'", eq("name", "it's")),
    ('name = "two"', eq("name", "two")),
    ("name = 'a' 'b'", eq("name", "ab")),
    (r"name = r'a\b'", eq("name", r"a\b")),
    ("name = 'Ünïcödé 😀'", eq("name", "Ünïcödé 😀")),
    ("name = ''", eq("name", "")),
    ("größe = 1", eq("größe", 1)),
    ("order = 1 AND date = '2024-01-01'", And((eq("order", 1), eq("date", "2024-01-01")))),
    ("`a b` = 'x' OR `a``b` = 'y'", Or((eq("a b", "x"), eq("a`b", "y")))),
    ("`dot.ted` = 1", eq("dot.ted", 1)),
    ("who.city = 'Ulm'", eq("who.city", "Ulm")),
    ("ID = 5", eq("ID", 5)),
    ("date = DATE '2024-01-31'", eq("date", "2024-01-31")),
    ("date >= CAST('2024-01-31' AS DATE)", Compare("ge", "date", "2024-01-31")),
    ("at < TIMESTAMP '2024-01-31 10:00:00'", Compare("lt", "at", "2024-01-31 10:00:00")),
    ("at < TIMESTAMP '2024-01-31T10:00:00+02:00'", Compare("lt", "at", "2024-01-31T10:00:00+02:00")),
    ("at >= DATE '2024-01-31'", Compare("ge", "at", "2024-01-31")),
    ("local < TIMESTAMP_NTZ '2024-01-31 10:00:00'", Compare("lt", "local", "2024-01-31 10:00:00")),
    ("price = 12.50", eq("price", "12.50")),
    ("price > -12345678901234567890.0123456789", Compare("gt", "price", "-12345678901234567890.0123456789")),
    ("price = 1.5BD", eq("price", "1.5")),
    ("price = CAST('0.10' AS DECIMAL(10, 2))", eq("price", "0.10")),
    ("price = 3", eq("price", 3)),
    ("amount > 0.1", Compare("gt", "amount", 0.1)),
    ("amount > 1e3", Compare("gt", "amount", 1000)),
    ("amount > 1.5D", Compare("gt", "amount", 1.5)),
    ("amount = CAST('Infinity' AS DOUBLE)", eq("amount", "Infinity")),
    ("ok", eq("ok", True)),
    ("NOT ok", Not(eq("ok", True))),
    ("ok = FALSE", eq("ok", False)),
    ("ok IS TRUE", And((IsNotNull("ok"), eq("ok", True)))),
    ("ok IS NOT FALSE", Not(And((IsNotNull("ok"), eq("ok", False))))),
    ("TRUE", EVERYTHING),
    ("FALSE", NOTHING),
    ("NOT TRUE", NOTHING),
    ("1 = 1", EVERYTHING),
    ("'a' > 'b'", NOTHING),
    ("1 = 1 AND id = 5", eq("id", 5)),
    ("id = 5 AND 1 = 2", NOTHING),
    ("id = 5 OR FALSE", eq("id", 5)),
    ("id = 5 OR TRUE", EVERYTHING),
    ("id = 1 AND id = 2 AND id = 3", And((eq("id", 1), eq("id", 2), eq("id", 3)))),
    ("id = 1 OR id = 2 AND ok", Or((eq("id", 1), And((eq("id", 2), eq("ok", True)))))),
    ("id = 1 -- that one\n/* and */ AND ok", And((eq("id", 1), eq("ok", True)))),
]


@pytest.mark.parametrize("text, meaning", MEANINGS, ids=[text for text, _ in MEANINGS])
def test_meaning(text: str, meaning: Predicate) -> None:
    found = parse_sql_filter(text, SCHEMA)
    assert found == meaning
    check_predicate(found, SCHEMA)


REFUSALS: list[tuple[str, str, int | None]] = [
    ("", "leave it out", None),
    ("   ", "leave it out", None),
    ("id =", "not a SQL predicate", 3),
    ("id = 5 garbage here", "not a SQL predicate", None),
    ("name = 'open", "quote", None),
    ("id = 5; ok", "semicolon", 6),
    ("nobody = 5", "there is no column 'nobody'", 0),
    ("id = 5 AND nobody = 5", "there is no column 'nobody'", 11),
    ("who.nobody = 'x'", "there is no column", 0),
    ("dot.ted = 1", "back quotes", 0),
    ("id = order", "two columns", 0),
    ("id = NULL", "IS NULL", 0),
    ("lower(name) = 'x'", "LOWER cannot be used", 0),
    ("f(id) = 1", "the function f", 0),
    ("id + 1 = 5", "ADD cannot be used", 0),
    ("id IN (SELECT 1)", "list of constants", 0),
    ("id = (SELECT 1)", "a subquery", 13),
    ("EXISTS (SELECT 1)", "EXISTS cannot be used", 15),
    ("id IN (1, order)", "is no constant", 10),
    ("name LIKE '%x'", "one % at the end", 0),
    ("name LIKE 'a_%'", "one % at the end", 0),
    ("name LIKE 'a%b%'", "one % at the end", 0),
    ("name LIKE name", "pattern in quotes", 0),
    ("name ILIKE 'x%'", "ILIKE cannot be used", 0),
    ("name RLIKE 'x'", "REGEXPLIKE cannot be used", 0),
    ("date = DATE '2024-1-5'", "DATE '2024-01-31'", None),
    ("name = DATE '2024-01-05'", "the column is string", 0),
    ("CAST(name AS DATE) = '2024-01-05'", "CAST cannot be used", None),
    ("price = CAST('0.125' AS DECIMAL(10, 2))", "would round", None),
    ("price = CAST('x' AS DECIMAL(10, 2))", "decimal digits", None),
    ("id = 1e999999999", "too many digits", None),
    ("id < 1e38", "more than 38 digits", 0),
    ("id IN (1, -1e300)", "more than 38 digits", None),
    ("amount = 1e399", "larger than any double", 0),
    ("date = current_date()", "CURRENTDATE cannot be used", None),
    ("id BETWEEN SYMMETRIC 5 AND 1", "SYMMETRIC", 0),
    ("id IS 5", "after IS", 0),
    ("1 = 'a'", "TRUE or FALSE", 0),
    ("NULL", "NULL cannot be used", None),
    ("id = ?", "PLACEHOLDER cannot be used", None),
    ("(id, ok) = (1, TRUE)", "TUPLE cannot be used", None),
    ("(" * 31 + "ok" + ")" * 31, "nested deeper", 30),
    ("NOT " * 31 + "ok", "nested deeper", 120),
    ("id = " + "- " * 31 + "5", "nested deeper", 65),
    ("name = '" + "x" * MAX_TEXT + "'", "send it as a tree", None),
    ("name = '\ud800'", "surrogate", 8),
]


@pytest.mark.parametrize("text, part, position", REFUSALS, ids=[text[:40] for text, _, _ in REFUSALS])
def test_refusal(text: str, part: str, position: int | None) -> None:
    with pytest.raises(SqlFilterError) as caught:
        parse_sql_filter(text, SCHEMA)
    assert part in caught.value.message
    if position is not None:
        assert caught.value.position == position


ZONED: list[tuple[str, str, str]] = [
    ("America/New_York", "2024-01-01 00:00:00", "2024-01-01T05:00:00Z"),
    ("America/New_York", "2024-07-01", "2024-07-01T04:00:00Z"),
    ("America/New_York", "2024-03-10 02:30:00", "2024-03-10T07:30:00Z"),  # no clock showed that: half an hour later
    ("America/New_York", "2024-11-03 01:30:00", "2024-11-03T05:30:00Z"),  # clocks showed it twice: the first time
    ("America/New_York", "1883-11-18 12:00", "1883-11-18T16:56:02Z"),  # the time of the sun
    ("Asia/Kolkata", "2024-01-01T00:00:00.123456789", "2023-12-31T18:30:00.123456789Z"),
    ("+02:00", "2024-01-01 00:00:00 ", "2023-12-31T22:00:00Z"),
    ("-1", "2024-01-01", "2024-01-01T01:00:00Z"),
    ("GMT+0530", "2024-01-01", "2023-12-31T18:30:00Z"),
    ("UTC", "2024-01-01", "2024-01-01T00:00:00Z"),
    ("America/New_York", "2024-01-01 00:00:00Z", "2024-01-01 00:00:00Z"),
    ("America/New_York", "2024-01-01T00:00:00+01:00", "2024-01-01T00:00:00+01:00"),
]


@pytest.mark.parametrize("zone, written, meant", ZONED)
def test_times_without_a_zone_are_the_sessions(zone: str, written: str, meant: str) -> None:
    for constant in (f"'{written}'", f"TIMESTAMP '{written}'"):
        assert parse_sql_filter(f"at < {constant}", SCHEMA, zone) == Compare("lt", "at", meant)
    check_predicate(Compare("lt", "at", meant), SCHEMA)


def test_only_columns_with_a_zone_have_the_sessions() -> None:
    zone = "America/New_York"
    same = ("local < '2024-01-01 10:00:00'", "date < '2024-01-01'", "name < '2024-01-01'", "local > DATE '2024-01-01'")
    for text in same:
        assert parse_sql_filter(text, SCHEMA, zone) == parse_sql_filter(text, SCHEMA)
    assert parse_sql_filter("at > DATE '2024-01-01'", SCHEMA, zone) == Compare("gt", "at", "2024-01-01T05:00:00Z")
    timed = "local > TIMESTAMP '2024-01-01 10:00:00'"
    assert parse_sql_filter(timed, SCHEMA, "UTC") == parse_sql_filter(timed, SCHEMA)
    with pytest.raises(SqlFilterError, match="without TIMESTAMP"):
        parse_sql_filter(timed, SCHEMA, zone)


@pytest.mark.parametrize("zone", ["", "Nowhere/Town", "../etc/passwd", "/etc/passwd", "+19:00", "a\0b", "x" * 64, "."])
def test_a_zone_that_is_not_known_is_told_where_it_is_needed(zone: str) -> None:
    with pytest.raises(SqlFilterError, match="is not known: write the time with an offset"):
        parse_sql_filter("at < '2024-01-01'", SCHEMA, zone)
    assert parse_sql_filter("id < 5 AND at < '2024-01-01'", SCHEMA) is not None
    assert parse_sql_filter("id < 5", SCHEMA, zone) == Compare("lt", "id", 5)


@pytest.mark.parametrize("written", ["0001-01-01 00:00:00", "9999-12-31 23:59:59"])
def test_the_ends_of_time(written: str) -> None:
    zone = "-05:00" if written[0] == "9" else "+05:00"
    with pytest.raises(SqlFilterError, match="years 1 to 9999"):
        parse_sql_filter(f"at < '{written}'", SCHEMA, zone)


def test_long_chains_and_lists_are_fine() -> None:
    many = parse_sql_filter(" OR ".join(f"id = {number}" for number in range(3000)), SCHEMA)
    assert isinstance(many, Or)
    assert len(many.args) == 3000
    listed = parse_sql_filter(f"id IN ({','.join(map(str, range(5000)))})", SCHEMA)
    assert listed == In("id", tuple(range(5000)))


def test_more_parts_than_a_tree_may_have_are_refused() -> None:
    with pytest.raises(SqlFilterError, match="more than 10000 parts"):
        parse_sql_filter(" OR ".join(["ok"] * 10_001), SCHEMA)


@settings(max_examples=300, deadline=None)
@given(st.text() | st.text(alphabet="id=<>()'\"`%_-.5 ANDORTnot\\ex", max_size=40))
def test_any_text_is_a_filter_or_is_refused(text: str) -> None:
    with contextlib.suppress(PredicateError):
        check_predicate(parse_sql_filter(text, SCHEMA), SCHEMA)


# A tree, written as SQL in the plainest way, reads back as the same tree.

_TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "id": st.integers(-(10**30), 10**30),
    "name": _TEXT,
    "a`b": _TEXT,
    "who.City": _TEXT,
    "größe": st.integers(-5, 5),
    "dot.ted": st.integers(-5, 5),
    "ok": st.booleans(),
    "date": st.dates().map(str),
    "amount": st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: value != int(value)),
    "price": st.decimals(-(10**20), 10**20, places=9)
    .filter(lambda value: value != int(value))
    .map(lambda value: format(value, "f")),
}


@st.composite
def leaves(draw: st.DrawFn) -> Predicate:
    column = draw(st.sampled_from(sorted(_VALUES)))
    value = _VALUES[column]
    kind = draw(st.sampled_from(["compare", "in", "null", "not-null", "prefix"]))
    if kind == "null":
        return IsNull(column)
    if kind == "not-null":
        return IsNotNull(column)
    if kind == "in":
        return In(column, tuple(draw(st.lists(value | st.none(), min_size=1, max_size=3))))
    if kind == "prefix" and column == "name":
        return Compare("starts-with", column, draw(_TEXT.filter(bool)))
    return Compare(draw(st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"])), column, draw(value))


TREES = st.recursive(
    leaves(),
    lambda inner: (
        inner.filter(lambda arg: not isinstance(arg, IsNull)).map(Not)
        | st.lists(inner.filter(lambda arg: not isinstance(arg, And)), min_size=2, max_size=3).map(
            lambda a: And(tuple(a))
        )
        | st.lists(inner.filter(lambda arg: not isinstance(arg, Or)), min_size=2, max_size=3).map(
            lambda a: Or(tuple(a))
        )
    ),
    max_leaves=8,
)
_SIGNS = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def constant(column: str, value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    return quoted(value) if isinstance(value, str) and column != "price" else str(value)


def name(column: str) -> str:
    parts = column.split(".") if column == "who.City" else [column]
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def like(prefix: str) -> str:
    return quoted("".join(f"\\{char}" if char in "%_\\" else char for char in prefix) + "%")


def sql(tree: Predicate) -> str:
    match tree:
        case And(args):
            return " AND ".join(f"({sql(arg)})" for arg in args)
        case Or(args):
            return " OR ".join(f"({sql(arg)})" for arg in args)
        case Not(arg):
            return f"NOT ({sql(arg)})"
        case IsNull(column):
            return f"{name(column)} IS NULL"
        case IsNotNull(column):
            return f"{name(column)} IS NOT NULL"
        case In(column, values):
            return f"{name(column)} IN ({', '.join(constant(column, value) for value in values)})"
        case Compare("starts-with", column, value):
            return f"{name(column)} LIKE {like(str(value))}"
        case Compare(op, column, value):
            return f"{name(column)} {_SIGNS[op]} {constant(column, value)}"


@settings(max_examples=300, deadline=None)
@given(TREES)
def test_a_tree_survives_the_way_through_sql(tree: Predicate) -> None:
    assert parse_sql_filter(sql(tree), SCHEMA) == tree
