"""S3, Google Cloud Storage and Azure through obstore: native async, no threads of Python's.

Invariants: as in s3_store. Writes go through a handle whose retries are off, reads through one that retries; multipart
uploads are never used, since only a single request is atomic and conditional.

obstore's prefixes are whole path segments, while the port's may end anywhere: a listing asks for the folder of the
prefix and filters. A listing by levels (`walks`) reads a level whole or, from an object on, what is below it too:
obstore cannot list one level from the middle.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime, timedelta
from typing import Any

from obstore.store import from_url

from tarnlog_server.adapters import directory_order
from tarnlog_server.adapters.obstore_errors import FAILURES, already_exists, failed_read, failed_write, status_of
from tarnlog_server.adapters.s3_settings import S3Settings
from tarnlog_server.adapters.store_keys import check_key, check_prefix, check_range
from tarnlog_server.ports.object_store import ObjectInfo, PutResult, StoreRefused, StoreUnavailable


class ObstoreStore:
    """The objects below a `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`.

    `settings` are those of S3 and used for s3:// only; the other clouds are configured by their usual variables.
    """

    def __init__(self, uri: str, settings: S3Settings | None = None) -> None:
        settings = settings or S3Settings()
        self._uri = uri.rstrip("/")
        is_s3 = uri.startswith("s3")
        self._walks = is_s3 and settings.walks
        try:
            config = _config(settings) if is_s3 else {}
            self._writer: Any = _handle(uri, settings, config, retries=0)
            self._reader: Any = _handle(uri, settings, config, retries=settings.read_attempts - 1)
        except FAILURES as error:
            raise StoreRefused(f"cannot open {uri}: {error}", key="") from error

    @property
    def uri(self) -> str:
        return self._uri

    async def put_if_absent(self, key: str, data: bytes) -> PutResult:
        check_key(key)
        try:
            await self._writer.put_async(key, data, mode="create", use_multipart=False)
        except FAILURES as error:
            if already_exists(error):
                return PutResult.EXISTS
            raise failed_write(key, error) from error
        return PutResult.CREATED

    async def put(self, key: str, data: bytes) -> None:
        check_key(key)
        try:
            await self._writer.put_async(key, data, use_multipart=False)
        except FAILURES as error:
            raise failed_write(key, error) from error

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        check_key(key)
        check_range(start, length)
        if length == 0:
            await self.head(key)
            return b""
        options: dict[str, Any] = {}
        if start or length is not None:
            options["range"] = {"offset": start} if length is None else (start, start + length)
        try:
            answer = await self._reader.get_async(key, options=options)
            data = bytes(await answer.bytes_async())
        except FAILURES as error:
            if status_of(error) == 416:  # the range begins at or after the end
                return b""
            raise failed_read("read", key, error) from error
        first, end = answer.range
        if len(data) != end - first:
            raise StoreUnavailable(f"the store sent {len(data)} of {end - first} bytes of {key!r}", key=key)
        return data

    async def head(self, key: str) -> ObjectInfo:
        check_key(key)
        try:
            return _info(await self._reader.head_async(key))
        except FAILURES as error:
            raise failed_read("read", key, error) from error

    async def list(self, prefix: str, start_after: str | None = None, limit: int = 1000) -> list[ObjectInfo]:
        check_prefix(prefix)
        try:
            if self._walks:

                def level(inside: str, after: str | None) -> AsyncGenerator[ObjectInfo | str, None]:
                    # Only from an object of this very level on is there likely little below it.
                    return (
                        self._level_from(inside, after)
                        if after and after == start_after
                        else self._level(inside, after)
                    )

                return await directory_order.page(level, prefix, start_after, limit)
            return await _flat(self._reader, prefix, start_after, limit)
        except FAILURES as error:
            raise failed_read("list", prefix, error) from error

    async def delete(self, key: str) -> None:
        check_key(key)
        try:
            await self._reader.delete_async(key)
        except FAILURES as error:
            if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in str(error):
                return
            raise failed_read("delete", key, error) from error

    async def close(self) -> None:
        """obstore closes its connections when the handles are collected."""
        self._reader = self._writer = None

    async def _level_from(self, prefix: str, start_after: str) -> AsyncGenerator[ObjectInfo | str, None]:
        """A level from an object on, by a flat listing in the server's order whose folders are folded."""
        folder = prefix[: prefix.rfind("/") + 1]
        last = ""
        async for chunk in self._reader.list(folder[:-1] or None, offset=start_after, chunk_size=100):
            for meta in chunk:
                below = meta["path"].find("/", len(folder))
                entry = _info(meta) if below < 0 else meta["path"][: below + 1]
                name = _bare_name(entry)
                if name[: len(prefix)] > prefix:
                    return
                if entry != last and name.startswith(prefix):
                    yield entry
                last = entry if isinstance(entry, str) else ""

    async def _level(self, prefix: str, start_after: str | None) -> AsyncGenerator[ObjectInfo | str, None]:
        folder = prefix[: prefix.rfind("/") + 1]
        answer = await self._reader.list_with_delimiter_async(folder or None)
        entries: Sequence[ObjectInfo | str] = [
            *map(_info, answer["objects"]),
            *(f"{path}/" for path in answer["common_prefixes"]),
        ]
        for name, entry in sorted(((_bare_name(entry), entry) for entry in entries), key=lambda pair: pair[0]):
            # A folder may have the name of the object to start after, and then comes after it.
            begun = name > (start_after or "") or (name == start_after and isinstance(entry, str))
            if begun and (entry if isinstance(entry, str) else entry.key).startswith(prefix):
                yield entry


