"""Tables with collations over HTTP: what may be created, what plans leave out, and which commits conflict."""

from __future__ import annotations

import json
from typing import Any

from tests.api.conftest import Api, add, slug

SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "name", "type": "string", "nullable": True, "metadata": {"__COLLATIONS": {"name": "icu.UNICODE_CI"}}},
    ],
}
COMMITS, PLAN = "/v1/tables/db.t/commits", "/v1/tables/db.t/plan"


def file(number: int, text: str | None, *, partitioned: bool = False) -> dict[str, Any]:
    bounds = {} if text is None else {"name": text}
    return add(
        f"f{number}",
        partitionValues={"name": text} if partitioned else {},
        minValues={"id": str(number), **bounds},
        maxValues={"id": str(number), **bounds},
    )


async def planned(api: Api, asked: Any) -> dict[str, Any]:
    answer = await api.post(PLAN, json={"filter": asked, "explain": True})
    assert answer.status_code == 200, answer.text
    page = dict(answer.json())
    plain = (await api.post(PLAN, json={"filter": asked})).json()
    kept = [line["path"] for line in page["explain"]["files"] if line["kept"]]
    assert kept == [one["path"] for one in plain["files"]]
    return {"kept": kept, "ledger": plain["ledger"], "explained": page["explain"]["files"]}


async def test_bounds_of_such_a_column_leave_out_nothing(api: Api) -> None:
    await api.create(schema=SCHEMA)
    await api.post(COMMITS, json={"actions": [file(1, "a"), file(2, "b"), file(3, None)]})
    for asked in ("name = 'A'", "name < 'A'", "name IN ('zz')", "NOT (name = 'a')", "name LIKE 'B%'"):
        found = await planned(api, asked)
        assert found["kept"] == ["f1", "f2", "f3"], asked
        assert found["ledger"]["filesAfterDataSkipping"] == 3
        assert {reason["by"] for line in found["explained"] for reason in line["because"]} == {"nothing"}
    assert (await planned(api, "name = 'A' AND id > 2"))["kept"] == ["f3"]
    other = await planned(api, "id = 2")
    assert (other["kept"], other["ledger"]["filesAfterDataSkipping"]) == (["f2"], 1)


async def test_a_read_of_such_a_column_conflicts_with_any_file(api: Api) -> None:
    await api.create(schema=SCHEMA)
    reads = {"filters": ["name = 'A'"]}
    body = {"readVersion": 0, "isolation": "serializable", "reads": reads, "actions": [file(9, "x")]}
    assert (await api.post(COMMITS, json={"actions": [file(1, "b")]})).status_code == 201
    answer = await api.post(COMMITS, json=body)
    assert (answer.status_code, slug(answer), answer.json()["paths"]) == (409, "commit-conflict", ["f1"])
    body["reads"] = {"filters": ["name = 'A' AND id > 5"]}
    assert (await api.post(COMMITS, json=body)).status_code == 201, "other columns still tell files apart"


async def test_a_new_table_is_not_partitioned_by_such_a_column(api: Api) -> None:
    for kind in ("string", "string collate UNICODE_CI"):
        fields = [SCHEMA["fields"][0], {**SCHEMA["fields"][1], "type": kind}]
        body = {"name": "db.t", "schema": {"type": "struct", "fields": fields}, "partitionColumns": ["name"]}
        answer = await api.post("/v1/tables", json=body)
        assert (answer.status_code, slug(answer)) == (422, "schema-invalid")
        assert "partition by a column with UTF8_BINARY" in answer.json()["detail"]
    binary = {**SCHEMA["fields"][1], "metadata": {"__COLLATIONS": {"name": "spark.UTF8_BINARY"}}}
    created = {"type": "struct", "fields": [SCHEMA["fields"][0], binary]}
    assert await api.create(schema=created, partitionColumns=["name"])


async def test_a_table_that_is_partitioned_by_one_goes_on(api: Api) -> None:
    meta = {
        "id": "x",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(SCHEMA),
        "partitionColumns": ["name"],
        "configuration": {},
    }
    lines = [{"protocol": {"minReaderVersion": 4, "minWriterVersion": 4}}, {"metaData": meta}]
    key = f"taken/t/_transaction_log/{0:020}.json"
    await api.store.put_if_absent(key, "\n".join(map(json.dumps, lines)).encode())
    body = {"name": "db.t", "location": f"{api.store.uri}/taken/t", "foreignWritersStopped": True}
    answer = await api.post("/v1/tables/register", json=body)
    assert answer.status_code == 201, answer.text
    actions = [file(1, "a", partitioned=True), file(2, "b", partitioned=True), file(3, None, partitioned=True)]
    answer = await api.post(COMMITS, json={"actions": actions})
    assert answer.status_code == 201, answer.text
    for stored in (False, True):
        if stored:
            assert (await api.post("/v1/tables/db.t/checkpoint", json={})).status_code == 200
        assert (await planned(api, "name = 'A'"))["kept"] == ["f1", "f2"], "null equals nothing"
        assert (await planned(api, "name IS NULL"))["kept"] == ["f3"]
        assert (await planned(api, "name IS NOT NULL AND id < 2"))["kept"] == ["f1"]
