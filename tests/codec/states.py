"""States to write and read: one fixed with everything in it, and strategies for arbitrary ones."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from hypothesis import strategies as st

from tarnlog.protocol.action_json import from_object
from tarnlog.protocol.actions import Add, Format, MetaData, Protocol, Remove, Skip, Txn
from tarnlog_server.codec.table_state import StateFacts, StateFile, StateRemove
from tarnlog_server.codec.version_file import CorruptObject

VERSION = 42
SHA = "5e" * 32
SCHEMA_STRING = (
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"day","type":"date","nullable":true,"metadata":{}},{"name":"n","type":"integer","nullable":true,"metadata":{}}]}'
)
PARTITION_COLUMNS = ("day", "n")
METADATA = MetaData(
    id="7f0c",
    name="orders",
    format=Format(provider="parquet", options={"k": "v"}),
    schema_string=SCHEMA_STRING,
    partition_columns=PARTITION_COLUMNS,
    configuration={"docMappingSchema.ab12cd34ef56gh78": '[{"name":"title"}]', "owner": "zoë"},
    created_time=1704067200000,
)
FULL_ADD = Add(
    path="day=2024-01-01/n=9/gr%C3%BCn.parquet",
    partition_values={"day": "2024-01-01", "n": "9"},
    size=1048576,
    modification_time=1704067200000,
    data_change=True,
    stats='{"numRecords":3}',
    tags={"a": "b", "none": None},
    min_values={"id": "1"},
    max_values={"id": "9"},
    num_records=3,
    footer_start_offset=900,
    footer_end_offset=1000,
    hotcache_start_offset=850,
    hotcache_length=50,
    has_footer_offsets=True,
    time_range_start="2024-01-01T00:00:00Z",
    time_range_end="2024-01-02T00:00:00Z",
    split_tags=("x", "y"),
    delete_opstamp=7,
    num_merge_ops=2,
    doc_mapping_json="[]",
    doc_mapping_ref="ab12cd34ef56gh78",
    uncompressed_size_bytes=4194304,
    companion_source_files=("s.parquet",),
    companion_delta_version=5,
    companion_fast_field_mode="HYBRID",
)


def with_unknown(action: msgspec.Struct, unknown: dict[str, Any]) -> Any:
    """The action as a reader makes it that met fields it does not know."""
    kind = type(action)
    return from_object(kind, msgspec.to_builtins(action) | unknown)


def plain_add(path: str, day: str | None = "2024-01-02", n: str | None = "10") -> Add:
    return Add(path=path, partition_values={"day": day, "n": n}, size=10, modification_time=5, data_change=True)


FILES = (
    StateFile(FULL_ADD, 3, 1704067200123),
    StateFile(plain_add("day=2024-01-02/n=10/b.parquet"), 42, 1704067209999),
    StateFile(
        cast(Add, with_unknown(plain_add("day=x/c.parquet", None, None), {"future": {"x": [1, None]}, "extra": 1})),
        7,
        8,
    ),
)
REMOVES = (
    StateRemove("day=2024-01-03/a.parquet", 41, 99, Remove(path="day=2024-01-03/a.parquet", data_change=True)),
    StateRemove(
        "z.parquet",
        40,
        77,
        cast(
            Remove,
            with_unknown(
                Remove(
                    path="z.parquet",
                    data_change=False,
                    deletion_timestamp=77,
                    extended_file_metadata=True,
                    partition_values={"day": None, "n": "1"},
                    size=4,
                    tags={"t": "u"},
                ),
                {"version": 5},
            ),
        ),
    ),
)
FACTS = StateFacts(
    version=VERSION,
    timestamp=1704067200456,
    protocol=Protocol(
        min_reader_version=4, min_writer_version=4, reader_features=("avroState",), writer_features=("avroState",)
    ),
    metadata=METADATA,
    txns=(
        (Txn(app_id="stream", version=8, last_updated=9), 41),
        (with_unknown(Txn(app_id="b", version=-1), {"u": 1}), 2),
    ),
    skips=(
        Skip(path="p.parquet", skip_timestamp=1, reason="broken", operation="merge", retry_after=99, skip_count=3),
        with_unknown(Skip(path="q.parquet", skip_timestamp=1, reason="r", operation="o"), {"why": "not"}),
    ),
    removes=REMOVES,
    truncation_length=32,
    version_put_id="018cc251f4007000800000000000abcd",
    version_sha256=SHA,
    dropped=True,
    adopted_from=12,
    version_timestamps=((13, 1704067100000), (14, 1704067100001)),
)


def unchanged(facts: StateFacts) -> StateFacts:
    """What a checkpoint keeps: nothing in it changes data, and removes are sorted by path."""
    removes = tuple(
        msgspec.structs.replace(item, remove=msgspec.structs.replace(item.remove, data_change=False))
        for item in sorted(facts.removes, key=lambda item: item.path)
    )
    return msgspec.structs.replace(facts, removes=removes)


def unchanged_files(files: list[StateFile] | tuple[StateFile, ...]) -> list[StateFile]:
    return [
        msgspec.structs.replace(file, add=msgspec.structs.replace(file.add, data_change=False))
        for file in sorted(files, key=lambda file: file.add.path)
    ]


def unpacked(text: str) -> bytes:
    """Golden bytes from their short spelling in a test."""
    return zlib.decompress(base64.b64decode(text))


def assert_noticed_or_harmless(data: bytes, decode: Callable[[bytes], object], key: str, harmless: int = 0) -> None:
    """Flip every bit and cut at every place: an error names the object, or the value is the same."""
    whole = decode(data)
    unnoticed = 0
    for at in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[at // 8] ^= 1 << at % 8
        try:
            read = decode(bytes(damaged))
        except CorruptObject as error:
            if key not in error.key:
                raise
            continue
        assert read == whole, f"bit {at} changed what the object says"
        unnoticed += 1
    for length in range(len(data)):
        with pytest.raises(CorruptObject):
            decode(data[:length])
    assert unnoticed <= harmless


_INT64 = st.integers(-(2**63), 2**63 - 1)
_COUNT = st.integers(0, 2**63 - 1)
_TEXT = st.text(max_size=12)
_MAP = st.dictionaries(_TEXT, _TEXT, max_size=3)
_NULLABLE_MAP = st.dictionaries(_TEXT, st.none() | _TEXT, max_size=3)
_LIST = st.lists(_TEXT, max_size=3).map(tuple)
_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | _INT64 | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=5,
)
_UNKNOWN = st.dictionaries(
    st.sampled_from(["future", "extra", "version", "addedAtVersion", "removedAtVersion", "ünïcode", ""]),
    _JSON.filter(lambda value: value is not None),
    max_size=3,
)
_BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "min_values": _MAP,
    "max_values": _MAP,
    "tags": _NULLABLE_MAP,
    "split_tags": _LIST,
    "companion_source_files": _LIST,
    "num_records": _COUNT,
    "num_merge_ops": st.integers(-(2**31), 2**31 - 1),
}
_TEXT_FIELDS = {
    *("stats", "time_range_start", "time_range_end", "doc_mapping_json", "doc_mapping_ref", "companion_fast_field_mode")
}


def _optional(name: str) -> st.SearchStrategy[Any]:
    return st.none() | _BY_TYPE.get(name, _TEXT if name in _TEXT_FIELDS else _INT64)


adds: st.SearchStrategy[Add] = st.builds(
    lambda action, unknown: with_unknown(action, unknown) if unknown else action,
    st.builds(
        Add,
        path=st.text(min_size=1, max_size=20),
        partition_values=st.fixed_dictionaries({name: st.none() | _TEXT for name in PARTITION_COLUMNS}),
        size=_COUNT,
        modification_time=_INT64,
        data_change=st.booleans(),
        has_footer_offsets=st.booleans(),
        **{
            field.name: _optional(field.name)
            for field in msgspec.structs.fields(Add)
            if not field.required and field.name != "has_footer_offsets"
        },
    ),
    _UNKNOWN,
)
state_files = st.builds(StateFile, adds, _COUNT, _INT64)
file_lists = st.lists(state_files, max_size=8, unique_by=lambda file: file.add.path).map(
    lambda files: sorted(files, key=lambda file: file.add.path)
)


def _remove(path: str, data_change: bool, stamp: int | None, unknown: dict[str, Any], rest: dict[str, Any]) -> Remove:
    action = Remove(path=path, data_change=data_change, deletion_timestamp=stamp, **rest)
    return cast(Remove, with_unknown(action, unknown) if unknown else action)


_removes = st.builds(
    lambda remove, version, effective: StateRemove(remove.path, version, effective, remove),
    st.builds(
        _remove,
        st.text(min_size=1, max_size=9),
        st.booleans(),
        st.none() | _INT64,
        _UNKNOWN,
        st.fixed_dictionaries(
            {
                "extended_file_metadata": st.none() | st.booleans(),
                "partition_values": st.none() | _NULLABLE_MAP,
                "size": st.none() | _COUNT,
                "tags": st.none() | _NULLABLE_MAP,
            }
        ),
    ),
    _COUNT,
    _INT64,
)
fact_values = st.builds(
    StateFacts,
    version=st.just(VERSION),
    timestamp=_COUNT,
    protocol=st.builds(
        Protocol,
        min_reader_version=st.integers(1, 4),
        min_writer_version=st.integers(1, 4),
        reader_features=st.none() | _LIST,
        writer_features=st.none() | _LIST,
    ),
    metadata=st.none() | st.just(METADATA) | st.just(with_unknown(METADATA, {"future": 1})),
    txns=st.lists(
        st.tuples(st.builds(Txn, app_id=st.text(min_size=1, max_size=5), version=_INT64), _COUNT), max_size=3
    ).map(tuple),
    skips=st.lists(
        st.builds(Skip, path=_TEXT, skip_timestamp=_INT64, reason=_TEXT, operation=_TEXT, skip_count=_COUNT), max_size=2
    ).map(tuple),
    removes=st.lists(_removes, max_size=3, unique_by=lambda item: item.path).map(tuple),
    truncation_length=st.none() | st.integers(1, 99),
    version_put_id=st.none() | _TEXT,
    version_sha256=st.just(SHA),
    dropped=st.booleans(),
    adopted_from=st.none() | _COUNT,
    version_timestamps=st.lists(st.tuples(_COUNT, _COUNT), max_size=2).map(tuple),
)
