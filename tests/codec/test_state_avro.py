"""Manifests: golden bytes, every field of every file, damage, and what other writers' records look like."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog.protocol.action_json import unknown_fields
from tarnlog_server.codec.file_entry import SCHEMA
from tarnlog_server.codec.partition_bounds import BoundsBuilder, PartitionBounds, partition_fields
from tarnlog_server.codec.state_avro import (
    Compression,
    decode_manifest,
    encode_manifest,
    read_manifest,
)
from tarnlog_server.codec.table_state import StateFile
from tarnlog_server.codec.version_file import CorruptObject
from tests.codec.states import (
    FILES,
    FULL_ADD,
    METADATA,
    PARTITION_COLUMNS,
    assert_noticed_or_harmless,
    state_files,
    unpacked,
)

KEY = "t/_transaction_log/manifests/manifest-1.avro"
COMPRESSIONS: tuple[Compression, ...] = ("zstd", "snappy", "none")


def bounds() -> BoundsBuilder:
    return BoundsBuilder(partition_fields(METADATA))


def decode(data: bytes, sha256: str | None = None) -> list[StateFile]:
    return decode_manifest(KEY, data, sha256=sha256, partition_columns=PARTITION_COLUMNS)


def container(fields: list[dict[str, Any]], records: list[dict[str, Any]], name: str = "x.y.FileEntry") -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema({"type": "record", "name": name, "fields": fields}), records)
    return out.getvalue()


# Fixed bytes of FILES (deflated here only to be short). Manifests live as long as their tables: never edit these.
GOLDEN: dict[Compression, bytes] = {
    "zstd": unpacked(
        "eNrzT8piZBFJLCvK10vOT0lNFqoqLknMS0ksShEDCxYnZ6TmJp7TqFYqqSxIVbJSUCpKTc4vSlHSUVDKS8wFi2Tm62XmpaRWlCQm5aQW6wEN"
        "KEnVc8vMSXXNKymqBKlMy0zNSSkGqo2uhrB1M1OAPEMDAyRjChJLMkCKYRYVlxRl5qUr1eoooGkyRNFUVJJZkpmfF5aYU5pajKQf4eLcxAKQ"
        "eBlEBZLJmEYbIRldnFmViuyenHysrjFG0pKbn5KZlpmcCHJQSGYuMdpNkLSnJJYkOmck5qWjaEzKz89JTczDotcUqColNS2xNKcEyM8rzclB"
        "MqwkMR05OKKVQPJKOnjCBa4EFkCxtbEYlhoa4LMUFPdYbUUYiWGgIT4DczMxY5YIr8CjGIt9RnjtS6ygtn3G+OzLK80NAmco7KEGTjSYZhrh"
        "jYS0/PyS1KLgEmDW8E9LK04tIcloQ8JGu+alkGEw3nBISc1JLUn1LwAmoNwCkow1QTE2LTGnOBXJ3IzEYjewmyEOLiYqYxnhzVgZ+SXJicBi"
        "kdwANiPGcJ/UvHSU4pCgucZ403VxQU5mSQjBIiGxqCgRXGJnlqTmEkjYxvgjND/ZN7GgAKjXqzg/j7QiwdiEQJbxTS1KByUWrMZm5pVgM9OU"
        "ONcGpaaR6Fi88Vmal5yfW1CUWlycmhIMrFCcKktSScrqxuZ4C3lgJRMEqjDAiZFEh1sQZTIws5NmrglypZ6YkpKa4lgSllpUnImSDHDUhyaG"
        "mJpBNSl6uYBDuyneghEUFYl5QHcE55cWJaeCmihUzA+mhkTZ7ZKaU5KIGR4EE4KpEVHGuyUWl7iBtPkCm3OkRZwZ3sADtu+KEvEbGFvLEDn3"
        "Guf/A8vOLTnu+3uZFocy2z0Wja36fxNmMOhyMohNsDMPWH2JcULHqlXmxsan797SNdm27ezaD80yc2816dz893rTRzWHz9u3dT3Kr+4vyrpv"
        "nuH5bEOEtJoSswGDDoMhQ/1f67RovWvayZbPz8nET1r1/WOAVPrGq1wsZ24G6MmccjtlJDXnZMbEi00zC7OCvpYxvVe8UL383t+/cQ6PI54w"
        "r3fX+1eRHvXPb0996cIPJeaTr9qIyLStOrnbNOcQw6L5i3S8eM+pvW1jP8+2SLjgxO+QD7endW+9+HGGoMmx8wfjz/3k4RZSaW2Z2LYzxnrp"
        "Cj85bc/EuwFz2bRXB6w88rCLJfCGo2jrrWMLdwiGWO7Zzalk9pon53TrwYkfM3mUXmrI8/EzhIh6ND3jKixmY5svm1eV4VVQbn0/o6P5bNGs"
        "C/oHG28KhLPF3AqRRA9BAPed0to="
    ),
    "snappy": unpacked(
        "eNqtVs9rG0cUHk02RgmuUxfHxFCK2ZJggiPvD8mJBTnUTkRaYgy2MKTGhdHOW2nK7sxmZzZIMQIfc2uPvrQn1/TPKPTQW0gvPedaaG4hlxza"
        "WblJVpaykkJAh93R+7739nu/ZqvxfcGYI49iUfIEBW9achJFnfneifRaEJKnSwem6kRgVhfNGDwRU3N50eQk7J0wUWKcQluRRgCyJBVRUKqx"
        "AO5yFXdSS59BQKW23Ts4fb7BqH6zLStDExHVSo3fOJIqZrxpdpcXz4DsPlCsmGKC75IgAZnBv4s4JFF6/ujUIsM8SO1kqCV7DNl4AjE0GjcD"
        "CQVlPvNIGlCdhePAyxk4JYpstAhv9gEbQgRA+BBsRVtR8EkSKP3OkyDIkCnSzMqxZ6b/m8s5urw1eSPQfnd/wKlt5TlNcz/U6zvKAUI7jzBk"
        "g5kd41PepniIPyfXH2l/bH9unj+ehNu9hhquWq9oBjmd3CT4QiiId5RujS3fl6AmorZHU9/l9AOIc3WgEICCrUgXUBhNRFvuo/VJICHD2yKy"
        "1ov5NGA5VmM5uY3VEsojeix+qMCr45DfB97sG4cjed3cupZRwFR95EggcUx6E5spCEcUtpufUOFt6jWisd9IwScbCW55RMtsQtxMi2UoLeNq"
        "GGdlvGi3wZ8w2Nx8JtwTYRSDlEB39EJZ7yiYqNXdm7lDXi+Z7XRh9IpxwsBvjcWsm30y3nJ2qRNKgX6ldiGWrK8M3rMPy/YgON2kZ+fCe+CV"
        "3MGYpoJwHceOSGIP0ivKR+yHij2W7zsQKDKox8hCqDhj0deIVLUUtqnvcpMlbjVXPH2/i0k+4X4XPfjprwv//nby9PiPzdcn14tfTr00js79"
        "eo+Szm3Hcso3LFv/VvjttZVmfHXDvbq+wUv6DvcwAWVMaau5hWvPMcdr6PDwsHD47IdfjrwCNjDBuFHkggNCWEed2ZpVt4uxwSi2ET5ffL6G"
        "8BR+MoOfXcIzBXz8CaYa3cYdhI29ff24SBq241G3DH5ltdm6eQtrRwZeci6fTNctq3r+nPEtXphHzsJ8cerVn4WjaYw/k7O/lxG+iKfvPVjf"
        "/voOqtLSS/S5oz/DtlYas9erL9CSg7lhW2juYgGtF9CV+s///JjGfgV9UagX2yvebG3XRscznyL9BTWte6KSWMt4YLbN6p69nGqpM/K/ylW7"
        "+93fxpOzYv4Hms2Rzw=="
    ),
    "none": unpacked(
        "eNqtVs1rE0EU3wwh1KJVpHiUsiKI1HQ/kn4EerDVoGIptKVQSw+TnbfJyO7MujNbEkugR2969KIn9eyf4M2b6MW/wrMXDzqT2mbTpJukNCzJ"
        "7OS933vzfu9j1mvPc/lpvB/zoscJeBMsCYIbnXfhNSDE3+4cmLIVgVmZMWPweEzM2RmT4bCzQ3mRMgJNiWsBiKKQWEKxSgN4yGTc0pI+hYAI"
        "Jbt7cLS+R4l6sy0rBRNh2dDCx4aEjCmrm+3ZmVNKdo9SLKmknG3jIAGR0u96HOJI7+8fSaSQ+6GdFLSgLyHtT8AHeuOmVEJOqE89rB3aouEo"
        "6qWUOsESrzYwq/co1jgPALMBumUlRcDHSSDVuyYtBSZxPR2OXVP/b85mxOVE5DhAe+29PqO2lWVUcz/QaheyD9DOAgxpP7MjHOWE4gH2nEx7"
        "uHnR9twseywJNzoFNThqnaTpx3QySfA5lxBvSlUa674vQI4FbQ+HfsjIOYAz40AgAAnrkUqgMBoLttQD6+NAQAq3gUW14/ORw2KkwnIyC6vB"
        "pYdVWzxvgOdHAX8KrN7TDofiupl5LaKAyq2hLQHHMe50bCohHJLYbjah3FvDUaR0nwjOxmsJbmlIyaxBXNfJMhCWMjkIszyatxvgj+lsJp8J"
        "83gYxSAEkE01UFZaEsYqdXchs8mrIbOhB0YnGcd0fHEkZFXs4+GW0kMdEwLkvtyGWNCeNDhjHpbsfmU9SU/3hTPUy5mNUVOBmfJjkyexB/qK"
        "coH1ULZHsv0AAon74zE0EcrOSPBVLGRVq62pm9x4xM1nBk/d72KcDbjXNnbe/bz098unbx++rv35dHfiVuFz4RHBrWXHckr3LFs9c2x5aa4e"
        "3151b6+ssqK6wL1IQOYLSmq6K4UYWjIODw9zh99ff3zr5VAeYYRqE4wzMAykPE9NzorbRihPCbKNo98lAxXQqyn0/SqayqEPVxBR+k3UMlB+"
        "d08tZ3DNdjzilsAvz9cbC4tImcqjO137W5ZV6TzPUrtOd7fw+4f2C6Hr4vgIBppElx/trGw8fmBUes7sqDPb1lztjMM6iOVty5iezBl9n633"
        "v94oO3p5U2M257wTewMVpq6pL1RVzCYyiRVRB2bTrOzas5otxfl/Hit2+zRV/wA4dqA6"
    ),
}


# The same as it is written now: no entry changes data.
GOLDEN_WRITTEN = unpacked(
    "eNqtVs1rE0EU3w4h1KJVpHiUsiIUqel+JP0I9GBrQxVLoS2Clh4mO2+Tkd2ZdWe2JJZAj9706EVPtWf/BG/eil78Kzx78aAzqW02TbpJxGVJdmff"
    "+7037/c+ZrP6Yiw3hfdjXvA4AW+cJUFwq/0uvDqE+GTmwJTNCMzytBmDx2Nizk6bDIftFcoLlBFoSFwNQBSExBIKFRrAGpNxU0v6FAIilOzuwenz"
    "fUrUm21ZKZgIy7oWPjMkZExZzWzNTl9QsruUYkkl5ewpDhIQKf2OxyGO9Pr+qUQKuRfaSUEL+grS/gS8rzduSiXkhPrUw9qhHRoOo15MqRMs8Wod"
    "s1qXYpXzADDro1tSUgR8nARSvWvSUmAS19Lh2DX1d3M2Iy7nImcB2mvt9Ri1rSyjmvu+VjuQPYB2FmBIe5kdYivnFPex52Taw43/bc/NsseScKtd"
    "UP2j1k6aXkwnkwSfcwnxtlSlsen7AuRI0PZg6DVG/gE4Mw4EApCwGakECqORYItdsD4OBKRw61hU2j6fOiyGKiwns7DqXHpYtcV/DfD8MOBPgNW6"
    "2uFAXDczr0UUULkzsCXgOMbtjk0lhAMS280mlHsbOIqU7mPB2WgtwS0OKJkNiGs6WfrCUib7YZaG83YL/BGdzeQzYR4PoxiEALKtBspKU8JIpe4u"
    "ZDZ5NWS29MBoJ+OIji8OhayKfTTcYnqoY0KAPJBPIRa0Kw0umYdFu1dZT9KLfeES9VJmY9RUYKb82OZJ7IE+ovzHeijZQ9l+CIHEvfEYmAglZyj4"
    "ChayotU21EluNOLmM4OnzncxzgbcaxnP3n+/8vvz8cnRl41fx/fG7+Q/5dcJbi47llO8b9nqnmPLS3O1+O6qe3dllRXUAe5lAjKXV1JTHSnE0JJx"
    "eHg4dvj1zcd3noFyCCNUHWecgWEg5XlqcpbdFkI5SpBtnP4vGSiPXk+ir9fR5Bg6uoaI0m+gpoLZ3VOP07hqOx5xi+CX5mv1hUWkTOXQTMf+jmWV"
    "2/fz1KrTWc3//Kb9QuimONuCgSbQ1fVnK1uPHhrlrj07as+2NVe9ZLMOYjnbMqYmjN5r58OPt3r/6rqtMRtz3rm9vgqTN9QPqihmE5nEiqgDs2GW"
    "d+1ZzZbi/C+PZbt1kao/NkegNw=="
)


def written(files: Iterable[StateFile]) -> list[StateFile]:
    return [msgspec.structs.replace(file, add=msgspec.structs.replace(file.add, data_change=False)) for file in files]


WRITTEN = written(FILES)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_golden_manifests_are_read(compression: Compression) -> None:
    assert decode(GOLDEN[compression]) == list(FILES)


def test_the_golden_manifest_is_written() -> None:
    # Compressors have many spellings of one text, so only the uncompressed one is compared byte by byte.
    assert encode_manifest(FILES, bounds=bounds(), compression="none").data == GOLDEN_WRITTEN
    assert decode(GOLDEN_WRITTEN) == WRITTEN


def test_no_entry_changes_data_whatever_its_commit_did() -> None:
    """`dataChange` is false in every format of a state: one that was false stays so, and true is the commit's."""
    both = [StateFile(msgspec.structs.replace(FULL_ADD, data_change=change), 1, 2) for change in (True, False)]
    assert [file.add.data_change for file in decode(encode_manifest(both).data)] == [False, False]
    assert decode(encode_manifest(both[1:]).data) == both[1:], "it survives as it is"


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_what_a_state_says_about_a_manifest(compression: Compression) -> None:
    encoded = encode_manifest(iter(FILES), bounds=bounds(), compression=compression)
    assert decode(encoded.data, encoded.sha256) == WRITTEN
    assert (encoded.num_entries, encoded.min_added_at_version, encoded.max_added_at_version) == (3, 3, 42)
    assert encoded.total_bytes == sum(file.add.size for file in FILES)
    assert encoded.partition_bounds == {
        "day": PartitionBounds(min="2024-01-01", max="2024-01-02", contains_null=True),
        "n": PartitionBounds(min="9", max="10", contains_null=True),
    }
    assert encode_manifest(FILES, bounds=bounds(), compression=compression).data == encoded.data, "not deterministic"
    assert encoded.content_hash == encoded.sha256[:16]


