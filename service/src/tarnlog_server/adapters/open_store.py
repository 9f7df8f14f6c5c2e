"""From what a user writes as a warehouse to a store: a folder, file://, s3://, gs://, az:// or memory://.

boto3 and obstore are imported only when they are asked for: a service on a local disk starts without either.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from tarnlog_server.adapters.local_store import LocalStore
from tarnlog_server.adapters.memory_store import MemoryStore
from tarnlog_server.ports.object_store import ObjectStore, StoreRefused

S3Client = Literal["boto3", "obstore"]
DEFAULT_S3_CLIENT: S3Client = "obstore"
"""Measured and weighed in docs/adr/0002-s3-client.md."""


def open_store(
    uri: str,
    *,
    s3_endpoint: str | None = None,
    s3_client: S3Client | None = None,
    s3_region: str | None = None,
    s3_access_key: str | None = None,
    s3_secret_key: str | None = None,
    s3_listing: Literal["flat", "walk"] | None = None,
) -> ObjectStore:
    """Open the store at `uri`. The s3_* settings are for s3:// alone. Raises StoreRefused if the uri makes no sense."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        if not uri:
            raise StoreRefused("the warehouse is empty; give a folder or a uri such as s3://bucket/prefix", key="")
        return LocalStore(uri)
    if scheme == "memory":
        return MemoryStore(rest)
    if scheme == "file":
        return LocalStore(_folder(uri, rest))
    if scheme not in ("s3", "s3a", "gs", "az") or not rest.partition("/")[0]:
        raise StoreRefused(
            f"{uri!r} is not a store; give a folder, file:///folder, s3://bucket/prefix, gs://bucket/prefix, "
            "az://container/prefix or memory://name",
            key="",
        )
    from tarnlog_server.adapters.s3_settings import S3Settings

    settings = S3Settings(
        endpoint=s3_endpoint,
        region=s3_region,
        access_key=s3_access_key,
        secret_key=s3_secret_key,
        listing=s3_listing,
    )
    if scheme.startswith("s3"):
        bucket, _, prefix = rest.partition("/")
        if (s3_client or DEFAULT_S3_CLIENT) == "boto3":
            from tarnlog_server.adapters.s3_store import S3Store

            return S3Store(bucket, prefix, settings)
        uri = f"s3://{rest}"
    from tarnlog_server.adapters.obstore_store import ObstoreStore

    return ObstoreStore(uri, settings)


def local_folder(uri: str) -> Path | None:
    """The folder of a warehouse that is on this machine's disk; None for any other."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return Path(uri)
    return Path(_folder(uri, rest)) if scheme == "file" else None


def _folder(uri: str, rest: str) -> str:
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") or not slash:
        raise StoreRefused(f"{uri!r} names another machine; a local folder is written file:///folder", key="")
    return unquote(f"/{path}")
