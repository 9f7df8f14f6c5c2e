"""Names of objects in storage: golden, and odd keys that look nearly like them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog.protocol.ids import MAX_VERSION, TableName
from tarnlog_server.codec.paths import (
    LogPaths,
    catalog_entry,
    catalog_prefix,
    default_location,
    is_immutable,
    parse_catalog_entry,
)

ORDERS = TableName("sales", "orders")
LOG = LogPaths("sales/orders-1")
ARABIC_ZEROS = "\u0660" * 20
SUPERSCRIPTS = "\u00b2" * 20


def test_golden_names() -> None:
    # Kept for ever: every log and catalog in the world is found by these.
    assert LOG.version(0) == "sales/orders-1/_transaction_log/00000000000000000000.json"
    assert LOG.version(42) == "sales/orders-1/_transaction_log/00000000000000000042.json"
    assert LOG.version(MAX_VERSION) == "sales/orders-1/_transaction_log/09223372036854775807.json"
    assert LOG.floor(4000) == "sales/orders-1/_transaction_log/_floor/00000000000000004000"
    assert catalog_entry(ORDERS, 7) == "_catalog/sales/orders/00000000000000000007.json"
    assert catalog_prefix(ORDERS) == "_catalog/sales/orders/"
    assert catalog_prefix(namespace="sales") == "_catalog/sales/"
    assert catalog_prefix() == "_catalog/"
    assert default_location(ORDERS, "018cc251") == "sales/orders-018cc251"


def test_a_table_at_the_root_of_its_store() -> None:
    root = LogPaths("")
    assert root.version(3) == "_transaction_log/00000000000000000003.json"
    assert root.parse_version(root.version(3)) == 3
    assert root.parse_floor(root.floor(3)) == 3
    assert root.parse_version(LOG.version(3)) is None


@given(st.integers(0, MAX_VERSION), st.sampled_from(["", "t", "a/b c", "ns/t-1"]))
def test_names_are_parsed_back(version: int, table: str) -> None:
    paths = LogPaths(table)
    assert paths.parse_version(paths.version(version)) == version
    assert paths.parse_floor(paths.floor(version)) == version
    assert parse_catalog_entry(catalog_entry(ORDERS, version)) == (ORDERS, version)
    assert is_immutable(paths.version(version))


@given(st.integers(0, MAX_VERSION - 1))
def test_names_sort_like_their_versions(version: int) -> None:
    assert LOG.version(version) < LOG.version(version + 1) < LOG.root + "_"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0.json",
        "0000000000000000000.json",
        "000000000000000000000.json",
        "00000000000000000010.checkpoint.json",
        "00000000000000000010.checkpoint.0123456789ab.00001.json",
        "00000000000000000010.json.tmp",
        "00000000000000000010.JSON",
        "00000000000000000010.json\n",
        "00000000000000000010.crc",
        ".00000000000000000010.json.crc",
        "-0000000000000000010.json",
        "+0000000000000000010.json",
        "0000000000000000001a.json",
        f"{ARABIC_ZEROS}.json",
        "_last_checkpoint",
        "_floor/00000000000000000010",
        "_sessions/00000000000000000010.json",
        "_checkpoints/00000000000000000010.checkpoint.parquet",
        "state-v00000000000000000010/_manifest.json",
        "sub/00000000000000000010.json",
    ],
)
def test_other_objects_are_no_versions(name: str) -> None:
    assert LOG.parse_version(LOG.root + name) is None


def test_versions_of_other_tables_are_not_ours() -> None:
    for other in ("sales/orders-10", "sales/orders", "xsales/orders-1", "sales/orders-1/sales/orders-1", ""):
        assert LOG.parse_version(LogPaths(other).version(1)) is None
        assert LOG.parse_floor(LogPaths(other).floor(1)) is None


@pytest.mark.parametrize(
    "name", ["", "1", "0" * 19, "0" * 21, "0" * 20 + ".json", "x" * 20, ARABIC_ZEROS, SUPERSCRIPTS, "-" + "0" * 19]
)
def test_other_objects_are_no_floors(name: str) -> None:
    assert LOG.parse_floor(LOG.floor_prefix + name) is None
    assert LOG.parse_floor(name) is None


@pytest.mark.parametrize(
    "name, version",
    [
        ("state-v00000000000000000042/_manifest.avro", 42),
        ("state-v00000000000000000042", 42),
        ("state-v42/_manifest.avro", None),
        ("state-v00000000000000000042x/_manifest.avro", None),
        (f"state-v{ARABIC_ZEROS}/_manifest.avro", None),
        ("manifests/state-v00000000000000000042", None),
    ],
)
def test_state_directories(name: str, version: int | None) -> None:
    assert LOG.parse_state(LOG.root + name) == version
    assert LOG.parse_state(name) is None


@pytest.mark.parametrize(
    "key",
    [
        "_catalog/sales/orders/7.json",
        "_catalog/sales/00000000000000000007.json",
        "_catalog/a/b/c/00000000000000000007.json",
        "_catalog/../b/00000000000000000007.json",
        "_catalog/a/*/00000000000000000007.json",
        "_catalog/a/b/00000000000000000007.json\n",
        f"_catalog/a/b/{ARABIC_ZEROS}.json",
        "x/_catalog/a/b/00000000000000000007.json",
        "_catalog/a.b/c/00000000000000000007.json",
    ],
)
def test_other_objects_are_no_catalog_entries(key: str) -> None:
    assert parse_catalog_entry(key) is None


def test_what_may_be_cached_for_ever() -> None:
    assert is_immutable("a/_transaction_log/00000000000000000001.json")
    assert is_immutable("_catalog/a/b/00000000000000000001.json")
    assert not is_immutable("a/_transaction_log/_last_checkpoint")
    assert not is_immutable("a/_transaction_log/00000000000000000010.checkpoint.json")
    assert not is_immutable(f"a/_transaction_log/{ARABIC_ZEROS}.json")