def test_field_ids_are_those_of_the_field() -> None:
    ids = {field["name"]: field["field-id"] for field in SCHEMA["fields"]}  # type: ignore[index,call-overload]
    assert SCHEMA["name"] == "io.indextables.state.FileEntry"  # type: ignore[index,call-overload]
    assert ids == {
        "path": 100,
        "partitionValues": 101,
        "size": 102,
        "modificationTime": 103,
        "dataChange": 104,
        "tags": 105,
        "stats": 110,
        "minValues": 111,
        "maxValues": 112,
        "numRecords": 113,
        "footerStartOffset": 120,
        "footerEndOffset": 121,
        "deleteOpstamp": 123,
        "hasFooterOffsets": 124,
        "hotcacheStartOffset": 125,
        "hotcacheLength": 126,
        "splitTags": 132,
        "docMappingJson": 133,
        "numMergeOps": 134,
        "docMappingRef": 135,
        "uncompressedSizeBytes": 136,
        "timeRangeStart": 137,
        "timeRangeEnd": 138,
        "addedAtVersion": 140,
        "addedAtTimestamp": 141,
        "companionSourceFiles": 150,
        "companionDeltaVersion": 151,
        "companionFastFieldMode": 152,
        "extra": 160,
    }


@given(st.lists(state_files, max_size=6), st.sampled_from(COMPRESSIONS))
def test_what_was_written_is_read(files: list[StateFile], compression: Compression) -> None:
    encoded = encode_manifest(files, compression=compression, level=1)
    assert decode(encoded.data, encoded.sha256) == written(files)
    assert encoded.num_entries == len(files)


