"""The size without compression, as containers tell it, against what inflating them gives."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog_server.codec.checkpoint_json import encode_checkpoint
from tarnlog_server.codec.checkpoint_parquet import encode_parquet
from tarnlog_server.codec.sealed_lines import inflate
from tarnlog_server.codec.state_avro import Compression, write_container
from tarnlog_server.codec.table_state import StateFile
from tarnlog_server.codec.uncompressed import uncompressed_size
from tests.codec.states import FACTS, plain_add

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "text", "type": "string"}]}


def records(count: int, length: int) -> list[dict[str, str]]:
    rng = random.Random(count)
    return [{"text": rng.choice("abc") * length} for _ in range(count)]


@pytest.mark.parametrize("compression", ["zstd", "snappy"])
@pytest.mark.parametrize("count,length", [(0, 1), (1, 1), (1, 300), (3, 30_000), (500, 10), (20_000, 100)])
def test_an_avro_container_has_the_size_of_one_without_a_codec(
    count: int, length: int, compression: Compression
) -> None:
    plain = write_container(SCHEMA, records(count, length), "none", 1)
    packed = write_container(SCHEMA, records(count, length), compression, 3)
    # The name of the codec, and the lengths of the blocks, differ by a few bytes.
    assert abs(uncompressed_size(packed) - len(plain)) < 20 + 8 * (1 + len(plain) // 200_000)
    assert uncompressed_size(plain) == len(plain)


@pytest.mark.parametrize("count", [1, 100, 2000])
def test_a_json_checkpoint_has_the_size_of_its_text(count: int) -> None:
    files = [StateFile(plain_add(f"part-{number:05d}"), 1, 2) for number in range(count)]
    packed = encode_checkpoint(FACTS, files, compress=True).data
    assert uncompressed_size(packed) == len(inflate("k", packed))


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip"])
def test_a_parquet_checkpoint_has_about_the_size_of_one_without_a_codec(compression: str) -> None:
    files = [StateFile(plain_add(f"part-{number:05d}"), 1, 2) for number in range(3000)]
    (plain,) = encode_parquet(FACTS, files, compression="none")
    (packed,) = encode_parquet(FACTS, files, compression=compression)  # type: ignore[arg-type]
    assert len(packed.data) < 0.8 * len(plain.data)
    assert uncompressed_size(packed.data) == pytest.approx(len(plain.data), rel=0.05)


@given(st.sampled_from([b"", b"Obj\x01", b"PAR1", b"\x01\x01", b"\x1f\x8b"]), st.binary(max_size=200))
def test_whatever_the_bytes_are_it_answers(start: bytes, rest: bytes) -> None:
    assert isinstance(uncompressed_size(start + rest), int)
