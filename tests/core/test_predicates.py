"""The filter tree: what parses, what is refused and where, and that it survives a round trip."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarnlog.protocol.predicates import (
    MAX_DEPTH,
    MAX_NODES,
    MAX_VALUES,
    And,
    Compare,
    In,
    IsNotNull,
    IsNull,
    Not,
    Or,
    Predicate,
    PredicateError,
    parse_predicate,
    to_builtins,
)

LEAF = {"op": "is-null", "column": "a"}


def test_every_kind_of_node() -> None:
    tree = {
        "op": "and",
        "args": [
            {
                "op": "or",
                "args": [{"op": "eq", "column": "a", "value": 1}, {"op": "starts-with", "column": "b", "value": ""}],
            },
            {"op": "not", "arg": {"op": "in", "column": "c", "values": ["x", None, 2.5, True]}},
            {"op": "is-null", "column": "d"},
            {"op": "is-not-null", "column": "e"},
        ],
    }
    predicate = parse_predicate(tree)
    assert predicate == And(
        (
            Or((Compare("eq", "a", 1), Compare("starts-with", "b", ""))),
            Not(In("c", ("x", None, 2.5, True))),
            IsNull("d"),
            IsNotNull("e"),
        )
    )
    assert to_builtins(predicate) == tree


def chain(depth: int) -> dict[str, Any]:
    tree: dict[str, Any] = LEAF
    for _ in range(depth - 1):
        tree = {"op": "not", "arg": tree}
    return tree


REFUSED: list[tuple[object, str, str]] = [
    (None, "", "must be an object"),
    ([], "", "must be an object"),
    ({}, "/op", "one of and, or, not, eq"),
    ({"op": "like"}, "/op", "one of"),
    ({"op": ["and"]}, "/op", "one of"),
    ({"op": "and"}, "", '"args" is missing'),
    ({"op": "and", "args": []}, "/args", "at least one"),
    ({"op": "or", "args": {}}, "/args", "at least one"),
    ({"op": "or", "args": [LEAF, 3]}, "/args/1", "must be an object"),
    ({"op": "not"}, "", '"arg" is missing'),
    ({"op": "not", "arg": {"op": "x"}}, "/arg/op", "one of"),
    ({"op": "eq", "column": "a"}, "", '"value" is missing'),
    ({"op": "eq", "column": "a", "value": None}, "/value", "is-null"),
    ({"op": "eq", "column": "a", "value": [1]}, "/value", "must be text"),
    ({"op": "eq", "column": "a", "value": float("nan")}, "/value", "finite"),
    ({"op": "eq", "column": "a", "value": float("inf")}, "/value", "finite"),
    ({"op": "eq", "column": "a", "value": 10**38}, "/value", "38 digits"),
    ({"op": "eq", "column": "a", "value": "\ud800"}, "/value", "surrogate"),
    ({"op": "eq", "column": "\udfff", "value": 1}, "/column", "surrogate"),
    ({"op": "eq", "column": "", "value": 1}, "/column", "name of a column"),
    ({"op": "eq", "column": 1, "value": 1}, "/column", "name of a column"),
    ({"op": "eq", "column": "a", "value": 1, "x/y": 2}, "/x~1y", "unknown key"),
    ({"op": "is-null", "column": "a", "value": 1}, "/value", "unknown key"),
    ({"op": "starts-with", "column": "a", "value": 1}, "/value", "string"),
    ({"op": "in", "column": "a", "values": []}, "/values", "1 to 10000"),
    ({"op": "in", "column": "a", "values": "abc"}, "/values", "1 to 10000"),
    ({"op": "in", "column": "a", "values": [1, [2]]}, "/values/1", "must be text"),
    ({"op": "in", "column": "a", "values": [0] * (MAX_VALUES + 1)}, "/values", "1 to 10000"),
    (chain(MAX_DEPTH + 1), "/arg" * MAX_DEPTH, "deeper than 64"),
    ({"op": "or", "args": [LEAF] * MAX_NODES}, f"/args/{MAX_NODES - 1}", "more than 10000"),
]


@pytest.mark.parametrize("obj, pointer, message", REFUSED)
def test_refused(obj: object, pointer: str, message: str) -> None:
    with pytest.raises(PredicateError) as caught:
        parse_predicate(obj, pointer="/filter")
    assert caught.value.pointer == "/filter" + pointer
    assert message in caught.value.message


def test_the_limits_themselves_are_allowed() -> None:
    parse_predicate(chain(MAX_DEPTH))
    parse_predicate({"op": "or", "args": [LEAF] * (MAX_NODES - 1)})
    parse_predicate({"op": "in", "column": "a", "values": [0] * MAX_VALUES})
    parse_predicate({"op": "eq", "column": "a", "value": -(10**38 - 1)})


columns = st.text(min_size=1)
scalars = (
    st.text() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
leaves: st.SearchStrategy[Predicate] = (
    st.builds(Compare, st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"]), columns, scalars)
    | st.builds(Compare, st.just("starts-with"), columns, st.text())
    | st.builds(In, columns, st.lists(st.none() | scalars, min_size=1, max_size=3).map(tuple))
    | st.builds(IsNull, columns)
    | st.builds(IsNotNull, columns)
)


def branches(inner: st.SearchStrategy[Predicate]) -> st.SearchStrategy[Predicate]:
    args = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.builds(And, args) | st.builds(Or, args) | st.builds(Not, inner)


@settings(max_examples=60)
@given(st.recursive(leaves, branches, max_leaves=6))
def test_round_trip(predicate: Predicate) -> None:
    assert parse_predicate(to_builtins(predicate)) == predicate


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["and", "in", "eq"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["op", "args", "arg", "column"]), inner)
    ),
    max_leaves=6,
)


@settings(max_examples=60)
@given(json_values)
def test_any_json_is_parsed_or_refused_by_name(obj: object) -> None:
    with contextlib.suppress(PredicateError):
        assert to_builtins(parse_predicate(obj)) == obj
