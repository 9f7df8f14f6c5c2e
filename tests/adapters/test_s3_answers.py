"""What both S3 clients make of each answer, and that a write is sent once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tarnlog_server.adapters.obstore_store import ObstoreStore
from tarnlog_server.adapters.s3_settings import S3Settings
from tarnlog_server.adapters.s3_store import S3Store
from tarnlog_server.ports.object_store import (
    ObjectMissing,
    ObjectStore,
    OutcomeUnknown,
    PutResult,
    StoreRefused,
    StoreUnavailable,
)
from tests.adapters.scripted_http import ScriptedServer, scripted_server
from tests.servers import SHARED_BUCKET, S3Server


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as script:
        yield script


@pytest.fixture(params=["boto3", "obstore"])
async def store(request: pytest.FixtureRequest, server: ScriptedServer) -> AsyncIterator[ObjectStore]:
    opened = _open(request.param, SHARED_BUCKET, S3Settings(
        endpoint=server.endpoint, region="us-east-1", access_key="a", secret_key="s",
        connect_timeout=0.5, read_timeout=0.5, read_attempts=2, listing="flat",
    ))  # fmt: skip
    yield opened
    await opened.close()


def _open(client: str, bucket: str, settings: S3Settings) -> ObjectStore:
    return S3Store(bucket, "root", settings) if client == "boto3" else ObstoreStore(f"s3://{bucket}/root", settings)


def _xml(code: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>told</Message></Error>".encode()


@pytest.mark.parametrize(
    "status, code",
    [
        (409, "ConditionalRequestConflict"),
        (409, "OperationAborted"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (502, "BadGateway"),
        (503, "SlowDown"),
        (503, "ServiceUnavailable"),
        (504, "GatewayTimeout"),
        (400, "RequestTimeout"),
    ],
)
async def test_answers_that_prove_nothing_leave_a_write_unknown(
    store: ObjectStore, server: ScriptedServer, status: int, code: str
) -> None:
    server.says(status, _xml(code))
    with pytest.raises(OutcomeUnknown):
        await store.put_if_absent("t/0", b"x")
    with pytest.raises(OutcomeUnknown):
        await store.put("t/0", b"x")
    assert len(server.requests) == 2, "the SDK must not repeat a write by itself"


@pytest.mark.parametrize(
    "status, code",
    [
        (403, "AccessDenied"),
        (403, "SignatureDoesNotMatch"),
        (403, "RequestTimeTooSkewed"),
        (404, "NoSuchBucket"),
        (400, "InvalidArgument"),
        (501, "NotImplemented"),
    ],
)
async def test_refusals_are_refusals(store: ObjectStore, server: ScriptedServer, status: int, code: str) -> None:
    server.says(status, _xml(code))
    with pytest.raises(StoreRefused) as caught:
        await store.put_if_absent("t/0", b"x")
    assert caught.value.key == "t/0"
    with pytest.raises(StoreRefused):
        await store.put("t/0", b"x")
    assert len(server.requests) == 2
    if status != 501:
        with pytest.raises(StoreRefused):
            await store.get("t/0")
        with pytest.raises(StoreRefused):
            await store.list("t/")


async def test_words_in_a_key_are_not_taken_for_an_answer(store: ObjectStore, server: ScriptedServer) -> None:
    server.says(409, _xml("ConditionalRequestConflict"))
    with pytest.raises(OutcomeUnknown):
        await store.put_if_absent("Server returned non-2xx status code: 412/<Code>x", b"x")


async def test_412_means_exists_and_the_condition_is_sent(store: ObjectStore, server: ScriptedServer) -> None:
    server.says(412, _xml("PreconditionFailed"))
    assert await store.put_if_absent("t/0", b"x") is PutResult.EXISTS
    assert len(server.requests) == 1
    assert b"if-none-match: *" in server.requests[0].lower()
    assert b"expect:" not in server.requests[0].lower(), "asking first costs a round trip"
    assert b"/shared/root/t/0" in server.requests[0].splitlines()[0]


async def test_a_connection_that_closes_without_an_answer_leaves_a_write_unknown(
    store: ObjectStore, server: ScriptedServer
) -> None:
    with pytest.raises(OutcomeUnknown):
        await store.put_if_absent("t/0", b"x")
    assert len(server.requests) == 1


async def test_a_server_that_hangs_leaves_a_write_unknown(store: ObjectStore, server: ScriptedServer) -> None:
    server.hangs = True
    with pytest.raises(OutcomeUnknown):
        await store.put_if_absent("t/0", b"x")
    assert len(server.requests) == 1


async def test_nobody_listening_is_unknown_for_writes_and_unavailable_for_reads(store: ObjectStore) -> None:
    settings = S3Settings(
        endpoint="http://127.0.0.1:9", region="r", access_key="a", secret_key="s", connect_timeout=0.2, read_attempts=1
    )
    lonely = _open("boto3" if isinstance(store, S3Store) else "obstore", "bucket", settings)
    with pytest.raises(OutcomeUnknown):
        await lonely.put_if_absent("t/0", b"x")
    with pytest.raises(StoreUnavailable):
        await lonely.get("t/0")
    with pytest.raises(StoreUnavailable):
        await lonely.list("t/")
    with pytest.raises(StoreUnavailable):
        await lonely.delete("t/0")
    await lonely.close()


@pytest.mark.parametrize("status, code", [(500, "InternalError"), (503, "SlowDown")])
async def test_reads_are_repeated_and_then_unavailable(
    store: ObjectStore, server: ScriptedServer, status: int, code: str
) -> None:
    server.says(status, _xml(code))
    with pytest.raises(StoreUnavailable):
        await store.get("t/0")
    assert len(server.requests) == 2
    with pytest.raises(StoreUnavailable):
        await store.head("t/0")
    with pytest.raises(StoreUnavailable):
        await store.list("t/")
    with pytest.raises(StoreUnavailable):
        await store.delete("t/0")


async def test_a_body_that_breaks_off_is_unavailable(store: ObjectStore, server: ScriptedServer) -> None:
    server.says(200, b"half", length=8, headers='ETag: "x"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n')
    with pytest.raises(StoreUnavailable):
        await store.get("t/0")


async def test_404_means_missing(store: ObjectStore, server: ScriptedServer) -> None:
    server.says(404, _xml("NoSuchKey"))
    with pytest.raises(ObjectMissing):
        await store.get("t/0")
    await store.delete("t/0")


async def test_a_flat_listing_out_of_order_is_refused(store: ObjectStore, server: ScriptedServer) -> None:
    entry = "<Contents><Key>root/{}</Key><Size>1</Size><LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>"
    body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entry.format('a/x')}{entry.format('a-b')}"
    server.says(200, f"{body}</ListBucketResult>".encode(), headers="Content-Type: application/xml\r\n")
    with pytest.raises(StoreRefused, match="walk"):
        await store.list("")


@pytest.mark.s3
@pytest.mark.parametrize("client", ["boto3", "obstore"])
async def test_a_real_server_refuses_strangers_and_unknown_buckets(client: str, s3_server: S3Server) -> None:
    stranger = S3Settings(endpoint=s3_server.endpoint, region="us-east-1", access_key="nobody", secret_key="wrong")
    known = S3Settings(
        endpoint=s3_server.endpoint,
        region="us-east-1",
        access_key=s3_server.access_key,
        secret_key=s3_server.secret_key,
    )
    for store in (_open(client, SHARED_BUCKET, stranger), _open(client, "no-such-bucket", known)):
        with pytest.raises(StoreRefused):
            await store.put_if_absent("t/0", b"x")
        with pytest.raises(StoreRefused):
            await store.get("t/0")
        with pytest.raises(StoreRefused):
            await store.list("")
        await store.close()


@pytest.mark.s3
@pytest.mark.parametrize("client", ["boto3", "obstore"])
async def test_a_flat_listing_pages_on(client: str, s3_bucket: str, s3_server: S3Server) -> None:
    store = _open(
        client,
        s3_bucket,
        S3Settings(
            endpoint=s3_server.endpoint,
            region="us-east-1",
            access_key=s3_server.access_key,
            secret_key=s3_server.secret_key,
            listing="flat",
        ),
    )
    names = [f"log/{number:03}.json" for number in range(25)]
    for name in [*names, "lo", "log.txt", "other"]:
        await store.put(name, b"")
    assert [info.key for info in await store.list("log/")] == names
    assert [info.key for info in await store.list("log/", None, 10)] == names[:10]
    assert [info.key for info in await store.list("log/", names[9], 10)] == names[10:20]
    assert [info.key for info in await store.list("log/00")] == names[:10]
    assert [info.key for info in await store.list("log/", names[-1])] == []
    assert [info.key for info in await store.list("log/", "lo", 1)] == names[:1]
    assert [info.key for info in await store.list("o")] == ["other"]
    await store.close()


@pytest.mark.s3
@pytest.mark.parametrize("client", ["boto3", "obstore"])
async def test_credentials_come_from_where_aws_tools_look(
    client: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    profile = f"[work]\naws_access_key_id = {s3_server.access_key}\naws_secret_access_key = {s3_server.secret_key}\n"
    (tmp_path / "credentials").write_text(profile)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "work")
    store = _open(client, SHARED_BUCKET, S3Settings(endpoint=s3_server.endpoint))
    key = f"profile/{client}"
    assert await store.put_if_absent(key, b"x") is PutResult.CREATED
    assert await store.get(key) == b"x"
    await store.close()


@pytest.mark.parametrize("client", ["boto3", "obstore"])
async def test_no_credentials_at_all_is_a_refusal(
    client: str, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(StoreRefused, match="credentials"):
        await _open(client, SHARED_BUCKET, S3Settings(endpoint=server.endpoint)).put_if_absent("t/0", b"x")
    assert server.requests == []
