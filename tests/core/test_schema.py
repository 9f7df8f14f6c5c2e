"""Schemas: what is accepted, what is refused and where, and that nothing is lost on the way through."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarnlog.protocol.schema import (
    MAX_DEPTH,
    MAX_FIELDS,
    ArrayType,
    Primitive,
    SchemaError,
    StructType,
    parse_schema,
    parse_schema_string,
)


def one(data_type: object, **more: object) -> dict[str, object]:
    return {"type": "struct", "fields": [{"name": "c", "type": data_type, "nullable": True, "metadata": {}, **more}]}


CANONICAL = [
    "string",
    "long",
    "integer",
    "short",
    "byte",
    "float",
    "double",
    "decimal(38,18)",
    "decimal(1,0)",
    "boolean",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "char(1)",
    "varchar(65535)",
    "interval",
    "interval year",
    "interval year to month",
    "interval day to second",
    "interval second",
    "variant",
    "void",
    "time(6)",
    "geometry(OGC:CRS84)",
]


@pytest.mark.parametrize("text", CANONICAL)
def test_spark_types_keep_their_spelling(text: str) -> None:
    schema = parse_schema(one(text))
    assert schema.to_json_object() == one(text)
    assert str(schema.fields[0].type) == text


@pytest.mark.parametrize(
    "alias, text",
    [
        ("bigint", "long"),
        ("int", "integer"),
        ("smallint", "short"),
        ("tinyint", "byte"),
        ("decimal", "decimal(10,0)"),
        ("decimal( 10 , 2 )", "decimal(10,2)"),
        ("null", "void"),
        ("timestamp_ltz", "timestamp"),
    ],
)
def test_other_names_become_sparks(alias: str, text: str) -> None:
    assert parse_schema(one(alias)) == parse_schema(one(text))
    assert parse_schema(one(alias)).to_json_object() == one(text)


def test_defaults_and_parts() -> None:
    array = {"type": "array", "elementType": "long", "containsNull": False}
    schema = parse_schema({"type": "struct", "fields": [{"name": "a", "type": array}, {"name": "B", "type": "string"}]})
    assert schema.names == ("a", "B")
    assert schema.by_name()["b"].nullable is True
    assert schema.by_name()["a"].type == ArrayType(Primitive("long"), False)
    assert Primitive("decimal", (10, 2)).text == "decimal(10,2)"


def test_what_is_not_understood_survives() -> None:
    inner = {"type": "struct", "fields": [], "future": [1]}
    map_type = {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": False, "m": {"n": None}}
    udt = {"type": "udt", "class": "a.B", "pyClass": None, "sqlType": "string"}
    schema = one(map_type, metadata={"comment": "x", "deep": [{"y": 1.5}]}, generated="always") | {"top": True}
    fields = schema["fields"]
    assert isinstance(fields, list)
    fields.append({"name": "u", "type": udt, "nullable": False, "metadata": {}})
    assert parse_schema(schema).to_json_object() == schema


def nested(depth: int) -> dict[str, Any]:
    data_type: object = "long"
    for _ in range(depth):
        data_type = {"type": "array", "elementType": data_type, "containsNull": True}
    return one(data_type)


REFUSED: list[tuple[object, str, str]] = [
    (None, "", "must be an object"),
    ("string", "", "must be an object"),
    ({"type": "array"}, "", "must be an object"),
    ({"type": "struct"}, "/fields", "list of fields"),
    ({"type": "struct", "fields": {}}, "/fields", "list of fields"),
    ({"type": "struct", "fields": ["a"]}, "/fields/0", "must be an object"),
    ({"type": "struct", "fields": [{"type": "long"}]}, "/fields/0", '"name" is missing'),
    ({"type": "struct", "fields": [{"name": "a"}]}, "/fields/0", '"type" is missing'),
    (one("long", name=""), "/fields/0/name", "1 to 1024"),
    (one("long", name=5), "/fields/0/name", "must be text"),
    (one("long", name="a\0"), "/fields/0/name", "NUL"),
    (one("long", nullable="yes"), "/fields/0/nullable", "true or false"),
    (one("long", metadata=[]), "/fields/0/metadata", "object"),
    (one("text"), "/fields/0/type", "'text' is no type"),
    (one("LONG"), "/fields/0/type", "no type"),
    (one("decimal(39,0)"), "/fields/0/type", "no type"),
    (one("decimal(5,6)"), "/fields/0/type", "no type"),
    (one("decimal(0,0)"), "/fields/0/type", "no type"),
    (one("decimal(5)"), "/fields/0/type", "no type"),
    (one("decimal(٣,1)"), "/fields/0/type", "no type"),
    (one("char(0)"), "/fields/0/type", "no type"),
    (one("varchar(1,2)"), "/fields/0/type", "no type"),
    (one("time(7)"), "/fields/0/type", "no type"),
    (one("interval month to year"), "/fields/0/type", "no type"),
    (one("interval year to day"), "/fields/0/type", "no type"),
    (one("x" * 5000), "/fields/0/type", "no type"),
    (one(7), "/fields/0/type", "a type is a name"),
    (one({"type": "set"}), "/fields/0/type", "a type is a name"),
    (one({"type": "array"}), "/fields/0/type", '"elementType" is missing'),
    (one({"type": "array", "elementType": "x"}), "/fields/0/type/elementType", "no type"),
    (one({"type": "array", "elementType": "long", "containsNull": 1}), "/fields/0/type/containsNull", "true or false"),
    (one({"type": "map", "keyType": "long"}), "/fields/0/type", '"valueType" is missing'),
    (one(one("q")), "/fields/0/type/fields/0/type", "no type"),
    (nested(MAX_DEPTH), "/fields/0/type" + "/elementType" * (MAX_DEPTH - 1), "deeper than 64"),
    ({"type": "struct", "fields": [{"name": n, "type": "long"} for n in ("a", "b", "A")]}, "/fields/2/name", "twice"),
    (one("long", metadata={"x": "\ud800"}), "", "JSON cannot carry"),
]


@pytest.mark.parametrize("obj, pointer, message", REFUSED)
def test_refused(obj: object, pointer: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_schema(obj)
    assert caught.value.pointer == pointer
    assert message in caught.value.message
    assert len(str(caught.value)) < 2000


def test_the_bounds_themselves_are_allowed() -> None:
    parse_schema(nested(MAX_DEPTH - 1))
    fields = [{"name": f"c{i}", "type": "long"} for i in range(MAX_FIELDS)]
    assert len(parse_schema({"type": "struct", "fields": fields}).fields) == MAX_FIELDS
    with pytest.raises(SchemaError, match="more than 10000 fields"):
        parse_schema({"type": "struct", "fields": [*fields, {"name": "more", "type": "long"}]})
    wide = [{"name": f"s{i}", "type": {"type": "struct", "fields": fields[:5000]}} for i in range(2)]
    with pytest.raises(SchemaError, match="more than 10000 fields"):
        parse_schema({"type": "struct", "fields": wide})


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"type":"struct","fields":[]', '"\\ud800"', b"\xff", "nul"])
def test_text_that_is_no_schema(text: str | bytes) -> None:
    with pytest.raises(SchemaError):
        parse_schema_string(text)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=3,
)
extras = st.dictionaries(st.text(min_size=1).map("x-".__add__), json_values, max_size=2)


def structs(types: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    field = st.builds(
        lambda name, data_type, nullable, metadata, more: {
            "name": name,
            "type": data_type,
            "nullable": nullable,
            "metadata": metadata,
            **more,
        },
        st.text(min_size=1, max_size=8).filter(lambda name: "\0" not in name),
        types,
        st.booleans(),
        st.dictionaries(st.text(), json_values, max_size=2),
        extras,
    )
    fields = st.lists(field, max_size=3, unique_by=lambda item: str(item["name"]).lower())
    return st.builds(lambda items, more: {"type": "struct", "fields": items, **more}, fields, extras)


def containers(types: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    def array(element: object, flag: bool, more: dict[str, object]) -> object:
        return {"type": "array", "elementType": element, "containsNull": flag, **more}

    def mapping(key: object, value: object, flag: bool, more: dict[str, object]) -> object:
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": flag, **more}

    arrays = st.builds(array, types, st.booleans(), extras)
    return arrays | st.builds(mapping, types, types, st.booleans(), extras) | structs(types)


schemas = structs(st.recursive(st.sampled_from(CANONICAL), containers, max_leaves=4))


@settings(max_examples=60)
@given(schemas)
def test_round_trip(obj: dict[str, object]) -> None:
    schema = parse_schema(obj)
    assert schema.to_json_object() == obj
    text = schema.to_schema_string()
    assert msgspec.json.decode(text) == obj
    assert parse_schema_string(text) == schema
    assert isinstance(schema, StructType)


spoilt = json_values | st.sampled_from(["struct", "array", "long"])


@settings(max_examples=60)
@given(st.fixed_dictionaries({"type": st.just("struct") | spoilt, "fields": st.lists(spoilt, max_size=2) | spoilt}))
def test_any_json_is_parsed_or_refused_by_name(obj: object) -> None:
    with contextlib.suppress(SchemaError):
        schema = parse_schema(obj)
        assert parse_schema_string(schema.to_schema_string()) == schema
