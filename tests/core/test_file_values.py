"""Partition values and bounds: refused where no reader could read them, and what is accepted can be read by all."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarnlog._arrow_schema import arrow_field, partition_scalar
from tarnlog.protocol.actions import Add
from tarnlog.protocol.predicates import Compare
from tarnlog.protocol.problems import ProblemError
from tarnlog.protocol.schema import Field, Schema, parse_schema
from tarnlog_server.codec.typed_bounds import is_typed, typed_bounds
from tarnlog_server.core.column_order import DEFAULT_TRUNCATION, column_order
from tarnlog_server.core.file_values import FileValues
from tarnlog_server.core.match import may_match
from tests.conftest import LONG
from tests.core.making import LONGER_SCHEMA, SCHEMA, add, formed, intent, metadata, record, remove, skip, tracker

TYPES = [
    *("string", "varchar(5)", "char(3)", "boolean", "binary"),
    *("byte", "short", "integer", "long", "float", "double", "decimal(5,2)", "decimal(38,0)"),
    *("date", "timestamp", "timestamp_ntz"),
]


def column(kind: Any, **metadata: Any) -> Schema:
    member = {"name": "c", "type": kind, "nullable": True, "metadata": metadata}
    return parse_schema({"type": "struct", "fields": [member]})


def file(least: dict[str, str] | None = None, greatest: dict[str, str] | None = None, **values: str | None) -> Add:
    return Add(
        path="f",
        partition_values=values,
        size=1,
        modification_time=1,
        data_change=True,
        min_values=least,
        max_values=greatest,
    )


def places(schema: Schema, one: Add) -> list[str]:
    rules = FileValues(schema)
    found = [place for place, _ in rules.faults(one, DEFAULT_TRUNCATION)]
    # The quick answer agrees, with the columns and values known and unknown.
    assert rules.fit(one, DEFAULT_TRUNCATION) is FileValues(schema).fit(one, DEFAULT_TRUNCATION) is (not found)
    return found


ACCEPTED = {
    "string": ["", "x", "null", "é\U0001f600"],
    "binary": ["x"],
    "boolean": ["true", "FALSE"],
    "byte": ["-128", "127", "+5", "5.0", "1e2"],
    "short": ["32767"],
    "integer": ["-2147483648"],
    "long": ["9223372036854775807"],
    "float": ["1.5", "3.4028235e+38", "NaN", "-Infinity", "-0.0", ".5", "7."],
    "double": ["1e300", "Infinity", "4.9e-324"],
    "decimal(5,2)": ["999.99", "-0.10", "1.500", "1E2"],
    "decimal(38,0)": ["9" * 38],
    "date": ["2024-01-31", "0001-01-01", "19722", "-1", "1704067200000000", "0"],
    "timestamp": ["2024-01-31T10:00:00Z", "2024-01-31 10:00", "2024-01-31", "0", "2024-01-31T10:00:00.123456789+02:00"],
    "timestamp_ntz": ["2024-01-31T10:00:00", "-1", "2024-01-31 10:00:00 UTC"],
}
REFUSED = {
    "boolean": ["yes", "1", ""],
    "byte": ["128", "-129", "abc", "5.5", "", " 5", "1_0", "0x1", "1e300", "\u0663"],
    "short": ["32768"],
    "integer": ["2147483648"],
    "long": ["9223372036854775808", "abc"],
    "float": ["1e39", "abc", "1,5"],
    "double": ["1e999", ""],
    "decimal(5,2)": ["1000", "0.001", "NaN", "1e300", "x"],
    "decimal(38,0)": ["1" + "0" * 38],
    "date": ["yesterday", "2024-02-30", "20240131", "2024-1-1", "1704067200000001", "9" * 30, ""],
    "timestamp": ["now", "2024-01-31T25:00", "9" * 20, "10:00", "2024-01-31T10:00:00+19:00"],
    "timestamp_ntz": ["soon"],
}


@pytest.mark.parametrize("kind, text", [(kind, text) for kind, texts in ACCEPTED.items() for text in texts])
def test_values_of_a_type_are_accepted(kind: str, text: str) -> None:
    assert places(column(kind), file({"c": text}, {"c": text}, c=text)) == []


@pytest.mark.parametrize("kind, text", [(kind, text) for kind, texts in REFUSED.items() for text in texts])
def test_other_texts_are_refused_with_their_place(kind: str, text: str) -> None:
    schema = column(kind)
    assert places(schema, file(c=text)) == ["/partitionValues/c"]
    assert places(schema, file({"c": text})) == ["/minValues/c"]
    assert places(schema, file(None, {"c": text})) == ["/maxValues/c"]


def test_a_fault_says_what_to_write() -> None:
    ((_, message),) = FileValues(column("date")).faults(file(c="yesterday"), DEFAULT_TRUNCATION)
    assert message.startswith("c is date, and 'yesterday' is no value of it: write a date such as '2024-01-31'")


ORDERED: list[tuple[str, str, str, bool]] = [
    ("long", "9", "10", True),
    ("long", "10", "9", False),
    ("string", "10", "9", True),
    ("string", "b", "a", False),
    ("string", "b" * 40, "a" * 32, True),  # a maximum that may have been cut has no upper end
    ("string", "\U00010000", "\ue000", True),  # as writers order that count UTF-16 units
    ("char(3)", "b", "a", True),  # padded by some readers, so not compared
    ("double", "0.0", "-0.0", True),
    ("double", "NaN", "1", True),
    ("double", "2", "NaN", True),
    ("double", "2", "1", False),
    ("double", "-Infinity", "Infinity", True),
    ("decimal(5,2)", "1.10", "1.1", True),
    ("decimal(5,2)", "1.10", "1.09", False),
    ("boolean", "false", "true", True),
    ("boolean", "true", "false", False),
    ("date", "2024-01-31", "19754", True),
    ("date", "2024-01-31", "2024-01-30", False),
    ("timestamp", "2024-01-31T10:00:00Z", "2024-01-31T11:00:00+02:00", False),
    ("timestamp", "2024-01-31T10:00:00Z", "2024-01-31T10:00:00Z", True),
    ("timestamp", "1000", "999", False),
]


@pytest.mark.parametrize("kind, low, high, right", ORDERED)
def test_a_minimum_is_not_above_its_maximum(kind: str, low: str, high: str, right: bool) -> None:
    assert places(column(kind), file({"c": low}, {"c": high})) == ([] if right else ["/maxValues/c"])


def test_text_under_a_collation_is_not_compared() -> None:
    assert places(column("string", __COLLATIONS={"c": "icu.de"}), file({"c": "b"}, {"c": "a"})) == []


def test_columns_are_known_ones() -> None:
    inner = {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}
    schema = column(inner)
    assert places(schema, file({"c.x": "1", "C.X": "1"}, {"c.x": "2"})) == []
    assert places(schema, file({"c.x": "a"})) == ["/minValues/c.x"]
    assert places(schema, file({"c.y": "1", "d/e~f": "1"}, {"d": "1"})) == [
        "/minValues/c.y",
        "/minValues/d~1e~0f",
        "/maxValues/d",
    ]


def test_no_value_is_written_as_null() -> None:
    assert places(column("string"), file(c=None)) == []
    assert places(column("string"), file(c="__HIVE_DEFAULT_PARTITION__")) == []
    ((_, message),) = FileValues(column("date")).faults(file(c="__HIVE_DEFAULT_PARTITION__"), DEFAULT_TRUNCATION)
    assert message == "write null where c has no value"
    assert places(column("void"), file(c="x")) == ["/partitionValues/c"]


def test_a_schema_that_cannot_be_read_judges_nothing() -> None:
    assert places(Schema(()), file({"x": "y"}, {"x": "a"}, z="1")) == []


TEXTS = st.one_of(
    st.text(max_size=12),
    st.integers(-(2**65), 2**65).map(str),
    st.floats().map(repr),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.dates().map(str),
    st.datetimes().map(lambda moment: moment.isoformat()),
    st.sampled_from([text for texts in (*ACCEPTED.values(), *REFUSED.values()) for text in texts]),
)


def dumb_value(text: str, kind: str) -> Fraction | None:
    """The number that a text means, exactly, if the type can hold it; None when it means none."""
    mantissa, _, exponent = text.lower().partition("e")
    if "e" in text.lower() and not (exponent.lstrip("+-").isdigit() and len(exponent.lstrip("+-")) <= 3):
        return None
    if len(mantissa) > 30 or not all(char in "+-.0123456789" for char in mantissa + exponent):
        return None
    try:
        number = Fraction(text)
    except ValueError:
        return None
    if kind == "double":
        return number if abs(number) < 2**1024 - 2**970 else None
    if kind == "decimal(5,2)":
        return number if (number * 100).denominator == 1 and abs(number) < 1000 else None
    most = 2 ** ({"byte": 8, "short": 16, "integer": 32, "long": 64}[kind] - 1)
    return number if number.denominator == 1 and -most <= number < most else None


@pytest.mark.parametrize("kind", ["byte", "short", "integer", "long", "decimal(5,2)", "double"])
@given(text=TEXTS)
@settings(max_examples=400 if LONG else 20, deadline=None)
def test_numbers_are_what_a_dumb_reader_makes_of_them(kind: str, text: str) -> None:
    wanted = dumb_value(text, kind)
    accepted = places(column(kind), file(c=text)) == []
    if wanted is not None:
        assert accepted
        found = partition_scalar(text, arrow_field(column(kind).fields[0]).type).as_py()
        assert found == (float(wanted) if kind == "double" else wanted)
    elif accepted and len(text) <= 30:
        assert (kind, text.lstrip("+-")) in [("double", word) for word in ("NaN", "nan", "Infinity", "inf")]


@pytest.mark.parametrize("kind", TYPES)
@given(low=TEXTS, high=TEXTS)
@settings(max_examples=400 if LONG else 25, deadline=None)
def test_whatever_is_accepted_can_be_read(kind: str, low: str, high: str) -> None:
    schema = column(kind)
    field: Field = schema.fields[0]
    order = column_order(field)
    if places(schema, file(c=low)) == []:
        partition_scalar(low, arrow_field(field).type)
    if places(schema, file({"c": low}, {"c": high})) == [] and order is not None and is_typed(order):
        spans = typed_bounds(order, pa.array([low]), pa.array([high]), DEFAULT_TRUNCATION)
        assert len(spans.low) == len(spans.high) == 1
        if "nan" not in (low.lower(), high.lower()):
            # Neither reader takes the pair for worthless.
            assert order.bounds(low, high, DEFAULT_TRUNCATION) is not None
            assert spans.odd[0].as_py() or spans.low[0].is_valid
    if kind in ("long", "double") and places(schema, file({"c": low}, {"c": low})) == [] and low.lower() != "nan":
        one = file({"c": low}, {"c": low})
        value = float(low) if kind == "double" else int(Decimal(low))
        literal: Any = value if math.isfinite(value) else low if low in ("Infinity", "-Infinity") else 0.0
        found = may_match(Compare("eq", "c", literal), schema, (), {}, one.min_values, one.max_values)
        assert found or literal != value


# ---- on the head that a commit follows

FIRST = record(0, (metadata(),))
REPLACED = SCHEMA.replace('"integer"', '"date"')


def answers(batch: Any) -> list[str]:
    return [answer.fields["errors"][0]["pointer"] for _, answer in batch.answers]


def test_a_blind_append_is_judged_by_the_schema_that_it_follows() -> None:
    """Another commit replaced the schema after this one was prepared: its bounds are of the old type."""
    table = tracker(FIRST, record(1, (metadata(REPLACED),)))
    fits = intent(1, add("a", low=5, high=6))  # a number is a day too
    bad = intent(2, add("b"), add("c", low=9_000_000, high=9_000_001))
    batch = formed([fits, bad], table)
    assert batch.members == [fits]
    assert answers(batch) == ["/actions/1/add/minValues/id"]


def test_files_of_a_commit_with_metadata_are_judged_by_its_own_schema() -> None:
    table = tracker(FIRST)
    longer = metadata(LONGER_SCHEMA)
    noted = intent(1, longer, add("a", min_values={"note": "x"}), read_version=0)
    assert formed([noted], table).members == [noted]
    with pytest.raises(ProblemError) as caught:
        intent(2, add("a", min_values={"note": "x"}))
    assert caught.value.fields["errors"][0]["pointer"] == "/actions/0/add/minValues/note"


def test_values_of_an_older_log_can_be_removed_and_skipped() -> None:
    """A remove repeats the partition values of the file: they were accepted once, so the file can be removed."""
    schema = SCHEMA.replace('"string"', '"date"', 1)
    old = record(1, (add("old", "yesterday"), add("new", "2024-01-31")))
    table = tracker(record(0, (metadata(schema),)), old)

    def formed_with(action: Any) -> Any:
        return formed([intent(1, action, read_version=1, schema=schema)], table)

    for action in (remove, skip):
        assert formed_with(action("old", partition_values={"day": "yesterday"})).members
        assert formed_with(action("new")).members
        kind = "remove" if action is remove else "mergeskip"
        wrong = f"/actions/0/{kind}/partitionValues"
        assert answers(formed_with(action("new", partition_values={"day": "yesterday"}))) == [f"{wrong}/day"]
        assert answers(formed_with(action("new", partition_values={"dya": "2024-01-31"}))) == [wrong]
