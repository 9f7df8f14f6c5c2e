"""Bounds of what clients may write as they like: operation parameters and metrics, tags, metadata of columns.

Such values are kept in the log for as long as it is, and every reader of the history decodes them. The check is one
walk over decoded JSON that stops at the first bound; its cost is that of what is allowed, not of what was sent.
"""

from __future__ import annotations

from tarnlog.protocol.schema import ArrayType, DataType, MapType, Schema, SchemaError, StructType, UserType

MAX_BYTES = 256 * 1024
MAX_VALUES = 10_000
MAX_DEPTH = 32
MAX_METADATA_BYTES = 64 * 1024
"""Of the metadata of one column."""


def free_form_fault(
    value: object, *, max_bytes: int = MAX_BYTES, max_values: int = MAX_VALUES, max_depth: int = MAX_DEPTH
) -> str | None:
    """What is wrong with a decoded JSON value, or None. Text counts by its characters, anything else as 8 bytes."""
    waiting: list[tuple[object, int]] = [(value, 0)]
    size = values = 0
    while waiting:
        item, depth = waiting.pop()
        values += 1
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict | list | tuple):
            if depth == max_depth:
                return f"it is nested deeper than {max_depth} levels: flatten it"
            if values + len(waiting) + len(item) > max_values:
                return f"it has more than {max_values} members: keep only what readers need"
            if isinstance(item, dict):
                size += sum(len(key) for key in item if isinstance(key, str))
                waiting.extend((inner, depth + 1) for inner in item.values())
            else:
                waiting.extend((inner, depth + 1) for inner in item)
        else:
            size += 8
        if size > max_bytes:
            return f"it has more than {max_bytes} bytes: keep only what readers need"
    return None


def check_schema_metadata(schema: Schema) -> None:
    """SchemaError when a column's metadata, or what else is written beside it, is larger than a column needs."""
    waiting: list[tuple[DataType, str]] = [(schema, "")]
    while waiting:
        kind, pointer = waiting.pop()
        if isinstance(kind, StructType):
            _check_extra(kind.extra, pointer)
            for index, field in enumerate(kind.fields):
                place = f"{pointer}/fields/{index}"
                _check_extra(field.metadata, f"{place}/metadata")
                _check_extra(field.extra, place)
                waiting.append((field.type, f"{place}/type"))
        elif isinstance(kind, ArrayType):
            _check_extra(kind.extra, pointer)
            waiting.append((kind.element, f"{pointer}/elementType"))
        elif isinstance(kind, MapType):
            _check_extra(kind.extra, pointer)
            waiting += [(kind.key, f"{pointer}/keyType"), (kind.value, f"{pointer}/valueType")]
        elif isinstance(kind, UserType):
            _check_extra(kind.extra, pointer)
            waiting.append((kind.sql_type, f"{pointer}/sqlType"))


def _check_extra(extra: dict[str, object], pointer: str) -> None:
    fault = free_form_fault(extra, max_bytes=MAX_METADATA_BYTES) if extra else None
    if fault is not None:
        raise SchemaError(pointer, fault)
