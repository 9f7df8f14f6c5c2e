"""Filters on rows: what three-valued SQL over Python values says, for every type, operator and odd constant."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from tarnlog._row_filter import columns_of, evaluate, matching_rows, micros
from tarnlog.protocol.predicates import And, Compare, CompareOp, In, IsNotNull, IsNull, Not, Or
from tests.core.test_match_soundness import File, files
from tests.core.test_match_soundness import evaluate as dumb

ARROW: dict[str, pa.DataType] = {
    "long": pa.int64(),
    "decimal": pa.decimal128(10, 2),
    "double": pa.float64(),
    "float": pa.float32(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
}


@settings(max_examples=40, deadline=None)
@given(files())
def test_rows_are_judged_as_the_dumb_model_judges_them(file: File) -> None:
    schema = pa.schema([(name, ARROW[kind]) for name, kind in file.columns.items()])
    rows = pa.Table.from_pylist(file.rows, schema=schema)
    for predicate in file.predicates[::5]:
        found = evaluate(rows, predicate).to_pylist()
        assert found == [dumb(predicate, row, file.columns, True) for row in file.rows], (predicate, file.rows)


def column(values: list[Any], kind: pa.DataType) -> pa.Table:
    return pa.table({"c": pa.array(values, kind)})


ODD: list[tuple[pa.DataType, list[Any], CompareOp, Any, list[bool]]] = [
    (pa.int32(), [5, 6], "gt", 5.5, [False, True]),
    (pa.int32(), [5, 6], "le", 5.5, [True, False]),
    (pa.int32(), [5, 6], "eq", 5.5, [False, False]),
    (pa.int32(), [5, 6], "ne", 5.5, [True, True]),
    (pa.int8(), [5], "lt", 10**30, [True]),
    (pa.int8(), [5], "gt", -(10**30), [True]),
    (pa.int8(), [5], "eq", 10**30, [False]),
    (pa.int64(), [2**53 + 1], "eq", float(2**53), [False]),
    (
        pa.decimal128(38, 10),
        [Decimal("12345678901234567890.0123456789")],
        "eq",
        "12345678901234567890.0123456789",
        [True],
    ),
    (
        pa.decimal128(38, 10),
        [Decimal("12345678901234567890.0123456789")],
        "gt",
        "12345678901234567890.01234567885",
        [True],
    ),
    (pa.decimal128(4, 2), [Decimal("0.35"), Decimal("0.36")], "eq", 0.35, [True, False]),
    (pa.decimal128(4, 2), [Decimal("1.25")], "lt", "1.251", [True]),
    (pa.decimal128(4, 2), [Decimal("1.25")], "ge", "1.251", [False]),
    (pa.decimal128(4, 2), [Decimal("1.25")], "lt", "1e900", [True]),
    (pa.decimal128(4, 2), [Decimal("1.25")], "gt", "1e-900", [True]),
    (pa.timestamp("us", tz="UTC"), [1_000_000], "gt", "1970-01-01T00:00:00.999999999Z", [True]),
    (pa.timestamp("us", tz="UTC"), [1_000_000], "eq", "1970-01-01T02:00:01+02:00", [True]),
    (pa.timestamp("us"), [1_000_000], "eq", "1970-01-01 00:00:01", [True]),
    (pa.string(), ["\ue000", "😀"], "lt", "😀", [True, False]),
    (pa.bool_(), [False, True], "lt", True, [True, False]),
]


@pytest.mark.parametrize("kind, values, op, constant, wanted", ODD)
def test_constants_that_a_type_cannot_hold(
    kind: pa.DataType, values: list[Any], op: CompareOp, constant: Any, wanted: list[bool]
) -> None:
    assert evaluate(column(values, kind), Compare(op, "C", constant)).to_pylist() == wanted
    assert evaluate(column([None], kind), Compare(op, "C", constant)).to_pylist() == [None]


def test_lists_are_three_valued() -> None:
    rows = column([1, 2, None], pa.int32())
    assert evaluate(rows, In("c", (1, 10**30, 1.5))).to_pylist() == [True, False, None]
    assert evaluate(rows, In("c", (1, None))).to_pylist() == [True, None, None]
    assert evaluate(rows, Not(In("c", (1, None)))).to_pylist() == [False, None, None]
    assert evaluate(rows, In("c", (None,))).to_pylist() == [None, None, None]
    assert evaluate(column(["a", None], pa.string()), In("c", ("a", "b"))).to_pylist() == [True, None]


def test_members_of_structs() -> None:
    rows = pa.table({"who": pa.array([{"City": "Ulm"}, {"City": None}, None]), "x.y": pa.array([1, 2, 3])})
    assert matching_rows(rows, Compare("eq", "WHO.city", "Ulm")).num_rows == 1
    assert evaluate(rows, IsNull("who.city")).to_pylist() == [False, True, True]
    assert evaluate(rows, IsNotNull("x.Y")).to_pylist() == [True, True, True]
    tree = Or((Not(IsNull("a")), And((Compare("eq", "b", 1), In("c.d", (1,))))))
    assert columns_of(tree) == {"a", "b", "c.d"}


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("1970-01-02", "86400000000"),
        ("1970-01-01 00:00:00.000001500", "1.5"),
        ("1970-01-01T01:00:00+01:00", "0"),
        ("1970-01-01T00:00:01 UTC", "1000000"),
        ("1969-12-31T23:59:59.5Z", "-500000"),
        ("1970-01-01T00:01 +00:00", "60000000"),
    ],
)
def test_times(text: str, wanted: str) -> None:
    assert micros(text) == Decimal(wanted)
