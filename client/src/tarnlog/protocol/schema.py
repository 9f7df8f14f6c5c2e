"""Table schemas: Spark's StructType JSON, parsed once into frozen types.

What is not understood (metadata, keys that a later Spark adds) survives a round trip. Types are written in Spark's own
spelling, so that Spark reads back what was accepted here. Depth and size are bounded before anything is built.
"""

from __future__ import annotations

import re
from typing import TypeAlias

import msgspec

MAX_DEPTH = 64
MAX_FIELDS = 10_000
MAX_NAME_LENGTH = 1024
COLLATIONS = "__COLLATIONS"
"""The metadata of a field in which Spark keeps collations: of the field itself (`name`), of the elements of an array
(`name.element`), of the keys and values of a map (`name.key`). Members of structs carry their own."""

_NAMES = [
    *("string", "boolean", "binary", "variant", "void"),
    *("long", "integer", "short", "byte", "float", "double"),
    *("date", "timestamp", "timestamp_ntz"),
]
# SQL's names are understood as well, but never written: Spark's JSON reader does not know them.
_SIMPLE = {name: name for name in _NAMES} | {
    "bigint": "long",
    "int": "integer",
    "smallint": "short",
    "tinyint": "byte",
    "null": "void",
    "timestamp_ltz": "timestamp",
}
_WITH_ARGS = re.compile(r"(decimal|char|varchar|time)\(\s*(\d{1,10})\s*(?:,\s*(\d{1,10})\s*)?\)", re.ASCII)
_COLLATED = re.compile(r"string collate ([A-Za-z0-9_]{1,128})", re.ASCII)
_BINARY = "UTF8_BINARY"
_SPATIAL = re.compile(r"(geometry|geography)\([A-Za-z0-9:, ]{1,64}\)", re.ASCII)
_YEAR_UNITS = ("year", "month")
_DAY_UNITS = ("day", "hour", "minute", "second")


class SchemaError(ValueError):
    """The schema cannot be used; `pointer` (RFC 6901) leads to the place, the message says what to write instead."""

    def __init__(self, pointer: str, message: str) -> None:
        super().__init__(f"{pointer or 'schema'}: {message}")
        self.pointer = pointer
        self.message = message


class Primitive(msgspec.Struct, frozen=True):
    """A type without parts. `kind` is Spark's type name, `args` its parameters; `text` is what JSON carries."""

    kind: str
    args: tuple[int, ...] = ()
    detail: str = ""

    @property
    def text(self) -> str:
        """The spelling in Spark's JSON, such as `decimal(10,2)`."""
        if self.args:
            return f"{self.kind}({','.join(map(str, self.args))})"
        return self.kind + self.detail

    def __str__(self) -> str:
        return self.text


class ArrayType(msgspec.Struct, frozen=True):
    """A list of values of one type."""

    element: DataType
    contains_null: bool = True
    extra: dict[str, object] = {}

    def __str__(self) -> str:
        return f"array<{self.element}>"


class MapType(msgspec.Struct, frozen=True):
    """Keys, which are never null, to values of one type."""

    key: DataType
    value: DataType
    value_contains_null: bool = True
    extra: dict[str, object] = {}

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


class UserType(msgspec.Struct, frozen=True):
    """A user-defined type: kept as it came, stored as `sql_type`."""

    sql_type: DataType
    extra: dict[str, object] = {}

    def __str__(self) -> str:
        return f"udt<{self.sql_type}>"


class Field(msgspec.Struct, frozen=True):
    """One column, or one member of a nested struct."""

    name: str
    type: DataType
    nullable: bool = True
    metadata: dict[str, object] = {}
    extra: dict[str, object] = {}

    @property
    def collations(self) -> dict[str, str]:
        """The collations other than UTF8_BINARY by path, as Spark spells them (`icu.UNICODE_CI`)."""
        found = self.metadata.get(COLLATIONS)
        if found is None:
            return {}
        named = found if isinstance(found, dict) else {self.name: found}
        return {path: str(name) for path, name in named.items() if str(name).removeprefix("spark.") != _BINARY}

    @property
    def collation(self) -> str | None:
        """The collation of the field's own values; None where text compares by its bytes.

        Under a collation, equality and order are known to engines that implement it: bounds, partition values and
        the bytes of a row decide nothing but whether there is a value.
        """
        return next(iter(self.collations.values()), None) if isinstance(self.type, Primitive) else None


