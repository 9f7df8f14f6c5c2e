"""Cut bounds: the rules by example, and that no filter ever loses a file by them."""

from __future__ import annotations

import operator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog.protocol.predicates import Compare, CompareOp, In, Not, Predicate
from tarnlog.protocol.schema import Field, Primitive, StructType
from tarnlog_server.core.column_order import is_open_ended, utf16_length
from tarnlog_server.core.match import may_match
from tarnlog_server.core.stats_truncation import (
    cut_max,
    cut_min,
    recorded_length,
    text_columns,
    truncate,
)
from tests.core.making import add

SCHEMA = StructType(
    (
        Field("day", Primitive("string")),
        Field("Note", Primitive("string")),
        Field("code", Primitive("varchar", (90,))),
        Field("amount", Primitive("decimal", (38, 0))),
        Field("parts", StructType((Field("note", Primitive("string")),))),
    )
)
TEXTS = st.text(st.sampled_from(["a", "b", "é", "\ud7ff", "\ue000", "\uffff", "😀", "\U0010ffff"]), max_size=40)


@pytest.mark.parametrize(
    "text,length,least,greatest",
    [
        ("", 1, "", ""),
        ("abc", 3, "abc", "abc"),
        ("abcd", 3, "abc", "abc"),
        ("ab😀d", 3, "ab", "ab😀"),
        ("ab😀d", 4, "ab😀", "ab😀"),
        ("😀😀", 1, "", "😀"),
        ("a" * 33, 32, "a" * 32, "a" * 32),
        ("a" * 31 + "😀", 32, "a" * 31, "a" * 31 + "😀"),
        ("é" * 40, 32, "é" * 32, "é" * 32),
    ],
)
def test_cutting(text: str, length: int, least: str, greatest: str) -> None:
    assert cut_min(text, length) == least
    assert cut_max(text, length) == greatest


@pytest.mark.parametrize(
    "maximum,recorded,open_ended",
    [
        ("a" * 31, 32, False),
        ("a" * 32, 32, True),
        ("a" * 30 + "😀", 32, True),
        ("a" * 40, 64, True),
        ("a" * 8, 8, True),
        ("a" * 7, 8, False),
    ],
)
def test_a_maximum_of_the_cut_length_has_no_upper_end(maximum: str, recorded: int, open_ended: bool) -> None:
    assert is_open_ended(maximum, recorded) is open_ended


def test_only_text_columns_are_cut_and_partitions_never() -> None:
    columns = text_columns(SCHEMA, ["DAY"])
    assert columns == {"note", "code"}
    long = "7" * 38
    values = {"day": long, "Note": long, "CODE": long, "amount": long, "parts": long, "gone": long}
    cut = truncate(add("f", min_values=values, max_values=values), columns, 32)
    expected = values | {"Note": "7" * 32, "CODE": "7" * 32}
    assert cut.min_values == cut.max_values == expected


def test_a_file_with_nothing_to_cut_is_the_same_object() -> None:
    for file in (add("f"), add("f", min_values={"Note": "a"}, max_values={"Note": "b"})):
        assert truncate(file, {"note"}, 32) is file


def test_the_smallest_length_is_remembered() -> None:
    assert recorded_length(None, 64) == 64
    assert recorded_length(8, 32) == 8
    assert recorded_length(32, 8) == 8


@given(TEXTS, st.integers(1, 40))
def test_what_a_cut_bound_promises(text: str, length: int) -> None:
    least, greatest = cut_min(text, length), cut_max(text, length)
    assert least <= text
    assert text.startswith(least)
    assert utf16_length(least) <= length
    assert greatest == text or is_open_ended(greatest, length)
    assert utf16_length(greatest) <= max(length + 1, 1)
    for bound in (least, greatest):
        bound.encode("utf-8")  # half a pair could not be encoded


OPS: dict[str, Any] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "starts-with": str.startswith,
}


@given(
    st.lists(TEXTS, min_size=1, max_size=4),
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.sampled_from(sorted(OPS)),
    TEXTS | st.integers(0, 40).map(lambda n: "a" * n),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_cutting_never_drops_a_file_with_a_match(
    rows: list[str], lengths: list[int], op: CompareOp, value: str, negated: bool, by_utf16: bool, data: st.DataObject
) -> None:
    if data.draw(st.booleans()):
        value = data.draw(st.sampled_from(rows))[: data.draw(st.integers(0, 40))]
    order: Any = (lambda text: text.encode("utf-16-be")) if by_utf16 else None
    low, high = min(rows, key=order), max(rows, key=order)
    file, recorded = add("f", min_values={"Note": low}, max_values={"Note": high}), None
    for length in lengths:  # the setting changes over time, and every state cuts again
        file, recorded = truncate(file, {"note"}, length), recorded_length(recorded, length)
    predicate: Predicate = Compare(op, "note", value)
    matches = any(OPS[op](row, value) is not negated for row in rows)
    if op == "eq" and data.draw(st.booleans()):
        predicate = In("note", (value,))
    if negated:
        predicate = Not(predicate)
    assert recorded is not None
    kept = may_match(predicate, SCHEMA, ["day"], {}, file.min_values, file.max_values, recorded)
    assert kept or not matches
