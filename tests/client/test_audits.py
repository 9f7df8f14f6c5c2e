"""verify and repair in the client: what is sent, how the answer is read, and that the fake agrees with the service."""

from __future__ import annotations

import pytest

from tarnlog import NotFound, TableApi
from tests.client.scripted import Scripted, answer

FOUND = {
    "tableName": "s.t",
    "status": "failed",
    "checks": [{"name": "a", "ok": True, "detail": ""}, {"name": "b", "ok": False, "detail": "no", "later": 1}],
    "repaired": [{"object": "o", "action": "done"}],
    "later": True,
}


def test_what_is_sent_and_read() -> None:
    script = Scripted(answer(200, FOUND))
    client = script.client()
    for verb, path in ((client.verify, "verify"), (client.repair, "repair")):
        found = verb("s.t")
        assert (found.status, [check.name for check in found.failed]) == ("failed", ["b"])
        assert found.repaired[0].object == "o"
        assert script.requests[-1].url.path == f"/v1/tables/s.t/{path}"
    assert script.bodies == [{}, {}]


async def test_the_asyncio_client() -> None:
    client = Scripted(answer(200, FOUND)).async_client()
    assert (await client.verify("s.t")).status == "failed"
    assert (await client.repair("s.t")).status == "failed"


def test_fake_and_service_agree(api: TableApi, table: str) -> None:
    for verb in (api.verify, api.repair):
        found = verb(table)
        assert (found.table_name, found.status, found.failed, found.repaired) == (table, "success", (), ())
        assert found.checks[0].name == "log-contiguous"
        with pytest.raises(NotFound):
            verb("behaviour.none")
