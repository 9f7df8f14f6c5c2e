"""What a user may write as a warehouse, and what each of it opens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tarnlog_server.adapters.local_store import LocalStore
from tarnlog_server.adapters.memory_store import MemoryStore
from tarnlog_server.adapters.obstore_store import ObstoreStore
from tarnlog_server.adapters.open_store import DEFAULT_S3_CLIENT, open_store
from tarnlog_server.adapters.s3_store import S3Store
from tarnlog_server.ports.object_store import StoreRefused


async def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for written in (
        "data",
        "./data",
        str(tmp_path / "data"),
        (tmp_path / "data").as_uri(),
        "file://localhost" + str(tmp_path / "data"),
    ):
        store = open_store(written)
        assert isinstance(store, LocalStore)
        assert store.uri == (tmp_path / "data").as_uri()
        await store.close()


async def test_a_folder_uri_survives_a_round_trip(tmp_path: Path) -> None:
    first = open_store(str(tmp_path / "a b%20é#?"))
    await first.put("x", b"there")
    second = open_store(first.uri)
    assert second.uri == first.uri
    assert await second.get("x") == b"there"


def test_memory() -> None:
    store = open_store("memory://name")
    assert isinstance(store, MemoryStore)
    assert store.uri == "memory://name"


def test_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    default = open_store("s3://bucket/some/prefix/", s3_region="eu-central-1")
    assert isinstance(default, S3Store if DEFAULT_S3_CLIENT == "boto3" else ObstoreStore)
    assert default.uri == "s3://bucket/some/prefix"
    assert isinstance(open_store("s3a://bucket", s3_client="boto3", s3_region="r"), S3Store)
    other = open_store("s3a://bucket/prefix", s3_client="obstore", s3_region="r")
    assert isinstance(other, ObstoreStore)
    assert other.uri == "s3://bucket/prefix"


def test_other_clouds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    assert isinstance(open_store("gs://bucket/prefix"), ObstoreStore)
    assert isinstance(open_store("az://container/prefix"), ObstoreStore)


@pytest.mark.parametrize("written", ["", "ftp://host/x", "s3://", "s3:///x", "file://host/x", "file://", "gs://"])
def test_nonsense_is_refused_with_what_is_allowed(written: str) -> None:
    with pytest.raises(StoreRefused, match=r"s3://bucket/prefix|file:///folder"):
        open_store(written)


def test_a_local_service_starts_without_the_cloud_clients() -> None:
    code = "import sys, tarnlog_server.adapters.open_store; print({'boto3', 'obstore'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"