def _bare_name(entry: ObjectInfo | str) -> str:
    return entry.rstrip("/") if isinstance(entry, str) else entry.key


async def _flat(reader: Any, prefix: str, start_after: str | None, limit: int) -> list[ObjectInfo]:
    page: list[ObjectInfo] = []
    if limit <= 0:
        return page
    last = max(start_after or "", _just_before(prefix))
    stream = reader.list(prefix[: prefix.rfind("/")] if "/" in prefix else None, offset=last or None, chunk_size=limit)
    async for chunk in stream:
        for meta in chunk:
            info = _info(meta)
            if info.key <= last:
                raise StoreRefused(
                    f"the store lists {info.key!r} after {last!r}: not in code-point order, so pages would miss "
                    "objects. Set the listing of this store to `walk`",
                    key=prefix,
                )
            last = info.key
            if not info.key.startswith(prefix):
                return page
            page.append(info)
            if len(page) == limit:
                return page
    return page


def _just_before(prefix: str) -> str:
    """A key after everything that sorts before `prefix`, as far as names of objects go."""
    if not prefix or prefix.endswith("/"):
        return ""
    return prefix[:-1] + chr(ord(prefix[-1]) - 1) + "\U0010fffd"


def _config(s3: S3Settings) -> dict[str, Any]:
    """How to reach S3: the bucket's place and who asks."""
    config: dict[str, Any] = {}
    if s3.endpoint is not None:
        config |= {"endpoint": s3.endpoint, "virtual_hosted_style_request": False}
    if s3.access_key is not None and s3.secret_key is not None:
        config |= {"access_key_id": s3.access_key, "secret_access_key": s3.secret_key}
        region = s3.region
    else:
        from tarnlog_server.adapters.s3_credentials import AwsCredentials  # it needs boto3, which is slow to import

        config["credential_provider"] = credentials = AwsCredentials()
        region = s3.region or credentials.region
    return config | {"region": region or "us-east-1"}


def _handle(uri: str, settings: S3Settings, config: dict[str, Any], *, retries: int) -> Any:
    options: dict[str, Any] = {
        "allow_http": (settings.endpoint or "").startswith("http://"),
        "connect_timeout": timedelta(seconds=settings.connect_timeout),
        "read_timeout": timedelta(seconds=settings.read_timeout),
        # For the whole request with its body; a write is small, and the sooner it is unknown the sooner it is resolved.
        "timeout": timedelta(seconds=settings.read_timeout * (1 if retries == 0 else 6)),
        "pool_max_idle_per_host": str(settings.connections),
    }
    return from_url(uri, client_options=options, retry_config={"max_retries": retries}, **config)  # type: ignore[call-overload]


def _info(meta: Any) -> ObjectInfo:
    modified: datetime = meta["last_modified"]
    return ObjectInfo(key=meta["path"], size=meta["size"], modified_ms=round(modified.timestamp() * 1000))
