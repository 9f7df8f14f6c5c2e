"""The application in this process, over a coordinator on memory: no socket, no disk, nothing to wait for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tarnlog_server.adapters.memory_store import MemoryStore
from tarnlog_server.adapters.system_world import SystemWorld
from tarnlog_server.api.app import ApiSettings, create_app
from tarnlog_server.api.readiness import Readiness
from tarnlog_server.ports.index import Index
from tarnlog_server.ports.object_store import ObjectStore
from tarnlog_server.telemetry.recording import RecordingTelemetry
from tarnlog_server.usecases.committer import CommitterSettings
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.roots import Root, Roots
from tests.service_process import service, start_service

__all__ = ["service", "start_service"]  # fixtures

SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "name", "type": "string", "nullable": True, "metadata": {}},
    ],
}


class Api(httpx.AsyncClient):
    """A client of an application of its own, with the parts that tests reach into."""

    def __init__(
        self,
        settings: ApiSettings | None = None,
        committing: CommitterSettings | None = None,
        index: Index | None = None,
        store: ObjectStore | None = None,
        **client: Any,
    ) -> None:
        self.store: Any = store or MemoryStore("warehouse")
        self.readiness = Readiness()
        world = SystemWorld()
        self.telemetry = RecordingTelemetry(world.monotonic)
        self.coordinator = Coordinator(
            Roots(Root(self.store.uri, self.store)),
            world,
            self.telemetry,
            settings=committing or CommitterSettings(),
            index=index,
        )
        self.app = create_app(
            self.coordinator,
            self.readiness,
            settings,
            metrics=self.telemetry.exposition,
            activity=self.telemetry.activity,
        )
        self.readiness.checked("memory://warehouse", (), 0)
        super().__init__(transport=httpx.ASGITransport(self.app), base_url="http://127.0.0.1:8420", **client)

    async def __aexit__(self, *ended: Any) -> None:
        await super().__aexit__(*ended)
        await self.coordinator.close(1.0)

    async def create(self, name: str = "db.t", **more: Any) -> dict[str, Any]:
        """Create a table; the answer."""
        answer = await self.post("/v1/tables", json={"name": name, "schema": SCHEMA, **more})
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    async def append(self, *paths: str, table: str = "db.t", **more: Any) -> dict[str, Any]:
        """Commit adds; the answer."""
        answer = await self.post(f"/v1/tables/{table}/commits", json={"actions": [add(path) for path in paths], **more})
        assert answer.status_code == 201, answer.text
        return dict(answer.json())


def add(path: str, **more: Any) -> dict[str, Any]:
    """An add action as a client sends it."""
    fields = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    return {"add": {**fields, **more}}


def slug(answer: httpx.Response) -> str:
    """The slug of a problem document, which must be one in every respect."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    document = answer.json()
    assert document["status"] == answer.status_code
    assert document["title"]
    assert document["detail"]
    assert answer.headers["x-request-id"]
    return str(document["type"].rsplit("/", 1)[-1])


def pointers(answer: httpx.Response) -> list[str]:
    """Where a problem document says the faults are."""
    return [error["pointer"] for error in answer.json()["errors"]]


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with Api() as client:
        yield client


@pytest.fixture
async def table(api: Api) -> str:
    """An empty table."""
    await api.create()
    return "/v1/tables/db.t"
