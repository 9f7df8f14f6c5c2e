"""What a commit read, as SQL text: it conflicts with exactly the files that a plan with the same text would read."""

from __future__ import annotations

from typing import Any

import pytest

from tarnlog import new_commit_id
from tests.api.conftest import Api, add, pointers, slug
from tests.api.test_plans import SCHEMA, file, names, plan

COMMITS = "/v1/tables/db.t/commits"
FILTERS = (
    "TRUE",
    "FALSE",
    "day = '2024-01-02'",
    "day = DATE '2024-01-02' AND id BETWEEN 50 AND 95",
    "id < 25",
    "NOT (id >= 25)",
    "id IN (7, 59)",
    "day IS NULL OR id <> 5",
)


async def based_on(api: Api, asked: Any, version: int, path: str, **more: Any) -> Any:
    """A commit that was planned on a version by what a filter selected there."""
    body = {
        "readVersion": version,
        "isolation": "serializable",
        "reads": {"filters": [asked]},
        "actions": [add(path, partitionValues={"day": "2024-06-01"})],
        **more,
    }
    return await api.post(COMMITS, json=body)


@pytest.mark.parametrize("asked", FILTERS)
async def test_a_commit_conflicts_with_the_files_that_a_plan_reads(api: Api, asked: str) -> None:
    await api.create(schema=SCHEMA, partitionColumns=["day"])
    for number in range(8):
        base = (await api.get("/v1/tables/db.t/snapshot")).json()["version"]
        appended = await api.post(COMMITS, json={"actions": [file(number)]})
        assert appended.status_code == 201, appended.text
        read = f"f{number:03}" in names(await plan(api, filter=asked))
        answer = await based_on(api, asked, base, f"day=2024-06-01/mine-{number}")
        if read:
            assert (answer.status_code, slug(answer), answer.json()["rule"]) == (409, "commit-conflict", "append")
        else:
            assert answer.status_code == 201, (asked, number, answer.text)


async def test_a_resend_of_sql_text_is_recognised_after_the_schema_changed(api: Api) -> None:
    table = await api.create(schema=SCHEMA, partitionColumns=["day"])
    commit_id = new_commit_id()
    first = await based_on(api, "id > 5 AND TRUE", 0, "day=2024-06-01/a", commitId=commit_id)
    assert first.status_code == 201, first.text
    wider = {"name": "note", "type": "string", "nullable": True, "metadata": {}}
    schema = {"type": "struct", "fields": [*table["schema"]["fields"], wider]}
    assert (await api.patch("/v1/tables/db.t", json={"schema": schema})).status_code == 200
    again = await based_on(api, "id > 5 AND TRUE", 0, "day=2024-06-01/a", commitId=commit_id)
    assert (again.status_code, again.json()["version"], again.json()["replayed"]) == (200, 1, True)


@pytest.mark.parametrize(
    "asked, says",
    [
        ("colour = 'red'", "colour"),
        ("id = 'x'", "id"),
        ("day = ", "character"),
        ("", "empty"),
        ("1 = (SELECT 1)", "filter"),
        ("id = 1 OR " * 20_000 + "id = 2", "characters"),
    ],
)
async def test_text_that_is_no_filter_of_this_table_is_refused(api: Api, asked: str, says: str) -> None:
    await api.create(schema=SCHEMA, partitionColumns=["day"])
    answer = await based_on(api, asked, 0, "day=2024-06-01/a")
    assert (answer.status_code, slug(answer)) == (422, "commit-invalid")
    assert pointers(answer)[0].startswith("/reads/filters")
    assert says in answer.json()["detail"]
    assert (await api.get("/v1/tables/db.t/snapshot")).json()["version"] == 0
