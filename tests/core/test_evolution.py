"""Changes of a schema: each allowed kind, each refused kind by its name, and which columns count as changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog.protocol.schema import Schema, parse_schema
from tarnlog_server.core.evolution import SchemaChangeNotAllowed, check_evolution, check_replacement, columns_changed


def field(name: str, data_type: object, nullable: bool = True, **metadata: object) -> dict[str, object]:
    return {"name": name, "type": data_type, "nullable": nullable, "metadata": metadata}


def struct(*fields: dict[str, object]) -> dict[str, object]:
    return {"type": "struct", "fields": list(fields)}


def array(element: object, nulls: bool = True) -> dict[str, object]:
    return {"type": "array", "elementType": element, "containsNull": nulls}


def mapping(key: object, value: object, nulls: bool = True) -> dict[str, object]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": nulls}


def schema(*fields: dict[str, object]) -> Schema:
    return parse_schema(struct(*fields))


A, B, C = field("a", "long"), field("b", "string"), field("c", "date")

ALLOWED: list[tuple[list[dict[str, object]], list[dict[str, object]], set[str]]] = [
    ([A, B], [A, B], set()),
    ([A, B], [A, B, C], {"c"}),
    ([A, B], [A, C, B], {"c"}),
    ([], [A], {"a"}),
    ([field("a", "byte")], [field("a", "short")], {"a"}),
    ([field("a", "byte")], [field("a", "long")], {"a"}),
    ([field("a", "short")], [field("a", "integer")], {"a"}),
    ([field("a", "integer")], [field("a", "long")], {"a"}),
    ([field("a", "float")], [field("a", "double")], {"a"}),
    ([field("a", "long", False)], [A], set()),
    ([A], [field("a", "long", comment="new")], set()),
    ([field("a", struct(A))], [field("a", struct(A, B))], {"a"}),
    ([field("a", struct(field("x", "long", False)))], [field("a", struct(field("x", "long")))], set()),
    ([field("a", array("integer", False))], [field("a", array("long"))], {"a"}),
    ([field("a", array(struct(A)))], [field("a", array(struct(A, C)))], {"a"}),
    ([field("a", mapping("string", "float", False))], [field("a", mapping("string", "double"))], {"a"}),
    ([field("a", mapping("string", struct(A)))], [field("a", mapping("string", struct(A, B)))], {"a"}),
]


@pytest.mark.parametrize("old, new, changed", ALLOWED)
def test_allowed(old: list[dict[str, object]], new: list[dict[str, object]], changed: set[str]) -> None:
    check_evolution(schema(*old), schema(*new), [])
    assert columns_changed(schema(*old), schema(*new)) == changed
    assert columns_changed(schema(*new), schema(*old)) == changed


REFUSED: list[tuple[list[dict[str, object]], list[dict[str, object]], list[str]]] = [
    ([A, B], [A], ["b: a column cannot be dropped"]),
    ([A, B], [A, field("bb", "string")], ["b: a column cannot be dropped (this looks like a rename to bb"]),
    ([A, B], [field("A", "long"), B], ["a: a column cannot be renamed (to A)"]),
    ([A], [A, field("b", "string", False)], ["b: a new column must be nullable"]),
    ([A], [field("a", "long", False)], ["a: a nullable column cannot become required"]),
    ([A], [field("a", "integer")], ["a: the type cannot be narrowed (long to integer)"]),
    ([field("a", "double")], [field("a", "float")], ["a: the type cannot be narrowed (double to float)"]),
    ([A], [field("a", "string")], ["a: the type cannot be changed (long to string)"]),
    ([A], [field("a", "double")], ["a: the type cannot be changed (long to double)"]),
    ([field("a", "integer")], [field("a", "double")], ["a: the type cannot be changed"]),
    ([field("a", "date")], [field("a", "timestamp")], ["a: the type cannot be changed"]),
    ([field("a", "decimal(5,2)")], [field("a", "decimal(6,2)")], ["a: the type cannot be changed (decimal(5,2) to"]),
    ([field("a", "varchar(5)")], [field("a", "string")], ["a: the type cannot be changed"]),
    ([field("a", "long")], [field("a", array("long"))], ["a: the type cannot be changed (long to array<long>)"]),
    ([A, B, C], [B, A, C], ["columns: existing columns cannot be reordered (a, b)"]),
    ([A, B], [B], ["a: a column cannot be dropped"]),
    ([field("s", struct(A, B))], [field("s", struct(A))], ["s.b: a column cannot be dropped"]),
    ([field("s", struct(A, B))], [field("s", struct(B, A))], ["s: existing columns cannot be reordered (a, b)"]),
    (
        [field("s", struct(A))],
        [field("s", struct(A, field("n", "long", False)))],
        ["s.n: a new column must be nullable"],
    ),
    ([field("s", array(struct(A)))], [field("s", array(struct(B)))], ["s.element.a: a column cannot be dropped"]),
    ([field("s", array("long"))], [field("s", array("long", False))], ["s.element: elements that may be null"]),
    ([field("s", array("long"))], [field("s", array("byte"))], ["s.element: the type cannot be narrowed"]),
    (
        [field("s", mapping("integer", "long"))],
        [field("s", mapping("long", "long"))],
        ["s.key: the type of a map's key"],
    ),
    ([field("s", mapping("long", "long"))], [field("s", mapping("long", "long", False))], ["s.value: values that may"]),
    (
        [field("s", mapping("long", "long"))],
        [field("s", mapping("long", "date"))],
        ["s.value: the type cannot be changed"],
    ),
    ([B], [field("b", "string", __COLLATIONS={"b": "icu.DE"})], ["b: the collation cannot change"]),
    (
        [A, B, C],
        [field("a", "date", False), C, field("d", "long", False)],
        [
            "b: a column cannot be dropped",
            "d: a new column",
            "a: a nullable column cannot",
            "a: the type cannot be changed",
        ],
    ),
]


@pytest.mark.parametrize("old, new, changes", REFUSED)
def test_refused_by_name(old: list[dict[str, object]], new: list[dict[str, object]], changes: list[str]) -> None:
    with pytest.raises(SchemaChangeNotAllowed) as caught:
        check_evolution(schema(*old), schema(*new), [])
    assert len(caught.value.changes) == len(changes)
    for change, expected in zip(caught.value.changes, changes, strict=True):
        assert change.startswith(expected)
        assert change in str(caught.value)
    assert "Allowed are: adding columns that may be null" in str(caught.value)


def test_a_partition_column_keeps_its_type() -> None:
    old, new = schema(field("P", "integer"), field("x", "integer")), schema(field("P", "long"), field("x", "long"))
    check_evolution(old, new, [])
    with pytest.raises(SchemaChangeNotAllowed) as caught:
        check_evolution(old, new, ["P"])
    assert caught.value.changes == ("P: the type of a partition column cannot change (integer to long)",)
    with pytest.raises(SchemaChangeNotAllowed) as caught:
        check_evolution(old, schema(field("P", "string"), field("x", "integer")), ["P"])
    assert caught.value.changes == ("P: the type of a partition column cannot change (integer to string)",)
    with pytest.raises(SchemaChangeNotAllowed) as caught:
        check_evolution(old, schema(field("P", "long", False)), ["p"])
    assert [change.split(":")[0] for change in caught.value.changes] == ["x", "P", "P"]
    check_evolution(old, schema(field("P", "integer", comment="x"), field("x", "long")), ["P"])


def test_a_flood_of_changes_stays_readable() -> None:
    old = schema(*(field(f"c{i}", "long") for i in range(1000)))
    with pytest.raises(SchemaChangeNotAllowed) as caught:
        check_evolution(old, schema(), [])
    assert len(caught.value.changes) == 1000
    assert "and 980 more" in str(caught.value)


def test_columns_changed_sees_nested_types_but_not_nullability() -> None:
    old = schema(A, field("s", struct(field("x", "long", False))), field("m", mapping("long", "long", False)), B)
    new = schema(A, field("s", struct(field("x", "long", True, comment="y"))), field("m", mapping("long", "long")), C)
    assert columns_changed(old, new) == {"b", "c"}
    assert columns_changed(schema(A), schema(field("A", "long"))) == {"a", "A"}


WIDTHS = ["byte", "short", "integer", "long"]


@given(st.lists(st.sampled_from(WIDTHS), max_size=5), st.lists(st.sampled_from(WIDTHS), max_size=5))
def test_widening_is_a_partial_order(old: list[str], new: list[str]) -> None:
    """A change is allowed exactly when no column is lost and none becomes narrower."""
    before = schema(*(field(f"c{i}", kind) for i, kind in enumerate(old)))
    after = schema(*(field(f"c{i}", kind) for i, kind in enumerate(new)))
    fits = len(new) >= len(old) and all(WIDTHS.index(a) <= WIDTHS.index(b) for a, b in zip(old, new, strict=False))
    if fits:
        check_evolution(before, after, [])
    else:
        with pytest.raises(SchemaChangeNotAllowed):
            check_evolution(before, after, [])
    different = {f"c{i}" for i in range(max(len(old), len(new))) if old[i : i + 1] != new[i : i + 1]}
    assert columns_changed(before, after) == different


def test_without_files_only_the_partition_columns_stay() -> None:
    check_replacement(schema(A, B), schema(C, field("B", "string")), ["b"])
    for new in ([A, C], [A, field("b", "long")]):
        with pytest.raises(SchemaChangeNotAllowed, match="b: the table is partitioned by it"):
            check_replacement(schema(A, B), schema(*new), ["b"])
