"""Schemas by their text, each parsed once."""

from __future__ import annotations

import functools

from tarnlog.protocol.schema import Schema, SchemaError, parse_schema_string


@functools.lru_cache(maxsize=512)
def schema_of(schema_string: str) -> Schema:
    """A table's schema, parsed once for each spelling of it. A foreign schema that cannot be parsed counts as empty."""
    try:
        return parse_schema_string(schema_string)
    except SchemaError:
        return Schema(())
