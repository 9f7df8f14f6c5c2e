"""The quick reader of our own manifests tells what the general one tells, or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog_server.codec.entry_blocks import own_records
from tarnlog_server.codec.file_entry import SCHEMA
from tarnlog_server.codec.state_avro import (
    Compression,
    ContainerWriter,
    encode_manifest,
    own_headers,
    read_container,
)
from tarnlog_server.codec.table_state import StateFile
from tarnlog_server.codec.version_file import CorruptObject
from tests.codec.states import FILES, state_files

COMPRESSIONS: tuple[Compression, ...] = ("zstd", "snappy", "none")


def generally(data: bytes) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in record.items() if value is not None}
        for record in read_container("m", data, "FileEntry")
    ]


def quickly(data: bytes) -> list[dict[str, Any]] | None:
    return own_records(data, own_headers())


@given(st.lists(state_files, max_size=6), st.sampled_from(COMPRESSIONS))
def test_both_readers_tell_the_same(files: list[StateFile], compression: Compression) -> None:
    data = encode_manifest(files, compression=compression, level=1).data
    assert quickly(data) == generally(data)


def test_several_blocks_are_read() -> None:
    writer = ContainerWriter(SCHEMA, "none", 3)
    record = {
        "path": "p" * 200_000, "partitionValues": {}, "size": -1, "modificationTime": -(2**63), "dataChange": False,
        "addedAtVersion": 2**63 - 1, "addedAtTimestamp": 0,
    }  # fmt: skip
    writer.write([record] * 5)
    data = writer.finish()
    assert data.count(data[-16:]) == 1 + 3, "the container was to have three blocks behind its header"
    assert quickly(data) == generally(data)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_damage_is_left_to_the_general_reader_or_changes_nothing_but_a_value(compression: Compression) -> None:
    data = encode_manifest(FILES, compression=compression).data
    header = next(header for header in own_headers() if data.startswith(header))
    assert quickly(b"x" + data) is None
    assert quickly(data[: len(header) - 1]) is None
    left = 0
    for at in range(len(data)):
        for damaged in (data[:at], *(data[:at] + bytes([value]) + data[at + 1 :] for value in (0, 0xFF, data[at] ^ 1))):
            found = quickly(damaged)
            if found is None:
                left += 1
                continue
            try:
                assert found == generally(damaged)
            except CorruptObject as error:
                pytest.fail(f"byte {at}: read quickly, while the general reader says: {error}")
    assert left > len(header)