def test_reading_is_lazy() -> None:
    data = encode_manifest(FILES, compression="none").data
    broken = read_manifest(KEY, data[:-5], partition_columns=PARTITION_COLUMNS)
    assert next(broken) == WRITTEN[0]
    with pytest.raises(CorruptObject):
        list(broken)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_flip_and_cut_is_noticed(compression: Compression) -> None:
    encoded = encode_manifest(FILES[1:2], compression=compression)
    assert_noticed_or_harmless(encoded.data, lambda data: decode(data, encoded.sha256), KEY)


def test_damage_without_a_checksum_is_an_error_that_names_the_object_or_a_value() -> None:
    # A foreign manifest has none; whatever the damage does, nothing else may be raised.
    data = encode_manifest(FILES, compression="zstd").data
    noticed = 0
    for at in range(len(data)):
        for value in (0, 0xFF, data[at] ^ 1):
            try:
                decode(data[:at] + bytes([value]) + data[at + 1 :])
            except CorruptObject as error:
                noticed += error.key == KEY
    assert noticed > len(data)


def test_the_number_of_entries_tells_a_cut_at_a_block() -> None:
    data = encode_manifest(FILES, compression="none").data
    with pytest.raises(CorruptObject, match="announces 4 entries, but 3"):
        decode_manifest(KEY, data, num_entries=4)
    assert len(decode_manifest(KEY, data, num_entries=3)) == 3


