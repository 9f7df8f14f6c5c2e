"""The files that a small state tells in its document are those that its manifests, or columns, hold."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tarnlog.protocol.action_json import unknown_fields
from tarnlog_server.codec.checkpoint_parquet import (
    decode_parquet_info,
    decode_parquet_part,
    encode_parquet,
    encode_parquet_checksums,
    tell_parquet,
    told_part,
)
from tarnlog_server.codec.checkpoint_parts import join_parts
from tarnlog_server.codec.damage import sha256_hex
from tarnlog_server.codec.state_avro import decode_manifest, encode_manifest
from tarnlog_server.codec.state_manifest import (
    ManifestInfo,
    StateManifest,
    decode_state_manifest,
    encode_state_manifest,
)
from tarnlog_server.codec.table_state import StateFile
from tarnlog_server.codec.told_files import FEW, FEW_BYTES, NOT_TOLD, same_files, tell, told
from tarnlog_server.codec.version_file import CorruptObject
from tests.codec.states import FACTS, FILES, PARTITION_COLUMNS, VERSION, plain_add, state_files

KEY = "t/_transaction_log/x"
KNOWN = tuple(file for file in FILES if not unknown_fields(file.add))


def numbered(count: int, note: str = "") -> list[StateFile]:
    return [StateFile(plain_add(f"p{number:04}{note}"), number, number + 1) for number in range(count)]


@given(st.lists(state_files, max_size=5))
def test_what_is_told_is_what_avro_entries_hold(files: list[StateFile]) -> None:
    text = tell(files, PARTITION_COLUMNS)
    if any(unknown_fields(file.add) for file in files):
        assert text == NOT_TOLD
    else:
        stored = decode_manifest(KEY, encode_manifest(files).data, partition_columns=PARTITION_COLUMNS)
        assert told(text) == stored


def test_a_partition_column_that_a_file_does_not_mention_is_null_in_both() -> None:
    add = msgspec.structs.replace(plain_add("a"), partition_values={"n": "1"})
    files = [StateFile(add, 1, 2)]
    stored = decode_manifest(KEY, encode_manifest(files).data, partition_columns=PARTITION_COLUMNS)
    assert told(tell(files, PARTITION_COLUMNS)) == stored
    assert stored[0].add.partition_values == {"day": None, "n": "1"}


def test_only_few_and_short_files_are_told() -> None:
    assert told(tell([])) == []
    assert told(tell(numbered(FEW))) == numbered(FEW)
    assert tell(numbered(FEW + 1)) == NOT_TOLD
    assert tell(numbered(1, "x" * FEW_BYTES)) == NOT_TOLD
    assert told(NOT_TOLD) is None


def test_no_more_files_are_asked_for_than_could_be_told() -> None:
    rest = iter(numbered(FEW + 5))
    assert tell(rest) == NOT_TOLD
    assert next(rest).added_at_version == FEW + 1


def test_the_same_files_in_another_order_are_the_same() -> None:
    files = numbered(3)
    assert same_files(files, files[::-1])
    assert not same_files(files, files[:2])
    assert not same_files(files, [*files[:2], StateFile(files[2].add, files[2].added_at_version, 0)])


def manifest(few: tuple[StateFile, ...] | None) -> StateManifest:
    info = ManifestInfo(path="manifests/m.avro", num_entries=2, sha256="ab" * 32)
    return StateManifest(
        facts=FACTS, created_at=1, num_files=2, total_bytes=20, manifests=(info,), schema_registry={}, few=few
    )


@pytest.mark.parametrize("few", [None, (), KNOWN])
def test_an_avro_states_document_tells_them(few: tuple[StateFile, ...] | None) -> None:
    data = encode_state_manifest(manifest(few))
    found = decode_state_manifest(KEY, VERSION, data)
    assert found.few == (None if few is None else list(few))
    assert (b'"files":' in data) == (few is not None)


def test_a_parquet_checkpoint_is_told_as_its_columns_hold_it() -> None:
    (only,) = encode_parquet(FACTS, KNOWN)
    sha256 = sha256_hex(only.data)
    data = encode_parquet_checksums(VERSION, only.actions, [sha256], 5, tell_parquet(FACTS, KNOWN))
    info = decode_parquet_info(KEY, VERSION, data)
    assert info.told is not None
    quick = join_parts(KEY, VERSION, None, [told_part(KEY, VERSION, info.told, only.data, sha256)])
    slow = join_parts(KEY, VERSION, None, [decode_parquet_part(KEY, only.data, sha256=sha256)])
    assert FACTS.removes, "there are removes, which only the columns hold"
    assert quick.facts == slow.facts
    assert same_files(quick.files, slow.files)
    with pytest.raises(CorruptObject, match="checksum"):
        told_part(KEY, VERSION, info.told, only.data + b"x", sha256)


def test_a_parquet_checkpoint_that_is_large_or_in_parts_is_not_told() -> None:
    assert FACTS.metadata is not None
    metadata = msgspec.structs.replace(FACTS.metadata, description="x" * FEW_BYTES)
    assert tell_parquet(msgspec.structs.replace(FACTS, metadata=metadata), KNOWN) is None
    assert tell_parquet(FACTS, FILES) is None, "one has fields that we do not know"
    two = encode_parquet_checksums(VERSION, 9, ["ab" * 32] * 2, 5, tell_parquet(FACTS, KNOWN))
    assert decode_parquet_info(KEY, VERSION, two).told is None


def test_what_is_told_wrongly_names_the_object() -> None:
    found = tell_parquet(FACTS, KNOWN)
    assert found is not None
    for files in (Raw(b'[[1,2,{"path":7}]]'), NOT_TOLD):
        wrong = msgspec.structs.replace(found, files=files)
        with pytest.raises(CorruptObject, match=KEY):
            told_part(KEY, VERSION, wrong, b"", sha256_hex(b""))
