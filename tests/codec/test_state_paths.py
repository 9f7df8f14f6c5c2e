"""Names of the objects of states and checkpoints: golden, and keys that look nearly like them."""

from __future__ import annotations

import pytest

from tarnlog_server.codec.paths import LogPaths, is_immutable, state_dir

LOG = LogPaths("sales/orders-1")
ROOT = "sales/orders-1/_transaction_log/"


def test_golden_names() -> None:
    # Kept for ever: every state in the world is found by these.
    assert LOG.last_checkpoint == f"{ROOT}_last_checkpoint"
    assert LOG.last_checkpoint_crc == f"{ROOT}._last_checkpoint.crc"
    assert LOG.manifest("a1b2", "c3") == f"{ROOT}manifests/manifest-a1b2-c3.avro"
    assert state_dir(42) == "state-v00000000000000000042"
    assert LOG.state_manifest(42) == f"{ROOT}state-v00000000000000000042/_manifest.json"
    assert LOG.state_manifest_avro(42) == f"{ROOT}state-v00000000000000000042/_manifest.avro"
    assert LOG.state_ids(42) == f"{ROOT}state-v00000000000000000042/ids.bin"
    assert LOG.checkpoint_json(10) == f"{ROOT}00000000000000000010.checkpoint.json"
    assert LOG.checkpoint_part(10, "0123456789ab", 1) == (
        f"{ROOT}00000000000000000010.checkpoint.0123456789ab.00001.json"
    )
    assert LOG.checkpoint_parquet(10) == f"{ROOT}_checkpoints/00000000000000000010.checkpoint.parquet"
    assert LOG.checkpoint_parquet(10, 2) == f"{ROOT}_checkpoints/00000000000000000010.checkpoint.00002.parquet"
    assert LOG.checkpoint_parquet_info(10) == f"{ROOT}_checkpoints/00000000000000000010.checkpoint.json"
    assert LOG.checkpoint_ids(10) == f"{ROOT}_checkpoints/00000000000000000010.ids.bin"
    assert LOG.session("s1") == f"{ROOT}_sessions/s1.json"


def test_names_are_parsed_back() -> None:
    for log in (LOG, LogPaths("")):
        assert log.parse_manifest(log.manifest("a", "b")) == "manifests/manifest-a-b.avro"
        assert log.parse_state(log.state_manifest(7)) == 7
        assert log.parse_checkpoint_json(log.checkpoint_json(7)) == 7
        assert log.parse_checkpoint_part(log.checkpoint_part(7, "ab", 123)) == (7, "ab", 123)
        assert log.parse_checkpoint_parquet(log.checkpoint_parquet(7)) == (7, None)
        assert log.parse_checkpoint_parquet(log.checkpoint_parquet(7, 3)) == (7, 3)
        assert log.parse_checkpoint_parquet_info(log.checkpoint_parquet_info(7)) == 7
        assert log.parse_session(log.session("x")) == "x"
        assert log.relative(log.manifest("a", "b")) == "manifests/manifest-a-b.avro"
    assert LOG.parse_state(f"{LOG.root}{state_dir(9)}/x") == 9


@pytest.mark.parametrize(
    "key",
    [
        "other/_transaction_log/00000000000000000010.checkpoint.json",
        f"{ROOT}manifests/.manifest-a.avro.crc",
        f"{ROOT}manifests/manifest-a.avro.tmp",
        f"{ROOT}manifests/x/manifest-a.avro",
        f"{ROOT}0000000000000000010.checkpoint.json",
        f"{ROOT}.00000000000000000010.checkpoint.json.crc",
        f"{ROOT}00000000000000000010.checkpoint.ab.1.json",
        f"{ROOT}_checkpoints/00000000000000000010.checkpoint.1.parquet",
        f"{ROOT}_sessions/a/b.json",
        f"{ROOT}00000000000000000010.json",
    ],
)
def test_nearly_these_names_are_not(key: str) -> None:
    parsers = (
        LOG.parse_manifest,
        LOG.parse_checkpoint_json,
        LOG.parse_checkpoint_part,
        LOG.parse_checkpoint_parquet,
        LOG.parse_checkpoint_parquet_info,
        LOG.parse_session,
        LOG.parse_state,
    )
    assert [parse(key) for parse in parsers] == [None] * len(parsers)


def test_no_checkpoint_is_taken_for_a_version() -> None:
    for key in (LOG.checkpoint_json(3), LOG.checkpoint_part(3, "ab", 1), LOG.state_manifest(3), LOG.last_checkpoint):
        assert LOG.parse_version(key) is None
        assert not is_immutable(key)
    assert LOG.parse_state(f"{LOG.root}state-v1/x") is None


@pytest.mark.parametrize(
    "path, key",
    [
        ("manifests/manifest-a.avro", f"{ROOT}manifests/manifest-a.avro"),
        ("state-v00000000000000000007/manifest-a.avro", f"{ROOT}state-v00000000000000000007/manifest-a.avro"),
        ("manifest-a.avro", f"{ROOT}state-v00000000000000000042/manifest-a.avro"),
    ],
)
def test_where_a_manifest_lies(path: str, key: str) -> None:
    assert LOG.resolve_manifest(path, 42) == key


@pytest.mark.parametrize("path", ["manifests/../../other/x.avro", "../x.avro", "/etc/x.avro"])
def test_a_manifest_lies_inside_its_log(path: str) -> None:
    with pytest.raises(ValueError, match="inside the log"):
        LOG.resolve_manifest(path, 42)
    with pytest.raises(ValueError, match="does not lie in the log"):
        LOG.relative("other/_transaction_log/manifests/manifest-a.avro")
