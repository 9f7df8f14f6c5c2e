"""Snapshots, files, changes, skips and caches over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.api.conftest import Api, pointers, slug


@pytest.fixture
async def filled(api: Api, table: str) -> list[dict[str, Any]]:
    """Three versions; what their commits were told."""
    return [await api.append("a", "b"), await api.append("c"), await api.append("d")]


async def test_snapshots(api: Api, table: str, filled: list[dict[str, Any]]) -> None:
    newest = (await api.get(f"{table}/snapshot")).json()
    assert (newest["version"], newest["numFiles"], newest["totalBytes"]) == (3, 4, 4)
    assert newest["metaData"]["name"] == "db.t"
    older = (await api.get(f"{table}/snapshot", params={"version": 1})).json()
    assert (older["version"], older["numFiles"], older["timestamp"]) == (1, 2, filled[0]["timestamp"])


async def test_snapshots_by_time(api: Api, table: str, filled: list[dict[str, Any]]) -> None:
    at = filled[1]["timestamp"]
    moment = datetime.fromtimestamp(at / 1000, UTC)
    spellings = [str(at), moment.isoformat(), moment.isoformat().replace("+00:00", "Z"), moment.isoformat()[:-6]]
    for spelling in spellings:
        answer = await api.get(f"{table}/snapshot", params={"timestamp": spelling})
        assert answer.json()["version"] == 2, spelling
    unquoted = await api.get(f"{table}/snapshot?timestamp={moment.isoformat()}")
    assert unquoted.json()["version"] == 2
    before = await api.get(f"{table}/snapshot", params={"timestamp": "1999-01-01"})
    assert (before.status_code, slug(before)) == (410, "version-expired")


async def test_a_snapshot_has_a_tag(api: Api, table: str, filled: object) -> None:
    first = await api.get(f"{table}/snapshot")
    second = await api.get(f"{table}/snapshot", headers={"if-none-match": first.headers["etag"]})
    assert second.status_code == 304
    older = await api.get(f"{table}/snapshot?version=1", headers={"if-none-match": first.headers["etag"]})
    assert older.status_code == 200


async def test_files_in_pages_of_one_version(api: Api, table: str, filled: object) -> None:
    first = (await api.get(f"{table}/files", params={"limit": 3})).json()
    assert [file["path"] for file in first["files"]] == ["a", "b", "c"]
    await api.append("e")
    rest = (await api.get(f"{table}/files", params={"limit": 3, "cursor": first["next"]})).json()
    assert (rest["version"], [file["path"] for file in rest["files"]], rest["next"]) == (3, ["d"], None)
    at_one = (await api.get(f"{table}/files", params={"version": 1})).json()
    assert [file["path"] for file in at_one["files"]] == ["a", "b"]


async def test_large_answers_are_packed(api: Api, table: str) -> None:
    await api.append(*(f"file-{number}" for number in range(200)))
    plain = await api.get(f"{table}/files", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    packed = await api.get(f"{table}/files", headers={"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["vary"] == "Accept-Encoding"
    assert packed.json() == plain.json()
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"])
    refused = await api.get(f"{table}/files", headers={"accept-encoding": "gzip;q=0"})
    assert "content-encoding" not in refused.headers


async def test_a_packed_answer_keeps_its_tag(api: Api) -> None:
    await api.create(description="x" * 10_000)
    packed = await api.get("/v1/tables/db.t", headers={"accept-encoding": "gzip"})
    assert packed.headers["etag"].endswith('-gzip"')
    again = await api.get("/v1/tables/db.t", headers={"if-none-match": packed.headers["etag"]})
    assert again.status_code == 304


async def test_unknown_fields_of_a_log_lie_flat(api: Api, table: str) -> None:
    """Another writer's fields are shown where it wrote them."""
    await api.append("a")
    location = (await api.get(table)).json()["location"].removeprefix("memory://warehouse/")
    [last] = [info.key for info in await api.store.list(location) if info.key.endswith("1.json")]
    line = b'{"add":{"path":"z","partitionValues":{},"size":1,"modificationTime":0,"dataChange":true,"odd":{"x":1}}}'
    body = b'{"protocol":{"minReaderVersion":4,"minWriterVersion":4}}\n' + line
    await api.store.put(last.replace("1.json", "2.json"), body)
    page = (await api.get(f"{table}/files?maxStalenessSeconds=0")).json()
    assert page["files"][-1]["odd"] == {"x": 1}
    assert "unknown_fields" not in page["files"][-1]
    change = (await api.get(f"{table}/changes?from=2")).json()["changes"][0]
    assert change["adds"][0]["odd"] == {"x": 1}


