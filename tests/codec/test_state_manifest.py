"""The document of an Avro state, ours and the field's: golden bytes, damage, and what other writers left out."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog.protocol.actions import Protocol
from tarnlog_server.codec import doc_mapping_registry
from tarnlog_server.codec.damage import NO_SHA256, seal_document
from tarnlog_server.codec.partition_bounds import PartitionBounds
from tarnlog_server.codec.state_avro import write_container
from tarnlog_server.codec.state_manifest import (
    ManifestInfo,
    StateManifest,
    Tombstone,
    decode_state_manifest,
    encode_state_manifest,
    live_files,
)
from tarnlog_server.codec.state_manifest_avro import SCHEMA, decode_state_manifest_avro, encode_state_manifest_avro
from tarnlog_server.codec.table_state import StateFacts, StateFile
from tarnlog_server.codec.version_file import CorruptObject
from tests.codec.states import FACTS, METADATA, VERSION, assert_noticed_or_harmless, fact_values, plain_add, unpacked

KEY = "t/_transaction_log/state-v00000000000000000042/_manifest.json"
REGISTRY = {"ab12cd34ef56gh78": '[{"name":"title"}]'}
MANIFEST = StateManifest(
    facts=FACTS,
    created_at=1704067201000,
    num_files=3,
    total_bytes=1048596,
    manifests=(
        ManifestInfo(
            path="manifests/manifest-00ff-1.avro",
            num_entries=50_000,
            min_added_at_version=0,
            max_added_at_version=42,
            partition_bounds={
                "day": PartitionBounds(min="2024-01-01", max="2024-01-31", contains_null=False),
                "n": PartitionBounds(min="9", max="10", contains_null=True),
            },
            tombstone_count=2,
            live_entry_count=49_998,
            sha256="cd" * 32,
        ),
        ManifestInfo(path="state-v00000000000000000007/manifest-a.avro", num_entries=1, sha256="ab" * 32),
    ),
    tombstones=(Tombstone("gone.parquet", 41), Tombstone("gr%C3%BCn", 2)),
    schema_registry=REGISTRY,
)

# Fixed bytes. States written like this exist: add new ones beside them, never edit.
GOLDEN_WITHOUT_METADATA = (
    b'{"sha256":"6b57bc5ea42fe70ef304b0d08c9077dc6db3d828459bceaa8c46e46b818cfc36","formatVersion":1,"stat'
    b'eVersion":42,"createdAt":1704067201000,"numFiles":3,"totalBytes":1048596,"protocolVersion":4,"manife'
    b'sts":[{"path":"manifests/manifest-00ff-1.avro","numEntries":50000,"maxAddedAtVersion":42,"partitionB'
    b'ounds":{"day":{"min":"2024-01-01","max":"2024-01-31","containsNull":false},"n":{"min":"9","max":"10"'
    b',"containsNull":true}},"tombstoneCount":2,"liveEntryCount":49998,"sha256":"cdcdcdcdcdcdcdcdcdcdcdcdc'
    b'dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd"},{"path":"state-v00000000000000000007/manifest-a.avro","num'
    b'Entries":1,"sha256":"abababababababababababababababababababababababababababababababab"}],"tombstones'
    b'":["gone.parquet","gr%C3%BCn"],"schemaRegistry":{"ab12cd34ef56gh78":"[{\\"name\\":\\"title\\"}]"},"times'
    b'tamp":1704067200456,"putId":"018cc251f4007000800000000000abcd","versionSha256":"5e5e5e5e5e5e5e5e5e5e'
    b'5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e","truncationLength":32,"protocol":{"minReaderVersion":4'
    b',"minWriterVersion":4,"readerFeatures":["avroState"],"writerFeatures":["avroState"]},"metaData":{"id'
    b'":"7f0c","name":"orders","format":{"provider":"parquet","options":{"k":"v"}},"schemaString":"{\\"type'
    b'\\":\\"struct\\",\\"fields\\":[{\\"name\\":\\"id\\",\\"type\\":\\"long\\",\\"nullable\\":true,\\"metadata\\":{}},{\\"n'
    b'ame\\":\\"day\\",\\"type\\":\\"date\\",\\"nullable\\":true,\\"metadata\\":{}},{\\"name\\":\\"n\\",\\"type\\":\\"intege'
    b'r\\",\\"nullable\\":true,\\"metadata\\":{}}]}","partitionColumns":["day","n"],"configuration":{"docMappin'
    b'gSchema.ab12cd34ef56gh78":"[{\\"name\\":\\"title\\"}]","owner":"zo\xc3\xab"},"createdTime":1704067200000},"txn'
    b's":[{"appId":"stream","version":8,"lastUpdated":9},{"u":1,"appId":"b","version":-1}],"txnVersions":['
    b'41,2],"skips":[{"path":"p.parquet","skipTimestamp":1,"reason":"broken","operation":"merge","retryAft'
    b'er":99,"skipCount":3},{"why":"not","path":"q.parquet","skipTimestamp":1,"reason":"r","operation":"o"'
    b'}],"removes":[{"path":"day=2024-01-03/a.parquet","version":41,"deletionTimestamp":99,"remove":{"data'
    b'Change":true,"deletionTimestamp":null}},{"path":"z.parquet","version":40,"deletionTimestamp":77,"rem'
    b'ove":{"version":5,"dataChange":false,"extendedFileMetadata":true,"partitionValues":{"day":null,"n":"'
    b'1"},"size":4,"tags":{"t":"u"}}}],"tombstoneVersions":[41,2],"dropped":true,"adoptedFrom":12,"version'
    b'Timestamps":[[13,1704067100000],[14,1704067100001]]}'
)
GOLDEN_JSON = (
    b'{"sha256":"c9a55a3155966840267fe46b92ea2feaed0a8fb0bf300175941c0340de678d73","formatVersion":1,"stat'
    b'eVersion":42,"createdAt":1704067201000,"numFiles":3,"totalBytes":1048596,"protocolVersion":4,"manife'
    b'sts":[{"path":"manifests/manifest-00ff-1.avro","numEntries":50000,"maxAddedAtVersion":42,"partitionB'
    b'ounds":{"day":{"min":"2024-01-01","max":"2024-01-31","containsNull":false},"n":{"min":"9","max":"10"'
    b',"containsNull":true}},"tombstoneCount":2,"liveEntryCount":49998,"sha256":"cdcdcdcdcdcdcdcdcdcdcdcdc'
    b'dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd"},{"path":"state-v00000000000000000007/manifest-a.avro","num'
    b'Entries":1,"sha256":"abababababababababababababababababababababababababababababababab"}],"tombstones'
    b'":["gone.parquet","gr%C3%BCn"],"schemaRegistry":{"ab12cd34ef56gh78":"[{\\"name\\":\\"title\\"}]"},"m'
    b'etadata":"{\\"metaData\\":{\\"id\\":\\"7f0c\\",\\"name\\":\\"orders\\",\\"format\\":{\\"provider\\":'
    b'\\"parquet\\",\\"options\\":{\\"k\\":\\"v\\"}},\\"schemaString\\":\\"{\\\\\\"type\\\\\\":\\\\\\"stru'
    b'ct\\\\\\",\\\\\\"fields\\\\\\":[{\\\\\\"name\\\\\\":\\\\\\"id\\\\\\",\\\\\\"type\\\\\\":\\\\\\"long'
    b'\\\\\\",\\\\\\"nullable\\\\\\":true,\\\\\\"metadata\\\\\\":{}},{\\\\\\"name\\\\\\":\\\\\\"day\\\\\\"'
    b',\\\\\\"type\\\\\\":\\\\\\"date\\\\\\",\\\\\\"nullable\\\\\\":true,\\\\\\"metadata\\\\\\":{}},{\\\\'
    b'\\"name\\\\\\":\\\\\\"n\\\\\\",\\\\\\"type\\\\\\":\\\\\\"integer\\\\\\",\\\\\\"nullable\\\\\\":true,'
    b'\\\\\\"metadata\\\\\\":{}}]}\\",\\"partitionColumns\\":[\\"day\\",\\"n\\"],\\"configuration\\":{\\"d'
    b'ocMappingSchema.ab12cd34ef56gh78\\":\\"[{\\\\\\"name\\\\\\":\\\\\\"title\\\\\\"}]\\",\\"owner\\":\\"'
    b'zo\xc3\xab\\"},\\"createdTime\\":1704067200000}}","timestamp":1704067200456,"putId":"018cc251f400700'
    b'0800000000000abcd","versionSha256":"5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e'
    b'","truncationLength":32,"protocol":{"minReaderVersion":4,"minWriterVersion":4,"readerFeatures":["avr'
    b'oState"],"writerFeatures":["avroState"]},"metaData":{"id":"7f0c","name":"orders","format":{"provider'
    b'":"parquet","options":{"k":"v"}},"schemaString":"{\\"type\\":\\"struct\\",\\"fields\\":[{\\"name\\":'
    b'\\"id\\",\\"type\\":\\"long\\",\\"nullable\\":true,\\"metadata\\":{}},{\\"name\\":\\"day\\",\\"type'
    b'\\":\\"date\\",\\"nullable\\":true,\\"metadata\\":{}},{\\"name\\":\\"n\\",\\"type\\":\\"integer\\",'
    b'\\"nullable\\":true,\\"metadata\\":{}}]}","partitionColumns":["day","n"],"configuration":{"docMappin'
    b'gSchema.ab12cd34ef56gh78":"[{\\"name\\":\\"title\\"}]","owner":"zo\xc3\xab"},"createdTime":170406720'
    b'0000},"txns":[{"appId":"stream","version":8,"lastUpdated":9},{"u":1,"appId":"b","version":-1}],"txnV'
    b'ersions":[41,2],"skips":[{"path":"p.parquet","skipTimestamp":1,"reason":"broken","operation":"merge"'
    b',"retryAfter":99,"skipCount":3},{"why":"not","path":"q.parquet","skipTimestamp":1,"reason":"r","oper'
    b'ation":"o"}],"removes":[{"path":"day=2024-01-03/a.parquet","version":41,"deletionTimestamp":99,"remo'
    b've":{"dataChange":true,"deletionTimestamp":null}},{"path":"z.parquet","version":40,"deletionTimestam'
    b'p":77,"remove":{"version":5,"dataChange":false,"extendedFileMetadata":true,"partitionValues":{"day":'
    b'null,"n":"1"},"size":4,"tags":{"t":"u"}}}],"tombstoneVersions":[41,2],"dropped":true,"adoptedFrom":1'
    b'2,"versionTimestamps":[[13,1704067100000],[14,1704067100001]]}'
)
GOLDEN_AVRO = unpacked(
    "eNqdVc+L00AU7oZSKt5kEY9ldC/SxrRbt1K87FaFPSyKuyxI28M0M8mOJjMxmdStIbD/wOJNPCh40EX0nxA8eBNPXv1DPOibbNOmtb+0lJK8"
    "971vZr7vven93uO1/Dru+0I3BaFmkYeOczl5D8wj6uKP6xGSA4+iZgn51BQ+QeUS4thNIkzojBN6LHHPoYEeSCypvq9+9zBnFg2kQluMOiQA"
    "fDsaVVrCd7E8pH7ABFegdBHGJYrLpTEyIZ0BdAS3J5GmTwFKtuViGA/dewy2uxglhcTOzkAuw7nDg2ZhY8mw7+OByjBJ3WAitaKaqZC73BK7"
    "QDJPUA/Lo+xOA+mzGSe/yyG+9EyMbxOilFxJdxcfrwIn1MKhIyGomixzbg/7kkmo2xEhJ9m9tZGConJGNhd7CtDHTkj/S9AHk6vN0nTuTkGY"
    "WbtLxe4uPifotLi6G8fTFEamXgq3F0jBaQt2LpeJXKlmSh3Wp8r6wZxSWHmqvN2dtfKKXT7qvinSKM6Qnl8wD6nNAD2YSTxt9jzeerabfCGF"
    "KZxFd8t8i6jEBEu8zKfcozc/Lvz+fPbt3de9X2fXi1e1lxe1g+8/X7x/ZRY+nJys5W+PLoYb6VPFMCyrUtXV9fr2tJA70LQCwQNtvWbU6hWj"
    "Ct/x82Y1l399WjhMmrbSN/7+NMbEOOHUcvBZy+Wv2OCUDlP1NKTyku1vtDY3dlo8p5Vwr1ozyWadWje37KPGrWujCwTBTDgUGiFX1E6KUSLE"
    "HSVEM0KMQL5hGSYqp2gYNJAX3s/vcYUC3fsMopAdLg1p4alJC1T+CST6yrmh8fvnajZR1Emk7qBmR0kcmrKDyp3hQEK0DQC1bAJgJEmOClT7"
    "JhFlkhpziAIHhUjqJUQiWDbLAqpP0gCO/jsNnySB9qI29Vfi6cagzujiawkndJVMbbU1JTPqlpEpuMXs0McKoiQkwtzDngey7ScS6tN+gpoT"
    "aiWmdsBVZcUznpjzXHz5BFOQ/lseMGVotWHUja1GLWmsOJ7u7j/ZuqNl"
)
SEED = b"""{
  "formatVersion": 1, "stateVersion": 42, "createdAt": 1704067200000, "numFiles": 15000, "totalBytes": 1099511627776,
  "protocolVersion": 4,
  "manifests": [{"path": "manifests/manifest-a1b2c3d4.avro", "numEntries": 50000, "minAddedAtVersion": 0,
                 "maxAddedAtVersion": 42, "partitionBounds": {"date": {"min": "2024-01-01", "max": "2024-01-31"}}}],
  "tombstones": ["x"], "schemaRegistry": {"docMappingSchema.h1": "[]", "h2": "{}"},
  "metadata":
    "{\\"metaData\\":{\\"id\\":\\"i\\",\\"format\\":{\\"provider\\":\\"indextables\\"},\\"schemaString\\":\\"\\"}}"
}"""


def test_the_golden_document() -> None:
    assert encode_state_manifest(MANIFEST) == GOLDEN_JSON
    assert decode_state_manifest(KEY, VERSION, GOLDEN_JSON) == MANIFEST
    assert decode_state_manifest(KEY, VERSION, GOLDEN_WITHOUT_METADATA) == MANIFEST


def test_other_readers_find_the_metadata_where_they_look_for_it() -> None:
    """The member `metadata` is the action as text, as in the record that is written for them."""
    document = msgspec.json.decode(encode_state_manifest(MANIFEST))
    known = ("formatVersion", "stateVersion", "createdAt", "numFiles", "totalBytes", "protocolVersion", "manifests")
    theirs = {name: document[name] for name in (*known, "tombstones", "schemaRegistry", "metadata")}
    read = decode_state_manifest(KEY, VERSION, msgspec.json.encode(theirs))
    assert not read.ours
    assert read.facts.metadata == MANIFEST.facts.metadata
    assert list(msgspec.json.decode(document["metadata"])) == ["metaData"]
    none = msgspec.structs.replace(MANIFEST, facts=msgspec.structs.replace(FACTS, metadata=None))
    assert "metadata" not in msgspec.json.decode(encode_state_manifest(none))


def test_the_document_can_be_read_without_us() -> None:
    document = msgspec.json.decode(encode_state_manifest(MANIFEST))
    assert document["stateVersion"] == VERSION
    assert document["protocol"]["minReaderVersion"] == 4
    assert document["metaData"]["id"] == "7f0c"
    assert document["txns"][0] == {"appId": "stream", "version": 8, "lastUpdated": 9}
    assert document["removes"][0]["path"] == "day=2024-01-03/a.parquet"
    assert document["manifests"][0]["partitionBounds"]["n"] == {"min": "9", "max": "10", "containsNull": True}
    assert document["tombstones"] == ["gone.parquet", "gr%C3%BCn"]


@given(fact_values, st.lists(st.builds(Tombstone, st.text(), st.integers(0, 2**63 - 1)), max_size=3).map(tuple))
def test_what_was_written_is_read(facts: StateFacts, tombstones: tuple[Tombstone, ...]) -> None:
    manifest = msgspec.structs.replace(MANIFEST, facts=facts, tombstones=tombstones)
    assert decode_state_manifest(KEY, VERSION, encode_state_manifest(manifest)) == manifest


def test_removes_are_decoded_when_they_are_asked_for() -> None:
    # Only a checksum of ours lets them wait: what it covers was written by us.
    written = msgspec.json.decode(encode_state_manifest(MANIFEST))
    blank = msgspec.json.encode(written | {"sha256": NO_SHA256, "removes": [{"path": 1}]})
    facts = decode_state_manifest(KEY, VERSION, seal_document(blank)).facts
    for _ in range(2):
        with pytest.raises(CorruptObject, match="a remove") as caught:
            list(facts.removes)
        assert caught.value.key == KEY
    right = decode_state_manifest(KEY, VERSION, encode_state_manifest(MANIFEST)).facts.removes
    assert right == FACTS.removes
    assert (right[0], right[-1:], len(right)) == (FACTS.removes[0], FACTS.removes[-1:], len(FACTS.removes))


def test_every_flip_and_cut_of_the_document_is_noticed() -> None:
    assert_noticed_or_harmless(GOLDEN_JSON, lambda data: decode_state_manifest(KEY, VERSION, data), KEY)


def test_what_makes_a_state_ours_is_demanded() -> None:
    nameless = msgspec.structs.replace(FACTS, version_sha256=None)
    foreign = (ManifestInfo(path="a", num_entries=1),)
    for broken, says in (
        (msgspec.structs.replace(MANIFEST, facts=nameless), "version_sha256"),
        (msgspec.structs.replace(MANIFEST, manifests=foreign), "each of its manifests"),
        (msgspec.structs.replace(MANIFEST, tombstones=(Tombstone("a", None),)), "from which version"),
    ):
        with pytest.raises(ValueError, match=says):
            encode_state_manifest(broken)


def test_the_seeds_document_is_foreign() -> None:
    manifest = decode_state_manifest(KEY, VERSION, SEED)
    assert not manifest.ours
    assert (manifest.num_files, manifest.total_bytes, manifest.created_at) == (15000, 1099511627776, 1704067200000)
    assert manifest.manifests[0].partition_bounds == {"date": PartitionBounds(min="2024-01-01", max="2024-01-31")}
    assert manifest.manifests[0].sha256 is None
    assert manifest.tombstones == (Tombstone("x", None),)
    assert manifest.schema_registry == {"h1": "[]", "h2": "{}"}
    assert manifest.facts.metadata is not None
    assert manifest.facts.metadata.format.provider == "indextables"
    assert manifest.facts.protocol == Protocol(min_reader_version=4, min_writer_version=4)


@pytest.mark.parametrize(
    "data, says",
    [
        (b"", "cannot be read"),
        (b"[]", "cannot be read"),
        (SEED.replace(b'"stateVersion": 42', b'"stateVersion": 41'), "describes version 41 in the place of 42"),
        (SEED.replace(b'"numFiles": 15000, ', b""), "cannot be read"),
        (b'{"versionSha256":"x",' + SEED[1:], "checksum is missing"),
        (b'{"sha256":"x",' + SEED[1:], "checksum does not match"),
    ],
)
def test_what_is_no_document_is_named(data: bytes, says: str) -> None:
    with pytest.raises(CorruptObject, match=says) as caught:
        decode_state_manifest(KEY, VERSION, data)
    assert caught.value.key == KEY


# --- the field's record


def test_the_golden_record_for_other_readers() -> None:
    assert encode_state_manifest_avro(MANIFEST, compression="none") == GOLDEN_AVRO
    read = decode_state_manifest_avro(KEY, VERSION, GOLDEN_AVRO)
    assert not read.ours
    assert read.facts.metadata == METADATA
    assert read.schema_registry == REGISTRY
    assert read.tombstones == (Tombstone("gone.parquet", None), Tombstone("gr%C3%BCn", None))
    first = read.manifests[0]
    assert (first.path, first.num_entries, first.tombstone_count) == ("manifests/manifest-00ff-1.avro", 50_000, 2)
    # A number's order and a column with nulls have no safe words in this format.
    assert first.partition_bounds == {"day": PartitionBounds(min="2024-01-01", max="2024-01-31")}
    assert read.manifests[1].live_entry_count == -1


def field_record(**changes: object) -> bytes:
    record: dict[str, object] = {
        "formatVersion": 1,
        "stateVersion": VERSION,
        "createdAt": 9,
        "numFiles": 1,
        "totalBytes": 2,
        "manifests": [{"path": "m.avro", "numEntries": 1, "minAddedAtVersion": 0, "maxAddedAtVersion": 0}],
    }
    return write_container(SCHEMA, [record | changes], "snappy", 3)


def test_a_record_with_nothing_in_it() -> None:
    read = decode_state_manifest_avro(KEY, VERSION, field_record())
    assert read.facts.metadata is None
    assert read.facts.timestamp == 9
    assert read.manifests == (ManifestInfo(path="m.avro", num_entries=1),)


@pytest.mark.parametrize(
    "text", ['{"metaData":{"id":"i","format":{},"schemaString":"s"}}', '{"id":"i","format":{},"schemaString":"s"}']
)
def test_metadata_is_wrapped_or_not(text: str) -> None:
    read = decode_state_manifest_avro(KEY, VERSION, field_record(metadata=text))
    assert read.facts.metadata is not None
    assert (read.facts.metadata.id, read.facts.metadata.partition_columns) == ("i", ())


@pytest.mark.parametrize(
    "data, says",
    [
        (field_record(stateVersion=41), "describes version 41"),
        (field_record(metadata="{"), "record cannot be read"),
        (write_container(SCHEMA, [], "none", 3), "holds 0 records"),
        (field_record()[:-1], "cannot be read"),
        (b"", "cannot be read"),
    ],
)
def test_what_is_no_record_is_named(data: bytes, says: str) -> None:
    with pytest.raises(CorruptObject, match=says) as caught:
        decode_state_manifest_avro(KEY, VERSION, data)
    assert caught.value.key == KEY


# --- the registry and tombstones


def test_both_spellings_of_the_registry() -> None:
    configuration = {"docMappingSchema.h": "[]", "other": "1"}
    assert doc_mapping_registry.from_configuration(configuration) == {"h": "[]"}
    assert doc_mapping_registry.bare({"docMappingSchema.h": "[]", "g": "{}"}) == {"h": "[]", "g": "{}"}
    assert doc_mapping_registry.to_configuration({"h": "[]"}) == {"docMappingSchema.h": "[]"}


@pytest.mark.parametrize(
    "stones, alive",
    [
        ([], [0, 5, 9]),
        ([Tombstone("a b", 5)], [5, 9]),
        ([Tombstone("a%20b", 6)], [9]),
        ([Tombstone("a b", 3), Tombstone("a b", 9)], [9]),
        ([Tombstone("a b", 9), Tombstone("./a%20b", 3)], [9]),
        ([Tombstone("a b", None), Tombstone("a b", 3)], []),
        ([Tombstone("a b", 3), Tombstone("a b", None)], []),
        ([Tombstone("other", None)], [0, 5, 9]),
    ],
)
def test_a_tombstone_hides_only_what_is_older(stones: list[Tombstone], alive: list[int]) -> None:
    files = [StateFile(plain_add("a%20b"), version, 0) for version in (0, 5, 9)]
    assert [file.added_at_version for file in live_files(stones, files)] == alive


def test_where_a_dead_entry_was_added_survives_and_may_be_unknown() -> None:
    stones = (Tombstone("a", 41, 7), Tombstone("b", 2, None))
    manifest = msgspec.structs.replace(MANIFEST, tombstones=stones)
    data = encode_state_manifest(manifest)
    assert b'"tombstonesAddedAt":[7,null]' in data
    assert decode_state_manifest(KEY, VERSION, data).tombstones == stones
    silent = msgspec.structs.replace(MANIFEST, tombstones=(Tombstone("a", 41), Tombstone("b", 2)))
    assert b"tombstonesAddedAt" not in encode_state_manifest(silent)
