"""Plans over HTTP: pages, streams, the ledger, explanations, and what is refused."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tarnlog.arrow_files import adds_of
from tarnlog.protocol.action_json import encode_action
from tarnlog.protocol.plans import Ledger
from tarnlog_server.telemetry.metrics import PrometheusTelemetry
from tests.api.conftest import Api, add, pointers, slug

ARROW = "application/vnd.apache.arrow.stream"
SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "day", "type": "date", "nullable": True, "metadata": {}},
    ],
}
PLAN = "/v1/tables/db.t/plan"


def file(number: int, **more: Any) -> dict[str, Any]:
    """File n holds ids 10n to 10n + 9, of one of four days."""
    day = f"2024-01-0{number % 4 + 1}"
    return add(
        f"day={day}/f{number:03}",
        partitionValues={"day": day},
        minValues={"id": str(10 * number)},
        maxValues={"id": str(10 * number + 9)},
        **more,
    )


@pytest.fixture
async def planned(api: Api) -> Api:
    """Twenty files in five versions."""
    await api.create(schema=SCHEMA, partitionColumns=["day"])
    for start in range(0, 20, 4):
        actions = [file(number) for number in range(start, start + 4)]
        answer = await api.post("/v1/tables/db.t/commits", json={"actions": actions})
        assert answer.status_code == 201, answer.text
    return api


async def plan(api: Api, **body: Any) -> dict[str, Any]:
    answer = await api.post(PLAN, json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def names(page: dict[str, Any]) -> list[str]:
    return [file["path"].rsplit("/", 1)[-1] for file in page["files"]]


SELECTS: list[tuple[Any, list[int], tuple[int, int]]] = [
    (None, list(range(20)), (20, 20)),
    ("TRUE", list(range(20)), (20, 20)),
    ("FALSE", [], (0, 0)),
    ("day = '2024-01-02'", [1, 5, 9, 13, 17], (5, 5)),
    ("day = DATE '2024-01-02' AND id BETWEEN 50 AND 95", [5, 9], (5, 2)),
    ("id < 25", [0, 1, 2], (20, 3)),
    ("NOT (id >= 25)", [0, 1, 2], (20, 3)),
    ({"op": "in", "column": "id", "values": [7, 199]}, [0, 19], (20, 2)),
    ({"op": "is-null", "column": "day"}, [], (0, 0)),
]


@pytest.mark.parametrize("asked, files, counts", SELECTS, ids=[str(asked) for asked, _, _ in SELECTS])
async def test_what_a_filter_selects(planned: Api, asked: Any, files: list[int], counts: tuple[int, int]) -> None:
    page = await plan(planned, filter=asked)
    assert names(page) == [f"f{number:03}" for number in files]
    assert (page["version"], page["next"]) == (5, None)
    assert page["ledger"] == {
        "manifestsTotal": 0,
        "manifestsPruned": 0,
        "filesTotal": 20,
        "filesAfterPartitionPruning": counts[0],
        "filesAfterDataSkipping": counts[1],
        "filesAfterCooldowns": counts[1],
    }
    assert "explain" not in page


async def test_no_body_asks_for_everything(planned: Api) -> None:
    assert len((await planned.post(PLAN)).json()["files"]) == 20


async def test_pages_stay_at_their_version_and_tell_the_same_ledger(planned: Api) -> None:
    asked = {"filter": "id < 100", "limit": 3}
    first = await plan(planned, **asked)
    newer = add("day=2024-01-01/new", partitionValues={"day": "2024-01-01"})
    await planned.post("/v1/tables/db.t/commits", json={"actions": [newer]})
    found, page = names(first), first
    while page["next"] is not None:
        page = await plan(planned, **asked, cursor=page["next"])
        assert page["ledger"] == first["ledger"]
        assert page["version"] == 5
        found += names(page)
    assert found == [f"f{number:03}" for number in range(10)]
    assert "new" in names(await plan(planned, filter="id < 100", limit=100))


async def test_pages_end_with_their_table(planned: Api) -> None:
    """Also where the plan is still in memory: its files may be deleted by now."""
    first = await plan(planned, limit=3)
    assert (await planned.delete("/v1/tables/db.t")).status_code < 300
    asked = {"limit": 3, "cursor": first["next"], "maxStalenessSeconds": 0}
    assert slug(await planned.post(PLAN, json=asked)) == "table-not-found"
    await planned.create(schema=SCHEMA, partitionColumns=["day"])
    for start in range(5):
        await planned.post("/v1/tables/db.t/commits", json={"actions": [file(start)]})
    answer = await planned.post(PLAN, json=asked)
    assert slug(answer) == "request-invalid"
    assert "created anew" in answer.json()["detail"]


async def test_a_cursor_belongs_to_its_plan(planned: Api) -> None:
    first = await plan(planned, filter="id < 100", limit=3)
    other = await planned.post(PLAN, json={"filter": "id < 90", "limit": 3, "cursor": first["next"]})
    assert (other.status_code, slug(other), pointers(other)) == (422, "request-invalid", ["/cursor"])
    await planned.create("db.other", schema=SCHEMA, partitionColumns=["day"])
    body = {"filter": "id < 100", "limit": 3, "cursor": first["next"]}
    elsewhere = await planned.post("/v1/tables/db.other/plan", json=body)
    assert elsewhere.status_code in (404, 422)
    nonsense = await planned.post(PLAN, json={"cursor": "nonsense"})
    assert (nonsense.status_code, pointers(nonsense)) == (422, ["/cursor"])


async def test_time_travel(planned: Api) -> None:
    assert len((await plan(planned, version=2))["files"]) == 8
    commits = (await planned.get("/v1/tables/db.t/commits", params={"order": "asc"})).json()["commits"]
    at = commits[2]["timestamp"]
    assert (await plan(planned, timestamp=at))["version"] == 2
    assert (await plan(planned, timestamp=str(at)))["version"] == 2
    missing = await planned.post(PLAN, json={"version": 99})
    assert (missing.status_code, slug(missing)) == (404, "version-not-found")
    gone = await planned.post(PLAN, json={"timestamp": "1999-01-01"})
    assert (gone.status_code, slug(gone)) == (410, "version-expired")
    both = await planned.post(PLAN, json={"timestamp": 1, "version": 1})
    assert (both.status_code, pointers(both)) == (422, ["/timestamp"])


async def test_cooldowns_are_left_out_where_that_is_asked(planned: Api) -> None:
    skip = {"path": "day=2024-01-01/f000", "reason": "broken", "operation": "compact"}
    assert (await planned.post("/v1/tables/db.t/skips", json=skip)).status_code == 201
    with_it = await plan(planned, filter="id < 20")
    assert names(with_it) == ["f000", "f001"]
    without = await plan(planned, filter="id < 20", excludeCooldowns=True)
    assert names(without) == ["f001"]
    ledger = without["ledger"]
    assert (ledger["filesAfterDataSkipping"], ledger["filesAfterCooldowns"]) == (2, 1)
    told = (await plan(planned, filter="id < 20", excludeCooldowns=True, explain=True))["explain"]["files"][0]
    assert (told["kept"], told["because"][0]["by"]) == (False, "cooldown")
    assert told["because"][0]["until"] > 0


async def test_explanations_go_through_all_files_in_pages(planned: Api) -> None:
    asked = {"filter": "day = '2024-01-02' AND id < 60", "explain": True, "limit": 7}
    page = await plan(planned, **asked)
    lines, kept = list(page["explain"]["files"]), names(page)
    while page["next"] is not None:
        page = await plan(planned, **asked, cursor=page["next"])
        lines += page["explain"]["files"]
        kept += names(page)
    assert len(lines) == 20
    assert kept == ["f001", "f005"]
    assert [line["path"].rsplit("/", 1)[-1] for line in lines if line["kept"]] == kept
    dropped = {line["path"].rsplit("/", 1)[-1]: line["because"] for line in lines if not line["kept"]}
    assert dropped["f000"] == [{"by": "partition", "pointer": "/args/0", "column": "day", "value": "2024-01-01"}]
    assert dropped["f009"] == [{"by": "bounds", "pointer": "/args/1", "column": "id", "least": "90", "greatest": "99"}]


async def test_manifests_are_counted_and_explained(planned: Api) -> None:
    assert (await planned.post("/v1/tables/db.t/checkpoint", json={})).status_code == 200
    page = await plan(planned, filter="day = '2025-01-01'", explain=True)
    assert (page["ledger"]["manifestsTotal"], page["ledger"]["manifestsPruned"]) == (1, 1)
    [manifest] = page["explain"]["manifests"]
    assert (manifest["kept"], manifest["numEntries"]) == (False, 20)
    assert manifest["because"] == [{"by": "bounds", "column": "day", "least": "2024-01-01", "greatest": "2024-01-04"}]
    assert (await plan(planned, filter="day = '2024-01-02'"))["ledger"]["manifestsPruned"] == 0


async def test_a_plan_as_an_arrow_stream(planned: Api) -> None:
    body = {"filter": "day = '2024-01-02' AND id < 60"}
    answer = await planned.post(PLAN, json=body, headers={"accept": ARROW})
    assert (answer.status_code, answer.headers["content-type"]) == (200, ARROW)
    reader = pa.ipc.open_stream(io.BytesIO(answer.content))
    page = await plan(planned, **body)
    assert reader.schema.metadata[b"version"] == b"5"
    assert msgspec.json.decode(reader.schema.metadata[b"ledger"]) == page["ledger"]
    found = [msgspec.json.decode(encode_action(one))["add"] for batch in reader for one in adds_of(batch)]
    assert found == page["files"]


async def test_a_stream_of_some_fields(planned: Api) -> None:
    asked = {"filter": "day = '2024-01-02'"}
    page = await plan(planned, **asked)
    answer = await planned.post(PLAN, json={**asked, "fields": ["size", "splitTags"]}, headers={"accept": ARROW})
    found = pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()
    assert found.schema.names == ["path", "size"], "what no file has is not there"
    assert found.to_pylist() == [{"path": file["path"], "size": file["size"]} for file in page["files"]]
    assert msgspec.json.decode(found.schema.metadata[b"ledger"]) == page["ledger"]


async def test_fields_are_those_of_files_and_of_streams(planned: Api) -> None:
    for fields, accept, pointer in (
        (["path", "nobody"], ARROW, "/fields/1"),
        (["path"], "application/json", "/fields"),
    ):
        answer = await planned.post(PLAN, json={"fields": fields}, headers={"accept": accept})
        assert (answer.status_code, slug(answer)) == (422, "request-invalid")
        assert answer.json()["errors"][0]["pointer"] == pointer


async def stream(api: Api, **body: Any) -> tuple[set[str], dict[str, Any] | None]:
    """The paths of a stream, and what it says of an older version."""
    answer = await api.post(PLAN, json=body, headers={"accept": ARROW})
    assert answer.status_code == 200, answer.text
    found = pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()
    since = found.schema.metadata.get(b"since")
    return set(found.column("path").to_pylist()), None if since is None else msgspec.json.decode(since)


@pytest.mark.parametrize("asked", [None, "day = '2024-01-02'", "id < 150"])
async def test_a_plan_may_be_told_since_an_older_one(planned: Api, asked: str | None) -> None:
    known, whole = await stream(planned, filter=asked)
    assert whole is None
    snapshot = (await planned.get("/v1/tables/db.t/snapshot")).json()
    older = {name: snapshot[name] for name in ("version", "timestamp", "numFiles", "totalBytes")}
    gone = file(5)["add"]["path"]
    actions = [file(21), {"remove": {"path": gone, "dataChange": True}}]
    body = {"actions": actions, "readVersion": 5, "reads": {"paths": [gone]}}
    answer = await planned.post("/v1/tables/db.t/commits", json=body)
    assert answer.status_code == 201, answer.text
    came, since = await stream(planned, filter=asked, since=5)
    assert since == {**older, "came": len(came), "gone": [gone]}
    assert came <= {file(21)["add"]["path"]}
    assert (await stream(planned, filter=asked))[0] == (known - {gone}) | came
    assert (await stream(planned, filter=asked, version=5, since=5))[1] is not None
    for unknown in ({"since": 7}, {"since": 5, "excludeCooldowns": True}, {"since": 5, "version": 4}):
        assert (await stream(planned, filter=asked, **unknown))[1] is None, "told whole, and says so"


async def test_a_page_is_of_a_whole_plan(planned: Api) -> None:
    answer = await planned.post(PLAN, json={"since": 4})
    assert (answer.status_code, slug(answer), pointers(answer)) == (422, "request-invalid", ["/since"])


async def test_files_as_an_arrow_stream(planned: Api) -> None:
    answer = await planned.get("/v1/tables/db.t/files", params={"version": 3}, headers={"accept": ARROW})
    reader = pa.ipc.open_stream(io.BytesIO(answer.content))
    assert reader.schema.metadata[b"version"] == b"3"
    assert sum(batch.num_rows for batch in reader) == 12
    json_first = {"accept": f"{ARROW};q=0.5, application/json"}
    assert (await planned.get("/v1/tables/db.t/files", headers=json_first)).json()["version"] == 5
    nothing = await planned.post(PLAN, json={"filter": "FALSE"}, headers={"accept": ARROW})
    assert pa.ipc.open_stream(io.BytesIO(nothing.content)).read_all().num_rows == 0


async def test_a_stream_has_no_pages(planned: Api) -> None:
    answer = await planned.post(PLAN, json={"explain": True}, headers={"accept": ARROW})
    assert (answer.status_code, slug(answer)) == (406, "not-acceptable")


REFUSED: list[tuple[Any, str, int | None]] = [
    ("nobody = 5", "/filter", 0),
    ("id = 5 AND lower(id) = 'x'", "/filter", 11),
    ("id = 'five'", "/filter", None),
    ("id LIKE 'a%'", "/filter", None),
    ("", "/filter", None),
    ({"op": "eq", "column": "id"}, "/filter", None),
    ({"op": "and", "args": [{"op": "eq", "column": "no", "value": 1}]}, "/filter/args/0/column", None),
    ({"op": "eq", "column": "id", "value": "x"}, "/filter/value", None),
]


@pytest.mark.parametrize("asked, pointer, position", REFUSED, ids=[str(asked) for asked, _, _ in REFUSED])
async def test_bad_filters(planned: Api, asked: Any, pointer: str, position: int | None) -> None:
    answer = await planned.post(PLAN, json={"filter": asked})
    assert (answer.status_code, slug(answer), pointers(answer)) == (422, "filter-invalid", [pointer])
    assert answer.json()["errors"][0].get("position") == position


async def test_times_of_a_filter_are_in_the_zone_that_is_asked_for(api: Api) -> None:
    timed = {"name": "at", "type": "timestamp", "nullable": True, "metadata": {}}
    await api.create(schema={"type": "struct", "fields": [timed]})
    bounds = ["2024-01-01T00:00:00Z", "2024-01-01T03:00:00Z", "2024-01-01T06:00:00Z"]
    actions = [add(f"f{n}", minValues={"at": at}, maxValues={"at": at}) for n, at in enumerate(bounds)]
    assert (await api.post("/v1/tables/db.t/commits", json={"actions": actions})).status_code == 201
    body = {"filter": "at < '2024-01-01 00:00:00'", "timeZone": "America/New_York"}
    first = await plan(api, **body, limit=1)
    assert (names(first), first["filter"]["value"]) == (["f0"], "2024-01-01T05:00:00Z")
    rest = await plan(api, **body, limit=1, cursor=first["next"])
    assert (names(rest), rest["next"]) == (["f1"], None)
    assert names(await plan(api, filter=body["filter"])) == []
    tree = {"op": "lt", "column": "at", "value": "2024-01-01T00:00:00"}
    assert names(await plan(api, filter=tree, timeZone="America/New_York")) == [], "times of a tree are UTC"
    other = await api.post(PLAN, json={"filter": body["filter"], "limit": 1, "cursor": first["next"]})
    assert (other.status_code, pointers(other)) == (422, ["/cursor"])
    unknown = await api.post(PLAN, json={**body, "timeZone": "Nowhere/Town"})
    assert (unknown.status_code, slug(unknown)) == (422, "filter-invalid")


async def test_bad_requests(planned: Api) -> None:
    for body in ({"limit": 0}, {"limit": 10_001}, {"filter": 5}, {"unknown": 1}, {"timestamp": -1}, {"version": -1}):
        answer = await planned.post(PLAN, json=body)
        assert (answer.status_code, slug(answer)) == (422, "request-invalid"), body
    assert (await planned.post("/v1/tables/db.none/plan", json={})).status_code == 404
    large = await planned.post(PLAN, content=b"x" * 3_000_000, headers={"content-type": "application/json"})
    assert large.status_code == 413


def test_metrics_tell_what_became_of_files() -> None:
    telemetry = PrometheusTelemetry()
    ledger = Ledger(
        files_total=100, files_after_partition_pruning=40, files_after_data_skipping=7, files_after_cooldowns=5
    )
    telemetry.plan_ended("storage", 0.004, ledger)
    shown = telemetry.exposition().decode()
    for fate, files in (("partition", 60), ("statistics", 33), ("cooldown", 2), ("kept", 5)):
        assert f'tarnlog_planned_files_total{{fate="{fate}"}} {files}.0' in shown
    assert 'tarnlog_plan_seconds_count{source="storage"} 1.0' in shown
