"""FileEntry: a live file as an Avro record.

The field ids and names are those of tables in the field; ours are nullable and come with a default, so that every
reader that resolves by name reads our manifests and we read everybody's. What an entry has no field for travels as
JSON in `extra`. A null partition value is an absent key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import fastavro
import msgspec

from tarnlog.protocol.action_json import from_object, unknown_fields
from tarnlog.protocol.actions import Add
from tarnlog_server.codec.table_state import UNKNOWN_VERSION, StateFile

NAMESPACE = "io.indextables.state"
_TEXTS = {"type": "map", "values": "string"}
_NULLABLE_TEXTS = {"type": "map", "values": ["null", "string"]}
_LIST = {"type": "array", "items": "string"}


def _required(name: str, field_id: int, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "field-id": field_id}


def _optional(name: str, field_id: int, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": field_id}


SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "FileEntry",
        "namespace": NAMESPACE,
        "fields": [
            _required("path", 100, "string"),
            _required("partitionValues", 101, _TEXTS),
            _required("size", 102, "long"),
            _required("modificationTime", 103, "long"),
            _required("dataChange", 104, "boolean"),
            _optional("tags", 105, _NULLABLE_TEXTS),
            _optional("stats", 110, "string"),
            _optional("minValues", 111, _TEXTS),
            _optional("maxValues", 112, _TEXTS),
            _optional("numRecords", 113, "long"),
            _optional("footerStartOffset", 120, "long"),
            _optional("footerEndOffset", 121, "long"),
            _optional("deleteOpstamp", 123, "long"),
            {"name": "hasFooterOffsets", "type": "boolean", "default": False, "field-id": 124},
            _optional("hotcacheStartOffset", 125, "long"),
            _optional("hotcacheLength", 126, "long"),
            _optional("splitTags", 132, _LIST),
            _optional("docMappingJson", 133, "string"),
            _optional("numMergeOps", 134, "int"),
            _optional("docMappingRef", 135, "string"),
            _optional("uncompressedSizeBytes", 136, "long"),
            _optional("timeRangeStart", 137, "string"),
            _optional("timeRangeEnd", 138, "string"),
            _required("addedAtVersion", 140, "long"),
            _required("addedAtTimestamp", 141, "long"),
            _optional("companionSourceFiles", 150, _LIST),
            _optional("companionDeltaVersion", 151, "long"),
            _optional("companionFastFieldMode", 152, "string"),
            _optional("extra", 160, "string"),
        ],
    }
)


def to_record(file: StateFile) -> dict[str, Any]:
    """The Avro record of a file; absent fields take the schema's defaults."""
    record: dict[str, Any] = msgspec.to_builtins(file.add)
    record["addedAtVersion"] = file.added_at_version
    record["addedAtTimestamp"] = file.added_at_timestamp
    values = record["partitionValues"]
    if None in values.values():
        record["partitionValues"] = {name: value for name, value in values.items() if value is not None}
    unknown = unknown_fields(file.add)
    if unknown:
        record["extra"] = msgspec.json.encode(unknown).decode()
    return record


def from_record(record: dict[str, Any], partition_columns: Sequence[str] = ()) -> StateFile:
    """A file from a decoded record of any writer, which is consumed; msgspec.ValidationError says what is wrong.

    Partition columns that the record does not mention are null.
    """
    version = record.pop("addedAtVersion", None)
    timestamp = record.pop("addedAtTimestamp", None)
    extra = record.pop("extra", None)
    if not isinstance(version, int):
        version = UNKNOWN_VERSION
    if partition_columns:
        values = record.get("partitionValues")
        if isinstance(values, dict) and len(values) < len(partition_columns):
            record["partitionValues"] = dict.fromkeys(partition_columns) | values
    if extra is None:
        try:
            add = msgspec.convert(record, Add)
        except msgspec.ValidationError:
            add = _leniently(record, None)
    else:
        add = _leniently(record, extra)
    return StateFile(add, version, timestamp if isinstance(timestamp, int) else add.modification_time)


def _leniently(record: dict[str, Any], extra: str | None) -> Add:
    """Nulls where we have none, and fields that we do not know: these are carried on."""
    body = {name: value for name, value in record.items() if value is not None}
    if extra is not None:
        unknown = msgspec.json.decode(extra)
        if not isinstance(unknown, dict):
            raise msgspec.ValidationError("extra: expected a JSON object")
        body = unknown | body
    return cast(Add, from_object(Add, msgspec.to_builtins(body)))
