"""A table's data files through pyarrow: on a disk that every task sees, or on S3 without any jar.

A `Storage` is a small picklable value; each process opens its own file system from it. Credentials come from the
options, else from the environment of the process that opens it (AWS_*, TARNLOG_S3_ENDPOINT).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import pyarrow.fs as pafs
from msgspec import Struct

from tarnlog import InvalidRequest
from tarnlog.protocol.paths import path_key

S3_OPTIONS = {
    "s3.endpoint": "endpoint",
    "s3.region": "region",
    "s3.accesskey": "access_key",
    "s3.secretkey": "secret_key",
    "s3.sessiontoken": "session_token",
}
"""Options of the format, lower-cased as Spark hands them over, to fields of Storage."""


class Storage(Struct, frozen=True, kw_only=True):
    """Where a table lies and how to get in; what is None is looked up in the environment."""

    location: str
    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    session_token: str | None = None

    @property
    def filesystem(self) -> Any:
        """The pyarrow file system; one a process and storage."""
        return _filesystem(_without_place(self))

    def path(self, file: str) -> str:
        """The place of a data file for `filesystem`, from its path in the log. Escapes are decoded once."""
        key = path_key(file)
        if "://" in key or key.startswith(("/", "file:")):
            return _plain(key)  # only logs that were taken over name files outside the table
        return f"{_root(self.location)}/{key}"


def storage_at(location: str, options: Mapping[str, str] | None = None) -> Storage:
    """The storage of a table at `location`; `options` may hold the keys of S3_OPTIONS, in lower case."""
    given = {field: (options or {}).get(option) for option, field in S3_OPTIONS.items()}
    return Storage(location=location, **given)


def _root(location: str) -> str:
    return _plain(unquote(location) if location.startswith("file:") else location).rstrip("/")


def _plain(uri: str) -> str:
    """A URI as pyarrow's file systems take it: without its scheme."""
    scheme, found, rest = uri.partition("://")
    if not found:
        return uri.removeprefix("file:")
    return rest if scheme != "file" else "/" + rest.lstrip("/")


def _without_place(storage: Storage) -> Storage:
    scheme = storage.location.partition("://")[0] if "://" in storage.location else "file"
    return Storage(
        location=scheme,
        endpoint=storage.endpoint,
        region=storage.region,
        access_key=storage.access_key,
        secret_key=storage.secret_key,
        session_token=storage.session_token,
    )


@lru_cache(maxsize=16)
def _filesystem(storage: Storage) -> Any:
    if storage.location == "file":
        return pafs.LocalFileSystem()
    if storage.location in ("s3", "s3a"):
        return _s3(storage)
    raise InvalidRequest(
        f"Data files at {storage.location}:// cannot be read by this connector: it reads folders and s3:// buckets.",
        slug="storage-not-supported",
    )


def _s3(storage: Storage) -> Any:
    endpoint = storage.endpoint or os.environ.get("TARNLOG_S3_ENDPOINT") or os.environ.get("AWS_ENDPOINT_URL")
    region = storage.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    given = {
        "access_key": storage.access_key,
        "secret_key": storage.secret_key,
        "session_token": storage.session_token,
        "region": region,
        "endpoint_override": endpoint,
    }
    # pyarrow asks for the bucket's region itself; a server of one's own may not know that question.
    if endpoint and not region:
        given["region"] = "us-east-1"
    return pafs.S3FileSystem(**{name: value for name, value in given.items() if value is not None})