class StructType(msgspec.Struct, frozen=True):
    """Named fields in order. A table's schema is one of these, and so is a nested struct."""

    fields: tuple[Field, ...] = ()
    extra: dict[str, object] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The field names, in order."""
        return tuple(field.name for field in self.fields)

    def by_name(self) -> dict[str, Field]:
        """The fields by their lower-cased names, which are unique; made anew on each call."""
        return {field.name.lower(): field for field in self.fields}

    def find(self, name: str) -> Field | None:
        """A field by name as filters write it: case does not count, and dots lead into structs."""
        fields = self.by_name()
        whole = fields.get(name.lower())
        if whole is not None:
            return whole
        first, _, rest = name.partition(".")
        outer = fields.get(first.lower())
        return outer.type.find(rest) if rest and outer is not None and isinstance(outer.type, StructType) else None

    def to_json_object(self) -> dict[str, object]:
        """Spark's JSON as Python values."""
        return {"type": "struct", "fields": [_field_json(field) for field in self.fields], **self.extra}

    def to_schema_string(self) -> str:
        """Spark's JSON as compact text, as `metaData.schemaString` carries it."""
        return msgspec.json.encode(self.to_json_object()).decode()

    def __str__(self) -> str:
        return f"struct<{','.join(f'{field.name}:{field.type}' for field in self.fields)}>"


Schema: TypeAlias = StructType
DataType: TypeAlias = Primitive | ArrayType | MapType | StructType | UserType


def parse_schema_string(text: str | bytes) -> Schema:
    """Parse `metaData.schemaString`; SchemaError also when it is no JSON."""
    try:
        decoded = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise SchemaError("", f"the schema must be Spark's StructType JSON, but it does not decode: {error}") from None
    return parse_schema(decoded)


def parse_schema(obj: object) -> Schema:
    """Parse decoded StructType JSON; SchemaError points to what is wrong."""
    if not isinstance(obj, dict) or obj.get("type") != "struct":
        raise SchemaError("", 'the schema must be an object {"type": "struct", "fields": [...]}')
    schema = _Parser().struct(obj, "", 1)
    try:
        msgspec.json.encode(schema.to_json_object())
    except (UnicodeError, RecursionError, TypeError, ValueError) as error:
        raise SchemaError("", f"the schema contains a value that JSON cannot carry: {error}") from None
    return schema


class _Parser:
    """Counts fields over the whole tree while it descends."""

    def __init__(self) -> None:
        self.fields_left = MAX_FIELDS

    def type(self, obj: object, pointer: str, depth: int) -> DataType:
        if isinstance(obj, str):
            return _primitive(obj, pointer)
        if depth > MAX_DEPTH:
            raise SchemaError(pointer, f"the schema is nested deeper than {MAX_DEPTH} levels: flatten it")
        kind = obj.get("type") if isinstance(obj, dict) else None
        if isinstance(obj, dict):
            if kind == "struct":
                return self.struct(obj, pointer, depth)
            if kind == "array":
                element = self.type(_required(obj, "elementType", pointer), f"{pointer}/elementType", depth + 1)
                return ArrayType(
                    element, _flag(obj, "containsNull", pointer), _rest(obj, "type", "elementType", "containsNull")
                )
            if kind == "map":
                key = self.type(_required(obj, "keyType", pointer), f"{pointer}/keyType", depth + 1)
                value = self.type(_required(obj, "valueType", pointer), f"{pointer}/valueType", depth + 1)
                nulls = _flag(obj, "valueContainsNull", pointer)
                return MapType(key, value, nulls, _rest(obj, "type", "keyType", "valueType", "valueContainsNull"))
            if kind == "udt":
                sql_type = self.type(_required(obj, "sqlType", pointer), f"{pointer}/sqlType", depth + 1)
                return UserType(sql_type, _rest(obj, "type", "sqlType"))
        raise SchemaError(
            pointer, 'a type is a name such as "string", or an object whose "type" is struct, array or map'
        )

    def struct(self, obj: dict[str, object], pointer: str, depth: int) -> StructType:
        items = obj.get("fields")
        if not isinstance(items, list):
            raise SchemaError(f"{pointer}/fields", "a struct needs a list of fields")
        self.fields_left -= len(items)
        if self.fields_left < 0:
            raise SchemaError(f"{pointer}/fields", f"the schema has more than {MAX_FIELDS} fields: split the table")
        fields = []
        seen: set[str] = set()
        for index, item in enumerate(items):
            field = self.field(item, f"{pointer}/fields/{index}", depth)
            if field.name.lower() in seen:
                message = f"{field.name!r} is there twice (case does not count): rename one of them"
                raise SchemaError(f"{pointer}/fields/{index}/name", message)
            seen.add(field.name.lower())
            fields.append(field)
        return StructType(tuple(fields), _rest(obj, "type", "fields"))

    def field(self, obj: object, pointer: str, depth: int) -> Field:
        if not isinstance(obj, dict):
            raise SchemaError(pointer, 'a field must be an object {"name", "type", "nullable", "metadata"}')
        name = _required(obj, "name", pointer)
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH or "\0" in name:
            message = f"a field's name must be text of 1 to {MAX_NAME_LENGTH} characters without NUL"
            raise SchemaError(f"{pointer}/name", message)
        metadata = obj.get("metadata")
        if metadata is not None and not isinstance(metadata, dict):
            raise SchemaError(f"{pointer}/metadata", "metadata must be an object; leave it out for none")
        data_type = self.type(_required(obj, "type", pointer), f"{pointer}/type", depth + 1)
        rest = _rest(obj, "name", "type", "nullable", "metadata")
        kept, collations = dict(metadata or {}), dict[str, str]()
        data_type = _without_collations(data_type, name, collations)
        if collations:
            given = kept.get(COLLATIONS)
            kept[COLLATIONS] = {**(given if isinstance(given, dict) else {}), **collations}
        return Field(name, data_type, _flag(obj, "nullable", pointer), kept, rest)


