"""A PATCH as a function of the metaData it finds: two changes of different keys both hold, in either order."""

from __future__ import annotations

import hashlib

import msgspec
from msgspec import UNSET

from tarnlog.protocol.action_json import with_unknown_fields
from tarnlog.protocol.actions import MetaData
from tarnlog.protocol.problems import ProblemError
from tarnlog.protocol.schema import SchemaError, parse_schema
from tarnlog.protocol.tables import AlterTable
from tarnlog_server.core.free_form import check_schema_metadata

_SORTED = msgspec.json.Encoder(order="sorted")


def patched(current: MetaData, change: AlterTable) -> MetaData:
    """The metaData after `change`. Whether the schema may change so is decided where every commit is (finalize)."""
    configuration = dict(current.configuration)
    if change.properties is not None:
        for key in change.properties.unset:
            configuration.pop(key, None)
        configuration.update(change.properties.set)
    schema_string = current.schema_string
    if change.schema is not None:
        try:
            schema = parse_schema(change.schema)
            check_schema_metadata(schema)
            schema_string = schema.to_schema_string()
        except SchemaError as error:
            raise ProblemError("schema-invalid", f"schema: {error}") from error
    description = current.description if change.description is UNSET else change.description
    after = msgspec.structs.replace(
        current, configuration=configuration, schema_string=schema_string, description=description
    )
    kept = with_unknown_fields(after, current)
    assert isinstance(kept, MetaData)
    return kept


def change_hash(change: msgspec.Struct) -> str:
    """What tells a resend of this change from another change under the same commit id."""
    body = msgspec.to_builtins(change)
    for name in ("commitId", "readVersion"):
        body.pop(name, None)
    return hashlib.sha256(_SORTED.encode(body)).hexdigest()


def operation_of(change: AlterTable) -> str:
    """What the history calls it."""
    if change.schema is not None:
        return "CHANGE SCHEMA"
    if change.properties is not None:
        return "SET TBLPROPERTIES" if change.properties.set or not change.properties.unset else "UNSET TBLPROPERTIES"
    return "ALTER TABLE"
