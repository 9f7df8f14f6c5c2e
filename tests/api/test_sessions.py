"""Write sessions over HTTP."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
import structlog

from tests.api.conftest import Api, pointers, slug


async def test_a_session_from_begin_to_end(api: Api, table: str) -> None:
    begun = await api.post(f"{table}/sessions", json={"prefix": "day=1/", "ttlSeconds": 60})
    assert begun.status_code == 201, begun.text
    session = begun.json()
    assert set(session) == {"id", "prefix", "expiresAt"}
    where = begun.headers["location"]
    assert where == f"{table}/sessions/{session['id']}"
    assert (await api.get(f"{table}/sessions")).json() == {"sessions": [session]}
    extended = await api.put(where, json={"ttlSeconds": 600})
    assert extended.status_code == 200
    assert extended.json()["expiresAt"] > session["expiresAt"]
    assert (await api.delete(where)).status_code == 204
    for answer in (await api.delete(where), await api.put(where, json={"ttlSeconds": 1})):
        assert (answer.status_code, slug(answer)) == (404, "session-not-found")
    assert (await api.get(f"{table}/sessions")).json() == {"sessions": []}


@pytest.mark.parametrize(
    "body, pointer",
    [
        ({}, ""),
        ({"ttlSeconds": 0}, "/ttlSeconds"),
        ({"ttlSeconds": 604_801}, "/ttlSeconds"),
        ({"ttlSeconds": "60"}, "/ttlSeconds"),
        ({"ttlSeconds": 60, "prefix": "../x"}, "/prefix"),
        ({"ttlSeconds": 60, "prefix": "_transaction_log/"}, "/prefix"),
        ({"ttlSeconds": 60, "prefix": None}, "/prefix"),
        ({"ttlSeconds": 60, "owner": "me"}, "/owner"),
    ],
)
async def test_what_does_not_fit_is_refused(api: Api, table: str, body: dict[str, Any], pointer: str) -> None:
    answer = await api.post(f"{table}/sessions", json=body)
    assert (answer.status_code, slug(answer)) == (422, "request-invalid")
    assert pointers(answer) == [pointer]
    assert (await api.get(f"{table}/sessions")).json() == {"sessions": []}


async def test_there_is_no_such_table_or_session(api: Api, table: str) -> None:
    answer = await api.post("/v1/tables/db.nothing/sessions", json={"ttlSeconds": 1})
    assert (answer.status_code, slug(answer)) == (404, "table-not-found")
    answer = await api.put(f"{table}/sessions/{uuid4()}", json={"ttlSeconds": 1})
    assert (answer.status_code, slug(answer)) == (404, "session-not-found")


async def test_sessions_are_audited(api: Api, table: str) -> None:
    with structlog.testing.capture_logs() as logs:
        where = (await api.post(f"{table}/sessions", json={"ttlSeconds": 1})).headers["location"]
        await api.put(where, json={"ttlSeconds": 1})
        await api.delete(where)
    lines = [line for line in logs if line["event"] == "audit"]
    assert [line["what"] for line in lines] == ["begin session", "extend session", "end session"]
    assert {line["session"] for line in lines} == {where.rsplit("/", 1)[1]}
