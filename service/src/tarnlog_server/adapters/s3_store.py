"""S3 through boto3: conditional create with If-None-Match.

Invariants:
- Writes go through a client that sends a request once: a retry inside the SDK makes a lost reply a false EXISTS.
- Reads, lists and deletes go through a second client with the SDK's retries, because repeating them is harmless.
- A body shorter than its Content-Length is StoreUnavailable, never an object.

boto3 blocks, so each operation is one hop to the store's own threads, as many as there are connections. Making a client
takes a tenth of a second or more: both are made once, here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import boto3
from botocore.awsrequest import AWSPreparedRequest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tarnlog_server.adapters import directory_order
from tarnlog_server.adapters.s3_errors import failed_read, failed_write, status_of
from tarnlog_server.adapters.s3_settings import S3Settings
from tarnlog_server.adapters.store_keys import check_key, check_prefix, check_range
from tarnlog_server.ports.object_store import (
    ObjectInfo,
    ObjectMissing,
    PutResult,
    StoreRefused,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

T = TypeVar("T")
_PAGE = 1000


class S3Store:
    """The objects of `bucket` below `prefix`."""

    def __init__(self, bucket: str, prefix: str = "", settings: S3Settings | None = None) -> None:
        settings = settings or S3Settings()
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._walks = settings.walks
        session = boto3.Session()
        self._writer = _client(session, settings, attempts=1)
        self._writer.meta.events.register("before-send.s3.PutObject", _send_at_once)
        self._reader = _client(session, settings, attempts=settings.read_attempts)
        self._threads = ThreadPoolExecutor(settings.connections, thread_name_prefix="s3-store")

    @property
    def uri(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    async def put_if_absent(self, key: str, data: bytes) -> PutResult:
        check_key(key)
        return await self._run(lambda: self._create(key, data))

    async def put(self, key: str, data: bytes) -> None:
        check_key(key)
        await self._run(lambda: self._replace(key, data))

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        check_key(key)
        check_range(start, length)
        if length == 0:
            await self.head(key)
            return b""
        return await self._run(lambda: self._get(key, start, length))

    async def head(self, key: str) -> ObjectInfo:
        check_key(key)
        return await self._run(lambda: self._head(key))

    async def list(self, prefix: str, start_after: str | None = None, limit: int = 1000) -> list[ObjectInfo]:
        check_prefix(prefix)
        if self._walks:
            return await directory_order.page(self._level, prefix, start_after, limit)
        return await self._run(lambda: _flat(self._fetch, prefix, start_after, limit))

    async def delete(self, key: str) -> None:
        check_key(key)
        await self._run(lambda: self._delete(key))

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._reader.close()
        self._writer.close()

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _create(self, key: str, data: bytes) -> PutResult:
        try:
            self._writer.put_object(Bucket=self._bucket, Key=self._prefix + key, Body=data, IfNoneMatch="*")
        except (ClientError, BotoCoreError) as error:
            if status_of(error) == 412:
                return PutResult.EXISTS
            raise failed_write(key, error) from error
        return PutResult.CREATED

    def _replace(self, key: str, data: bytes) -> None:
        try:
            self._writer.put_object(Bucket=self._bucket, Key=self._prefix + key, Body=data)
        except (ClientError, BotoCoreError) as error:
            raise failed_write(key, error) from error

    def _get(self, key: str, start: int, length: int | None) -> bytes:
        wanted: dict[str, Any] = {}
        if start or length is not None:
            wanted["Range"] = f"bytes={start}-" if length is None else f"bytes={start}-{start + length - 1}"
        try:
            answer = self._reader.get_object(Bucket=self._bucket, Key=self._prefix + key, **wanted)
            data = answer["Body"].read()
        except (ClientError, BotoCoreError) as error:
            if status_of(error) == 416:  # the range begins at or after the end
                return b""
            raise failed_read("read", key, error) from error
        if len(data) != answer["ContentLength"]:
            raise StoreUnavailable(f"S3 sent {len(data)} of {answer['ContentLength']} bytes of {key!r}", key=key)
        return data

    def _head(self, key: str) -> ObjectInfo:
        try:
            answer = self._reader.head_object(Bucket=self._bucket, Key=self._prefix + key)
        except (ClientError, BotoCoreError) as error:
            raise failed_read("read", key, error) from error
        return ObjectInfo(key=key, size=answer["ContentLength"], modified_ms=_epoch_ms(answer["LastModified"]))

    def _delete(self, key: str) -> None:
        try:
            self._reader.delete_object(Bucket=self._bucket, Key=self._prefix + key)
        except (ClientError, BotoCoreError) as error:
            failure = failed_read("delete", key, error)
            if not isinstance(failure, ObjectMissing):
                raise failure from error

    def _fetch(self, prefix: str, **options: Any) -> dict[str, Any]:
        """One request of a listing; keys go in and come back relative to the root."""
        if "StartAfter" in options:
            options["StartAfter"] = self._prefix + options["StartAfter"]
        try:
            answer = self._reader.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix + prefix, **options)
        except (ClientError, BotoCoreError) as error:
            raise failed_read("list", prefix, error) from error
        cut = len(self._prefix)
        found = [
            ObjectInfo(key=each["Key"][cut:], size=each["Size"], modified_ms=_epoch_ms(each["LastModified"]))
            for each in answer.get("Contents", ())
            if not each["Key"].endswith("/")  # a directory marker of some other tool
        ]
        folders = [each["Prefix"][cut:] for each in answer.get("CommonPrefixes", ())]
        return {"found": found, "folders": folders, "token": answer.get("NextContinuationToken")}

    async def _level(self, prefix: str, start_after: str | None) -> AsyncGenerator[ObjectInfo | str, None]:
        options: dict[str, Any] = {"Delimiter": "/", "MaxKeys": _PAGE}
        if start_after is not None:
            options["StartAfter"] = start_after
        while True:
            answer = await self._run(lambda: self._fetch(prefix, **options))
            merged: list[ObjectInfo | str] = [*answer["found"], *answer["folders"]]
            for entry in sorted(merged, key=_bare_name):
                yield entry
            if answer["token"] is None:
                return
            options["ContinuationToken"] = answer["token"]


def _flat(fetch: Callable[..., dict[str, Any]], prefix: str, start_after: str | None, limit: int) -> list[ObjectInfo]:
    page: list[ObjectInfo] = []
    last = start_after or ""
    options: dict[str, Any] = {"StartAfter": start_after} if start_after is not None else {}
    while len(page) < limit:
        answer = fetch(prefix, MaxKeys=min(_PAGE, limit - len(page)), **options)
        for info in answer["found"]:
            if info.key <= last:
                raise StoreRefused(
                    f"the S3 server lists {info.key!r} after {last!r}: not in code-point order, so pages would miss "
                    "objects. Set the listing of this store to `walk`",
                    key=prefix,
                )
            last = info.key
            page.append(info)
        if answer["token"] is None:
            break
        options = {"ContinuationToken": answer["token"]}
    return page


def _client(session: boto3.Session, settings: S3Settings, *, attempts: int) -> S3Client:
    own_endpoint = settings.endpoint is not None
    return session.client(
        "s3",
        endpoint_url=settings.endpoint,
        region_name=settings.region or session.region_name or "us-east-1",
        aws_access_key_id=settings.access_key,
        aws_secret_access_key=settings.secret_key,
        config=Config(
            connect_timeout=settings.connect_timeout,
            read_timeout=settings.read_timeout,
            max_pool_connections=settings.connections,
            retries={"total_max_attempts": attempts, "mode": "standard"},
            s3={"addressing_style": "path" if own_endpoint else "auto"},
            # Other servers know the older checksums only; the signature covers the body either way.
            request_checksum_calculation="when_required" if own_endpoint else "when_supported",
            response_checksum_validation="when_required" if own_endpoint else "when_supported",
        ),
    )


def _send_at_once(request: AWSPreparedRequest, **_: Any) -> None:
    """Drop `Expect: 100-continue`: asking before sending a small body costs a commit one more round trip."""
    del request.headers["Expect"]  # no error when there is none


def _bare_name(entry: ObjectInfo | str) -> str:
    return entry.rstrip("/") if isinstance(entry, str) else entry.key


def _epoch_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
