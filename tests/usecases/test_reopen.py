"""A log that changes its name: what is open under the old one must not answer for the new one."""

from __future__ import annotations

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.tables import CreateTable, RegisterTable
from tarnlog_server.adapters.memory_store import MemoryStore
from tarnlog_server.adapters.system_world import SystemWorld
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.roots import Root, Roots

SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}


async def test_a_dropped_log_registered_under_another_name_answers_by_that_name() -> None:
    store = MemoryStore("reopen")
    coordinator = Coordinator(Roots(Root(store.uri, store)), SystemWorld())
    created = await coordinator.tables.create(CreateTable(name="sales.x", schema=SCHEMA))
    await coordinator.tables.drop(TableName("sales", "x"))
    request = RegisterTable(name="sales.y", location=created.location, foreign_writers_stopped=True)
    registered = await coordinator.registering.register(request)
    assert (registered.name, registered.id) == ("sales.y", created.id)
    assert (await coordinator.tables.describe(TableName("sales", "y"))).name == "sales.y"
    await coordinator.tables.drop(TableName("sales", "y"))
    named = await coordinator.catalog.find(TableName("sales", "y"), 0)
    assert named is not None
    assert named.entry.dropped
    assert named.entry.id == created.id
    await coordinator.close()