async def test_changes_without_a_gap(api: Api, table: str, filled: object) -> None:
    every = (await api.get(f"{table}/changes")).json()
    assert [change["version"] for change in every["changes"]] == [0, 1, 2, 3]
    assert [[file["path"] for file in change["adds"]] for change in every["changes"]] == [[], ["a", "b"], ["c"], ["d"]]
    part = (await api.get(f"{table}/changes", params={"from": 1, "to": 2})).json()
    assert [change["version"] for change in part["changes"]] == [1, 2]
    seen: list[int] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await api.get(f"{table}/changes", params={"limit": 1, **cursor})).json()
        seen += [change["version"] for change in page["changes"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert seen == [0, 1, 2, 3]
    assert (await api.get(f"{table}/changes", params={"from": 9})).json() == {"changes": [], "next": None}


async def test_skips(api: Api, table: str, filled: object) -> None:
    body = {"path": "a", "reason": "broken footer", "operation": "MERGE", "cooldownHours": 1}
    first = await api.post(f"{table}/skips", json=body)
    assert first.status_code == 201, first.text
    assert first.json()["path"] == "a"
    again = (await api.post(f"{table}/skips", json=body)).json()
    assert again["skipCount"] == 2
    assert again["retryAfter"] == again["skipTimestamp"] + 3_600_000
    await api.post(f"{table}/skips", json={**body, "path": "c", "cooldownHours": 0})
    page = (await api.get(f"{table}/skips", params={"limit": 1})).json()
    rest = (await api.get(f"{table}/skips", params={"limit": 1, "cursor": page["next"]})).json()
    assert [skip["path"] for skip in page["skips"] + rest["skips"]] == ["a", "c"]
    assert rest["next"] is None
    cooldowns = (await api.get(f"{table}/cooldowns")).json()
    assert cooldowns == {"cooldowns": {"a": again["retryAfter"]}}
    assert (await api.get(f"{table}/snapshot")).json()["numFiles"] == 4


@pytest.mark.parametrize(
    "change, pointer",
    [({"cooldownHours": -1}, "/cooldownHours"), ({"path": ""}, "/path"), ({"size": "1"}, "/size"), ({"x": 1}, "/x")],
)
async def test_skips_are_strict(api: Api, table: str, change: dict[str, Any], pointer: str) -> None:
    answer = await api.post(f"{table}/skips", json={"path": "a", "reason": "r", "operation": "o", **change})
    assert (answer.status_code, slug(answer), pointers(answer)) == (422, "request-invalid", [pointer])


async def test_caches(api: Api, table: str, filled: object) -> None:
    await api.get(f"{table}/snapshot")
    stats = (await api.get("/v1/cache")).json()
    assert set(stats) == {"protocol", "metadata", "versions", "files", "versionsList", "tables"}
    assert {"hits", "misses", "hitRate", "size", "maxSize", "ttlSeconds"} == set(stats["protocol"])
    assert stats["protocol"]["size"] >= 1
    assert 0 < stats["tables"]["bytes"] < stats["tables"]["maxBytes"]
    assert (stats["tables"]["size"], stats["tables"]["evictions"]) == (1, 0)
    assert stats["tables"]["loads"]["replay"]["count"] == 1
    assert "memory" not in stats["tables"]["loads"]
    await api.post(f"{table}/plan", json={})
    loads = (await api.get("/v1/cache")).json()["tables"]["loads"]
    assert loads["memory"]["count"] == 1
    assert 0 <= loads["memory"]["longestMs"] <= loads["memory"]["totalMs"]
    other = await api.post("/v1/cache/invalidate", json={"table": "db.none"})
    assert (other.status_code, slug(other)) == (404, "table-not-found")
    one = await api.post("/v1/cache/invalidate", json={"table": "db.t"})
    assert one.json()["protocol"] >= 1
    everything = await api.post("/v1/cache/invalidate")
    assert everything.json()["protocol"] == 0


@pytest.mark.parametrize(
    "path, query, pointer",
    [
        ("snapshot", "version=x", "/version"),
        ("snapshot", "version=-1", "/version"),
        ("snapshot", "version=1.0", "/version"),
        ("snapshot", "version=null", "/version"),
        ("snapshot", "version=", "/version"),
        ("snapshot", "version=9223372036854775808", "/version"),
        ("snapshot", "version=" + "9" * 6000, "/version"),
        ("snapshot", "version=%EF%BC%91", "/version"),
        ("snapshot", "version=0&version=0", "/version"),
        ("snapshot", "version=0&timestamp=0", "/timestamp"),
        ("snapshot", "timestamp=yesterday", "/timestamp"),
        ("snapshot", "timestamp=-1", "/timestamp"),
        ("snapshot", "maxStalenessSeconds=-1", "/maxStalenessSeconds"),
        ("snapshot", "maxStalenessSeconds=nan", "/maxStalenessSeconds"),
        ("snapshot", "maxStalenessSeconds=inf", "/maxStalenessSeconds"),
        ("snapshot", "surprise=1", "/surprise"),
        ("snapshot", "%FF=1", ""),
        ("snapshot", "&".join(f"a{n}=1" for n in range(100)), ""),
        ("files", "limit=0", "/limit"),
        ("files", "limit=10001", "/limit"),
        ("files", "cursor=nonsense", "/cursor"),
        ("files", "cursor=%00", "/cursor"),
        ("commits", "order=up", "/order"),
        ("commits", "from=x", "/from"),
        ("changes", "to=-1", "/to"),
        ("changes", "cursor=bnVsbA", "/cursor"),
        ("skips", "cursor=bnVsbA", "/cursor"),
        ("events", "after=1", "/after"),
    ],
)
async def test_query_parameters_are_strict(api: Api, table: str, path: str, query: str, pointer: str) -> None:
    answer = await api.get(f"{table}/{path}?{query}")
    assert (answer.status_code, slug(answer), pointers(answer)) == (422, "request-invalid", [pointer])


@pytest.mark.parametrize("header", ["x", "-1", "1.0", "99999999999999999999"])
async def test_an_event_id_is_a_version(api: Api, table: str, header: str) -> None:
    answer = await api.get(f"{table}/events", headers={"last-event-id": header})
    assert (answer.status_code, slug(answer)) == (422, "request-invalid")


async def test_a_version_above_the_head(api: Api, table: str) -> None:
    for path in ("snapshot", "files"):
        answer = await api.get(f"{table}/{path}", params={"version": 7})
        assert (answer.status_code, slug(answer)) == (404, "version-not-found")


async def test_a_corrupt_version_closes_that_table_only(api: Api, table: str) -> None:
    await api.append("a")
    await api.create("db.well")
    location = (await api.get(table)).json()["location"].removeprefix("memory://warehouse/")
    [last] = [info.key for info in await api.store.list(location) if info.key.endswith("1.json")]
    broken: list[bytes] = [b"", (await api.store.get(last))[:-20], b"\xff" * 100]
    for data in broken:
        async with Api() as other:
            for info in await api.store.list(""):
                await other.store.put(info.key, await api.store.get(info.key))
            await other.store.put(last, data)
            answer = await other.get("/v1/tables/db.t/snapshot")
            assert (answer.status_code, slug(answer)) == (500, "log-corrupt")
            assert last in answer.json()["detail"]
            assert (await other.get("/v1/tables/db.well/snapshot")).status_code == 200