def _primitive(text: str, pointer: str) -> Primitive:
    if text in _SIMPLE:
        return Primitive(_SIMPLE[text])
    if text == "decimal":
        return Primitive("decimal", (10, 0))
    if match := _WITH_ARGS.fullmatch(text):
        kind, first, second = match[1], int(match[2]), match[3]
        args = (first,) if second is None else (first, int(second))
        if kind == "decimal" and len(args) == 2 and 1 <= args[0] <= 38 and args[1] <= args[0]:
            return Primitive(kind, args)
        if len(args) == 1 and (0 <= first <= 6 if kind == "time" else kind != "decimal" and first >= 1):
            return Primitive(kind, args)
    elif match := _COLLATED.fullmatch(text):
        return Primitive("string") if match[1].upper() == _BINARY else Primitive("string", (), text[len("string") :])
    elif _SPATIAL.fullmatch(text):
        return Primitive(text[: text.index("(")], (), text[text.index("(") :])
    elif text == "interval" or _is_interval(text):
        return Primitive("interval", (), text[len("interval") :])
    shown = text if len(text) <= 60 else text[:57] + "..."
    message = (
        f"{shown!r} is no type: use string, long, integer, short, byte, float, double, decimal(p,s) with s <= p <= 38, "
        "boolean, binary, date, timestamp, timestamp_ntz, char(n), varchar(n), an interval, variant, or void"
    )
    raise SchemaError(pointer, message)


def _without_collations(data_type: DataType, path: str, found: dict[str, str]) -> DataType:
    """The type with plain strings for `string collate X`, whose names are put into `found` by path: Spark understands
    that spelling and writes the field's metadata instead."""
    match data_type:
        case Primitive("string", _, detail) if detail:
            name = detail.rpartition(" ")[2]
            found[path] = f"{'spark' if name.upper().startswith('UTF8_') else 'icu'}.{name}"
            return Primitive("string")
        case ArrayType(element):
            return msgspec.structs.replace(data_type, element=_without_collations(element, f"{path}.element", found))
        case MapType(key, value):
            key = _without_collations(key, f"{path}.key", found)
            return msgspec.structs.replace(data_type, key=key, value=_without_collations(value, f"{path}.value", found))
        case _:
            return data_type


def _is_interval(text: str) -> bool:
    prefix, _, rest = text.partition(" ")
    start, to, end = rest.partition(" to ")
    if prefix != "interval":
        return False
    for units in (_YEAR_UNITS, _DAY_UNITS):
        if start in units and not to:
            return True
        if start in units and end in units and units.index(start) < units.index(end):
            return True
    return False


def _required(obj: dict[str, object], key: str, pointer: str) -> object:
    if key not in obj:
        raise SchemaError(pointer, f'"{key}" is missing: add it')
    return obj[key]


def _flag(obj: dict[str, object], key: str, pointer: str) -> bool:
    value = obj.get(key, True)
    if not isinstance(value, bool):
        raise SchemaError(f"{pointer}/{key}", f"{key} must be true or false")
    return value


def _rest(obj: dict[str, object], *known: str) -> dict[str, object]:
    return {key: value for key, value in obj.items() if key not in known}


def _field_json(field: Field) -> dict[str, object]:
    known = {"name": field.name, "type": _type_json(field.type), "nullable": field.nullable, "metadata": field.metadata}
    return known | field.extra


def _type_json(data_type: DataType) -> object:
    match data_type:
        case Primitive():
            return data_type.text
        case ArrayType(element, contains_null, extra):
            return {"type": "array", "elementType": _type_json(element), "containsNull": contains_null} | extra
        case MapType(key, value, nulls, extra):
            known = {
                "type": "map",
                "keyType": _type_json(key),
                "valueType": _type_json(value),
                "valueContainsNull": nulls,
            }
            return known | extra
        case UserType(sql_type, extra):
            return {"type": "udt", **extra, "sqlType": _type_json(sql_type)}
        case StructType():
            return data_type.to_json_object()
