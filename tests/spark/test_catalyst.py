"""Conditions of Spark as predicates, without Spark: a predicate admits every row that makes the condition true."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog.protocol.predicates import (
    MAX_DEPTH,
    And,
    Compare,
    In,
    IsNotNull,
    IsNull,
    Not,
    Or,
    Predicate,
    parse_predicate,
    to_builtins,
)
from tarnlog_spark._catalyst import Node, parsed, scalar_of, translate

COLUMNS = {"i": "integer", "s": "string", "b": "boolean", "f": "float", "m": "decimal(4,1)"}
VALUES: dict[str, list[Any]] = {
    "integer": [-1, 0, 1, 2],
    "string": ["", "a", "ab", "b"],
    "boolean": [False, True],
    "float": [-1.5, -0.0, 0.0, 0.5],
    "decimal(4,1)": [Decimal("-1.0"), Decimal("0.0"), Decimal("1.5")],
}
OPS = {
    "EqualTo": lambda a, b: a == b,
    "LessThan": lambda a, b: a < b,
    "LessThanOrEqual": lambda a, b: a <= b,
    "GreaterThan": lambda a, b: a > b,
    "GreaterThanOrEqual": lambda a, b: a >= b,
    "StartsWith": lambda a, b: a.startswith(b),
}
Row = dict[str, Any]


def column(name: str, kind: str | None = None) -> Node:
    return Node("AttributeReference", name=name, type=kind or COLUMNS[name])


def literal(value: Any, kind: str) -> Node:
    return Node("Literal", type=kind, values=(None if value is None else str(value),))


def compared(kind: str, name: str, value: Any) -> Node:
    return Node(kind, (column(name), literal(value, COLUMNS[name])))


# The condition, evaluated as SQL does: the values of the nodes are texts, as Spark hands them over.


def truth(node: Node, row: Row) -> Any:
    match node.kind:
        case "And" | "Or":
            found = [truth(child, row) for child in node.children]
            decisive = node.kind == "Or"
            return decisive if decisive in found else None if None in found else not decisive
        case "Not":
            inner = truth(node.children[0], row)
            return None if inner is None else not inner
        case "AttributeReference":
            return row[node.name]
        case "Literal":
            return typed(node.values[0], node.type)
        case "IsNull":
            return truth(node.children[0], row) is None
        case "IsNotNull":
            return truth(node.children[0], row) is not None
        case "EqualNullSafe":
            return truth(node.children[0], row) == truth(node.children[1], row)
        case "In" | "InSet":
            value, *listed = (truth(child, row) for child in node.children)
            listed += [typed(one, node.children[0].type) for one in node.values]
            return None if value is None else True if value in listed else None if None in listed else False
        case "Length":
            value = truth(node.children[0], row)
            return None if value is None else len(value) > 1
        case _:
            left, right = (truth(child, row) for child in node.children)
            return None if left is None or right is None else OPS[node.kind](left, right)


def typed(text: Any, kind: str) -> Any:
    if text is None:
        return None
    reads: dict[str, Any] = {"integer": int, "string": str, "float": float, "boolean": lambda word: word == "True"}
    return reads.get(kind, Decimal)(text)


# The predicate, evaluated as its documentation says.


def holds(predicate: Predicate, row: Row) -> bool | None:
    match predicate:
        case And(args):
            found = [holds(arg, row) for arg in args]
            return False if False in found else None if None in found else True
        case Or(args):
            found = [holds(arg, row) for arg in args]
            return True if True in found else None if None in found else False
        case Not(arg):
            inner = holds(arg, row)
            return None if inner is None else not inner
        case IsNull(name):
            return row[name] is None
        case IsNotNull(name):
            return row[name] is not None
        case In(name, values):
            listed = [None if value is None else same_type(value, row[name]) for value in values]
            return None if row[name] is None else True if row[name] in listed else None if None in listed else False
        case Compare(op, name, value):
            if row[name] is None:
                return None
            words = {"eq": "EqualTo", "lt": "LessThan", "le": "LessThanOrEqual", "gt": "GreaterThan"}
            words |= {"ge": "GreaterThanOrEqual", "starts-with": "StartsWith"}
            return bool(OPS[words[op]](row[name], same_type(value, row[name])))


def same_type(value: Any, other: Any) -> Any:
    return Decimal(value) if isinstance(other, Decimal) else value


def leaves() -> st.SearchStrategy[Node]:
    def leaf(name: str) -> st.SearchStrategy[Node]:
        kind = COLUMNS[name]
        value = st.sampled_from([*VALUES[kind], None])
        constant = value.map(lambda found: literal(found, kind))
        pairs = st.tuples(st.just(column(name)), constant)
        ops = [op for op in OPS if op != "StartsWith" or kind == "string"] + ["EqualNullSafe"]
        made = [
            st.builds(Node, st.sampled_from(ops), pairs),
            st.builds(
                Node, st.sampled_from([op for op in ops if op != "StartsWith"]), pairs.map(lambda two: two[::-1])
            ),
            st.builds(Node, st.sampled_from(["IsNull", "IsNotNull"]), st.just((column(name),))),
            st.lists(constant, min_size=1, max_size=3).map(lambda found: Node("In", (column(name), *found))),
            st.lists(value.map(lambda found: None if found is None else str(found)), min_size=1, max_size=3).map(
                lambda found: Node("InSet", (column(name),), values=tuple(found))
            ),
        ]
        return st.one_of(*made, *([st.just(column(name))] if kind == "boolean" else []))

    unknown = st.just(Node("Length", (column("s"),)))
    return st.one_of(*(leaf(name) for name in COLUMNS), unknown)


CONDITIONS = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.builds(Node, st.sampled_from(["And", "Or"]), st.tuples(inner, inner)),
        inner.map(lambda one: Node("Not", (one,))),
    ),
    max_leaves=8,
)
ROWS = st.fixed_dictionaries({name: st.sampled_from([*VALUES[kind], None]) for name, kind in COLUMNS.items()})


@given(CONDITIONS, st.lists(ROWS, min_size=1, max_size=8))
def test_no_row_that_makes_the_condition_true_is_left_out(condition: Node, rows: list[Row]) -> None:
    found = translate(condition, COLUMNS)
    if found.predicate is None:
        return
    assert parse_predicate(to_builtins(found.predicate)) == found.predicate, "the service takes it"
    for row in rows:
        wanted, admitted = truth(condition, row), holds(found.predicate, row)
        if wanted is True:
            assert admitted is True
        if found.exact:
            assert admitted is wanted


@pytest.mark.parametrize(
    "condition, predicate, exact",
    [
        (compared("EqualTo", "i", 1), Compare("eq", "i", 1), True),
        (column("b"), Compare("eq", "b", True), True),
        (column("s"), None, False),
        (Node("LessThan", (literal(5, "integer"), column("i"))), Compare("gt", "i", 5), True),
        (Node("EqualTo", (column("I", "integer"), literal(1, "integer"))), Compare("eq", "i", 1), True),
        (Node("EqualTo", (column("x", "integer"), literal(1, "integer"))), None, False),
        (Node("EqualTo", (column("i"), column("i"))), None, False),
        (Node("EqualTo", (column("i"), literal(1, "long"))), None, False),
        (Node("EqualTo", (column("f"), literal(0.1, "double"))), None, False),
        (Node("EqualTo", (column("m"), literal("1.50", "decimal(10,2)"))), Compare("eq", "m", "1.50"), True),
        (Node("EqualTo", (column("s", "string collate UTF8_LCASE"), literal("a", "string"))), None, False),
        (Node("IsNull", (Node("GetStructField", (column("s"),)),)), None, False),
        (compared("EqualTo", "i", None), None, False),
        (Node("Not", (Node("Length", (column("s"),)),)), None, False),
        (
            Node("And", (compared("EqualTo", "i", 1), Node("Length", (column("s"),)))),
            Compare("eq", "i", 1),
            False,
        ),
        (Node("Not", (Node("And", (compared("EqualTo", "i", 1), Node("Length", (column("s"),)))),)), None, False),
        (Node("Or", (compared("EqualTo", "i", 1), Node("Length", (column("s"),)))), None, False),
    ],
)
def test_what_is_understood(condition: Node, predicate: Predicate | None, exact: bool) -> None:
    found = translate(condition, COLUMNS)
    assert (found.predicate, found.exact) == (predicate, exact)


@pytest.mark.parametrize(
    "kind, raw, value",
    [
        ("long", "9223372036854775807", 2**63 - 1),
        ("boolean", "false", False),
        ("string", "it's \\ \U0001f600", "it's \\ \U0001f600"),
        ("string", "a\ufffd", None),  # bytes that are no text look so
        ("string collate UTF8_LCASE", "a", None),
        ("float", "0.1", 0.10000000149011612),
        ("double", "0.1", 0.1),
        ("double", "NaN", None),
        ("double", "-Infinity", None),
        ("float", "1.0E39", None),
        ("decimal(38,18)", "1E-18", "0.000000000000000001"),
        ("decimal(20,0)", "1E+3", "1000"),
        ("date", 19_792, "2024-03-10"),
        ("date", 2_932_897, None),  # the year 10000
        ("timestamp", 1_710_046_800_000_001, "2024-03-10T05:00:00.000001Z"),
        ("timestamp", -1, "1969-12-31T23:59:59.999999Z"),
        ("timestamp", -(2**62), None),
        ("timestamp_ntz", 0, "1970-01-01T00:00:00.000000"),
        ("binary", "[B@1", None),
        ("interval day to second", "5", None),
        ("", "5", None),
        ("integer", None, None),
    ],
)
def test_constants_are_spelled_exactly_or_not_at_all(kind: str, raw: Any, value: Any) -> None:
    found = scalar_of(kind, raw)
    assert (found, type(found)) == (value, type(value))


def test_long_chains_are_flat_and_trees_are_as_deep_as_the_service_takes_them() -> None:
    chain = compared("EqualTo", "i", 0)
    for number in range(1, 3000):
        chain = Node("Or", (chain, compared("EqualTo", "i", number)))
    found = translate(chain, COLUMNS).predicate
    assert isinstance(found, Or)
    assert found.args == tuple(Compare("eq", "i", number) for number in range(3000))
    deep = compared("EqualNullSafe", "i", 0)
    for depth in range(MAX_DEPTH):
        deep = Node("Or" if depth % 2 else "And", (deep, compared("EqualTo", "i", depth)))
        predicate = translate(deep, COLUMNS).predicate
        assert predicate is None or parse_predicate(to_builtins(predicate)) == predicate
    assert not translate(deep, COLUMNS).exact, "what is too deep is left out of a conjunction"
    for _ in range(MAX_DEPTH):
        deep = Node("Not", (deep,))
    assert translate(deep, COLUMNS).predicate is None


def test_a_tree_is_made_of_catalysts_json() -> None:
    package = "org.apache.spark.sql.catalyst.expressions."
    records: list[dict[str, Any]] = [
        {"class": package + "And", "num-children": 2, "left": 0, "right": 1},
        {"class": package + "InSet", "num-children": 1, "child": 0, "hset": None},
        {"class": package + "AttributeReference", "num-children": 0, "name": "i", "dataType": "integer"},
        {"class": package + "LessThan", "num-children": 2, "left": 0, "right": 1},
        {"class": package + "GetStructField", "num-children": 1, "child": 0, "ordinal": 0, "name": "x"},
        {"class": package + "AttributeReference", "num-children": 0, "name": "t", "dataType": {"type": "struct"}},
        {"class": package + "Literal", "num-children": 0, "value": "2024-03-10 00:00:00.0", "dataType": "timestamp"},
    ]
    moment = int(dt.datetime(2024, 3, 10, tzinfo=dt.UTC).timestamp()) * 1_000_000
    found = parsed(records, {1: ("2", "1"), 6: (moment,)})
    member = Node("InSet", (column("i"),), values=("2", "1"))
    inner = Node("GetStructField", (Node("AttributeReference", name="t"),))
    constant = Node("Literal", type="timestamp", values=(moment,))
    assert found == Node("And", (member, Node("LessThan", (inner, constant))))
    assert translate(found, COLUMNS).predicate == In("i", (2, 1))
