"""SQL filters that would keep the reader busy or make it recurse: refused by their words and signs, before it runs."""

from __future__ import annotations

import contextlib

import pytest

from tarnlog.protocol.predicates import In
from tarnlog.protocol.schema import parse_schema
from tarnlog_server.codec import sql_filter
from tarnlog_server.codec.sql_filter import MAX_CASTS, MAX_TEXT, SqlFilterError, parse_sql_filter

COLUMNS = {"a": "long", "b": "string", "d": "date"}
SCHEMA = parse_schema(
    {
        "type": "struct",
        "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in COLUMNS.items()],
    }
)
# What comes before, what is repeated, what is in the middle, what is repeated to close, what comes after.
Shape = tuple[str, str, str, str, str]
GROWING: dict[str, Shape] = {
    "casts of a column": ("a", "::int", "", "", " = 1"),
    "casts of a constant": ("a = 1", "::int", "", "", ""),
    "CASTs in one another": ("a = ", "cast(", "1", " as int)", ""),
    "many short cast chains": ("a in (1", "::int::int::int, 1", "", "", ")"),
    "comparisons": ("a", " = 1", "", "", ""),
    "IS NULL": ("a", " is null", "", "", ""),
    "names": ("a", ".b", "", "", " = 1"),
    "brackets": ("a", "[1]", "", "", " = 1"),
    "brackets in brackets": ("a", "[a", "", "]", " = 1"),
    "braces": ("", "{", "a", "}", ""),
    "CASE": ("", "case when ", "a=1", " then 1 end", ""),
    "sums": ("a = 1", "+1", "", "", ""),
    "NOT": ("", "not ", "a = 1", "", ""),
    "minus": ("a = ", "- ", "1", "", ""),
    "parentheses": ("", "(", "a = 1", ")", ""),
    "functions": ("", "f(", "a", ")", " = 1"),
    "subqueries": ("", "a in (select ", "1", ")", ""),
    "IN after IN": ("a", " in (1)", "", "", ""),
    "BETWEEN after BETWEEN": ("a", " between 1 and 2", "", "", ""),
    "types of types": ("a = cast(1 as ", "map<int,", "int", ">", ")"),
    "structs": ("", "struct<", "a", "", ""),
    "intervals": ("a = ", "interval ", "1 day", "", ""),
    "lambdas": ("", "x -> ", "a = 1", "", ""),
    "paths of JSON": ("a", "->'x'", "", "", " = 1"),
    "texts": ("b = 'x'", " 'x'", "", "", ""),
    "collations": ("b", " collate x", "", "", " = 'x'"),
    "parameters": ("", "@", "a = 1", "", ""),
    "dollars": ("", "$", "", "", ""),
    "words": ("", "a ", "", "", ""),
    "parts": ("a", " or a", "", "", ""),
}

LENGTHS = {GROWING["parts"]: MAX_TEXT, GROWING["casts of a column"]: MAX_TEXT}


def written(shape: Shape, count: int) -> str:
    before, more, middle, close, after = shape
    return before + more * count + middle + close * count + after


def of_length(shape: Shape, length: int) -> str:
    return written(shape, (length - len(written(shape, 0))) // len(shape[1] + shape[3]))


@pytest.mark.parametrize("shape", GROWING.values(), ids=GROWING)
def test_what_only_grows_is_refused_before_it_is_read(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    text = of_length(shape, LENGTHS.get(shape, 16_000))

    def read(*_: object) -> None:
        raise AssertionError("the reader was started")

    monkeypatch.setattr(sql_filter._Filters, "parser", read)
    with pytest.raises(SqlFilterError):
        parse_sql_filter(text, SCHEMA)


@pytest.mark.parametrize("shape", GROWING.values(), ids=GROWING)
def test_what_grows_a_little_is_a_filter_or_refused(shape: Shape) -> None:
    for count in (1, 2, 24, 30, 31, 49, 98, 300):
        with contextlib.suppress(SqlFilterError):
            parse_sql_filter(written(shape, count), SCHEMA)


def test_long_lists_of_values_pass() -> None:
    for column, value in (("a", "1"), ("b", "'x y'"), ("d", "DATE '2024-01-01'")):
        found = parse_sql_filter(f"{column} IN ({', '.join([value] * 2_000)})", SCHEMA)
        assert isinstance(found, In)
        assert len(found.values) == 2_000
    casts = ", ".join(["CAST('2024-01-01' AS DATE)"] * MAX_CASTS)
    assert isinstance(parse_sql_filter(f"d IN ({casts})", SCHEMA), In)
