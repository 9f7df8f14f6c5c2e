"""The files that a small state tells in its document are those that its manifests, or columns, hold."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tarnlog.protocol.action_json import unknown_fields
from tarnlog.protocol.actions import Remove, Txn
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
from tarnlog_server.codec.table_state import StateFacts, StateFile, StateRemove
from tarnlog_server.codec.told_files import FEW, FEW_BYTES, NOT_TOLD, same_files, tell, told
from tarnlog_server.codec.version_file import CorruptObject
from tests.codec.states import FACTS, FILES, PARTITION_COLUMNS, VERSION, plain_add, state_files

KEY = "t/_transaction_log/x"
KNOWN = tuple(file for file in FILES if not unknown_fields(file.add))


def as_sent(stored: StateFile, file: StateFile) -> StateFile:
    """Entries tell of no change of data; what is told is what a state is given."""
    return msgspec.structs.replace(stored, add=msgspec.structs.replace(stored.add, data_change=file.add.data_change))


def numbered(count: int, note: str = "") -> list[StateFile]:
    return [StateFile(plain_add(f"p{number:04}{note}"), number, number + 1) for number in range(count)]


@given(st.lists(state_files, max_size=5))
def test_what_is_told_is_what_avro_entries_hold(files: list[StateFile]) -> None:
    text = tell(files, PARTITION_COLUMNS)
    if any(unknown_fields(file.add) for file in files):
        assert text == NOT_TOLD
    else:
        stored = decode_manifest(KEY, encode_manifest(files).data, partition_columns=PARTITION_COLUMNS)
        assert told(tell(stored, PARTITION_COLUMNS)) == stored
        assert told(text) == [as_sent(one, file) for one, file in zip(stored, files, strict=True)]


def test_a_partition_column_that_a_file_does_not_mention_is_null_in_both() -> None:
    add = msgspec.structs.replace(plain_add("a"), partition_values={"n": "1"}, data_change=False)
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
    part = told_part(KEY, VERSION, info.told, only.data, sha256)
    assert part is not None
    quick = join_parts(KEY, VERSION, None, [part])
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


def removed(count: int) -> StateFacts:
    """Facts with so many removes."""
    removes = tuple(
        StateRemove(f"gone{number:05}", 1, 2, Remove(path=f"gone{number:05}", data_change=False))
        for number in range(count)
    )
    return msgspec.structs.replace(FACTS, removes=removes)


@pytest.mark.parametrize("removes", [0, 1, 990, 999])
def test_removes_come_from_the_columns_however_many_rows_there_are(removes: int) -> None:
    facts = removed(removes)
    (only,) = encode_parquet(facts, numbered(20))
    sha256 = sha256_hex(only.data)
    found = tell_parquet(facts, numbered(20))
    assert found is not None
    part = told_part(KEY, VERSION, found, only.data, sha256)
    assert part is not None
    quick = join_parts(KEY, VERSION, None, [part])
    slow = join_parts(KEY, VERSION, None, [decode_parquet_part(KEY, only.data, sha256=sha256)])
    assert len(quick.facts.removes) == removes
    assert quick.facts == slow.facts
    assert same_files(quick.files, slow.files)


def test_many_removes_or_txns_keep_a_parquet_checkpoint_from_being_told() -> None:
    assert tell_parquet(removed(1000), numbered(2)) is None
    txns = tuple((Txn(app_id=str(number), version=1), 1) for number in range(FEW + 1))
    assert tell_parquet(msgspec.structs.replace(removed(0), txns=txns, skips=()), numbered(2)) is None


def test_a_list_of_a_later_version_is_not_told_to_this_one() -> None:
    """Its document is whole, and so are the manifests or columns."""
    found = tell_parquet(FACTS, KNOWN)
    assert found is not None
    for files in (
        Raw(bytes(found.files).replace(b'"size":', b'"ofLater":1,"size":')),
        Raw(b'{"of":"later"}'),
        NOT_TOLD,
    ):
        assert files != found.files
        assert told(files) is None
        assert told_part(KEY, VERSION, msgspec.structs.replace(found, files=files), b"", sha256_hex(b"")) is None


def test_what_is_told_wrongly_names_the_object() -> None:
    found = tell_parquet(FACTS, KNOWN)
    assert found is not None
    with pytest.raises(CorruptObject, match=KEY):
        told_part(KEY, VERSION, msgspec.structs.replace(found, protocol=Raw(b"7")), b"", sha256_hex(b""))