BASIC: list[dict[str, Any]] = [
    {"name": "path", "type": "string"},
    {"name": "partitionValues", "type": {"type": "map", "values": ["null", "string"]}},
    {"name": "size", "type": "int"},
    {"name": "modificationTime", "type": "long"},
]
RECORD: dict[str, Any] = {"path": "a", "partitionValues": {"day": None, "n": "1"}, "size": 1, "modificationTime": 2}


def test_records_of_other_writers() -> None:
    fields = [
        *BASIC,
        {"name": "hasFooterOffsets", "type": ["null", "boolean"]},
        {"name": "novel", "type": ["null", "string", "bytes"]},
    ]
    data = container(fields, [RECORD | {"hasFooterOffsets": None, "novel": "x"}, RECORD | {"novel": b"\x00"}])
    first, second = decode(data)
    assert (first.added_at_version, first.added_at_timestamp) == (0, 2)
    assert first.add.data_change
    assert first.add.partition_values == {"day": None, "n": "1"}
    assert unknown_fields(first.add) == {"novel": "x"}
    assert unknown_fields(second.add) == {"novel": "AA=="}, "kept as JSON can"
    assert decode(encode_manifest([first, second]).data) == written([first, second])


@pytest.mark.parametrize(
    "data, says",
    [
        (b"", "container cannot be read"),
        (b"Obj\x01", "container cannot be read"),
        (b"not avro", "container cannot be read"),
        (container(BASIC, [RECORD], "StateManifest"), "does not hold FileEntry"),
        (container(BASIC, [RECORD | {"size": -1}]), "an entry cannot be read"),
        (container(BASIC[1:], [RECORD]), "an entry cannot be read"),
        (
            container([*BASIC, {"name": "extra", "type": "string"}], [RECORD | {"extra": "[]"}]),
            "expected a JSON object",
        ),
        (
            container([*BASIC, {"name": "extra", "type": "string"}], [RECORD | {"extra": "{"}]),
            "an entry cannot be read",
        ),
    ],
)
def test_what_is_no_manifest_is_named(data: bytes, says: str) -> None:
    with pytest.raises(CorruptObject, match=says) as caught:
        decode(data)
    assert caught.value.key == KEY


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(ValueError, match="zstd, snappy or none"):
        encode_manifest([], compression="gzip")  # type: ignore[arg-type]
