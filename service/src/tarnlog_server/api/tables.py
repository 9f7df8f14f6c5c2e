"""Tables over HTTP: create, register, list, describe, alter, drop."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from tarnlog.protocol.problems import ProblemError
from tarnlog.protocol.tables import AlterTable, CreateTable, RegisterTable
from tarnlog_server.api.answers import entity_tag, json_answer, large_answer, not_modified
from tarnlog_server.api.bodies import BodyLimits, read_as
from tarnlog_server.api.decoding import query_as
from tarnlog_server.api.examples import SCHEMA, TABLE, TABLE_REF
from tarnlog_server.api.operation import Operation, Result, audited, caller_of, table_of
from tarnlog_server.api.parameters import Cursor, Fresh, Limit, NoQuery
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.tables import TablesPage, TableView, parse_name

_CREATE = msgspec.json.Decoder(CreateTable)
_REGISTER = msgspec.json.Decoder(RegisterTable)
_ALTER = msgspec.json.Decoder(AlterTable)
_TAG = "tables"
_COMMITTING = ("commit-contended", "clock-skew", "commit-unknown", "too-many-waiting", "not-ready", "shutting-down")


class ListQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tables to list."""

    namespace: Annotated[str, Meta(max_length=128, description="Only tables of this namespace.")] | None = None
    limit: Limit = 1000
    cursor: Cursor | None = None


class DropQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to drop."""

    purge: Annotated[bool, Meta(description="Delete the data files and the log too; only its last version stays.")] = (
        False
    )


class TableRoutes:
    """The operations on tables."""

    def __init__(self, coordinator: Coordinator, limits: BodyLimits) -> None:
        self._coordinator = coordinator
        self._limits = limits

    async def create(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        wanted = await read_as(request, _CREATE, self._limits, self._coordinator.world)
        self._own(request, wanted.name, wanted.location)
        if wanted.adopt_existing_files:
            caller_of(request).require("admin")
            audited(request, adopt_existing_files=True)
        caller = caller_of(request)
        return self._created(request, await self._coordinator.tables.create(wanted, caller.name, caller.sees))

    async def register(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        wanted = await read_as(request, _REGISTER, self._limits, self._coordinator.world)
        self._own(request, wanted.name, wanted.location)
        caller = caller_of(request)
        return self._created(request, await self._coordinator.registering.register(wanted, caller.name, caller.sees))

    async def listed(self, request: Request) -> Response:
        query = query_as(request.scope["query_string"], ListQuery)
        sees = caller_of(request).sees
        page = await self._coordinator.tables.list(query.namespace, query.limit, query.cursor, sees)
        return await large_answer(request, self._coordinator.world, page)

    async def describe(self, request: Request) -> Response:
        query = query_as(request.scope["query_string"], Fresh)
        table = await self._coordinator.tables.describe(table_of(request), query.max_staleness_seconds)
        tag = entity_tag(table.id, table.version)
        known = not_modified(request, tag)
        return known or await large_answer(request, self._coordinator.world, table, {"etag": tag})

    async def alter(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        change = await read_as(request, _ALTER, self._limits, self._coordinator.world)
        table = await self._coordinator.tables.alter(table_of(request), change, caller_of(request).name)
        audited(request, version=table.version)
        tag = entity_tag(table.id, table.version)
        return await large_answer(request, self._coordinator.world, table, {"etag": tag})

    async def drop(self, request: Request) -> Response:
        query = query_as(request.scope["query_string"], DropQuery)
        audited(request, purge=query.purge)
        by = caller_of(request).name
        await self._coordinator.tables.drop(table_of(request), purge_files=query.purge, by=by)
        return Response(status_code=204)

    def _own(self, request: Request, text: str, location: str | None) -> None:
        """The table is named in the body: the key must reach its namespace, and so must the place.

        A folder around the tables of another namespace would keep that one from creating any, and what lies there
        could be read through a table of one's own.
        """
        name = parse_name(text)
        audited(request, table=str(name))
        caller = caller_of(request)
        caller.require("write", name.namespace)
        if location is None or caller.namespaces is None:
            return
        roots = self._coordinator.roots
        root, prefix = roots.find(location)
        if root is not roots.warehouse or not caller.sees(prefix.partition("/")[0]):
            detail = f"key {caller.id!r} is for namespaces like {caller.namespaces!r}: leave the location out, or name "
            raise ProblemError("forbidden", f"{detail}a place in the folder of such a namespace in the warehouse")

    def _created(self, request: Request, table: TableView) -> Response:
        audited(request, version=table.version, location=table.location)
        headers = {"location": f"/v1/tables/{table.name}", "etag": entity_tag(table.id, table.version)}
        return json_answer(table, 201, headers)

    def operations(self) -> list[Operation]:
        """What is served here."""
        create_example: dict[str, Any] = {"name": "sales.orders", "schema": SCHEMA, "partitionColumns": ["day"]}
        return [
            Operation(
                id="createTable",
                method="POST",
                path="/v1/tables",
                endpoint=self.create,
                tag=_TAG,
                summary="Create a table",
                description="Version 0 holds the schema, a Spark StructType. Without a location the table lies in the "
                "warehouse. A location must be empty, unless `adoptExistingFiles` is set, which needs scope `admin`: "
                "vacuum and purge never delete the files that are there. Needs scope `write`.",
                scope="write",
                changes="create table",
                body=CreateTable,
                example=create_example,
                results={201: Result("The table", TableView, TABLE)},
                problems=(
                    "table-exists",
                    "location-overlap",
                    "location-not-empty",
                    "location-not-allowed",
                    "schema-invalid",
                    "property-invalid",
                    "table-name-invalid",
                    *_COMMITTING,
                ),
            ),
            Operation(
                id="registerTable",
                method="POST",
                path="/v1/tables/register",
                endpoint=self.register,
                tag=_TAG,
                summary="Serve a log that is already there",
                description="Read-only, unless all other writers of it have stopped for good. Needs scope `admin`.",
                scope="admin",
                changes="register table",
                body=RegisterTable,
                example={"name": "sales.archive", "location": "/data/archive"},
                results={201: Result("The table", TableView, TABLE)},
                problems=(
                    "table-exists",
                    "location-overlap",
                    "location-not-allowed",
                    "log-not-supported",
                    "protocol-not-supported",
                    "table-name-invalid",
                    "log-corrupt",
                    *_COMMITTING,
                ),
            ),
            Operation(
                id="listTables",
                method="GET",
                path="/v1/tables",
                endpoint=self.listed,
                tag=_TAG,
                summary="List tables",
                description="In the order of their names. A key that is limited to namespaces sees only their tables.",
                query=ListQuery,
                results={200: Result("A page of tables", TablesPage, {"tables": [TABLE_REF], "next": None})},
                problems=("table-name-invalid",),
            ),
            Operation(
                id="getTable",
                method="GET",
                path="/v1/tables/{table}",
                endpoint=self.describe,
                tag=_TAG,
                summary="Describe a table",
                description="The table at its newest version. Its ETag changes with every version.",
                query=Fresh,
                parameters={"header:If-None-Match": {"type": "string"}},
                results={200: Result("The table", TableView, TABLE), 304: Result("You have it already")},
                problems=("log-not-supported", "protocol-not-supported"),
            ),
            Operation(
                id="alterTable",
                method="PATCH",
                path="/v1/tables/{table}",
                endpoint=self.alter,
                tag=_TAG,
                summary="Change properties, schema or description",
                description="What is left out stays as it is; changes of different keys do not disturb one another. "
                "Schemas evolve by adding nullable columns, widening numbers and relaxing nullability. "
                "Needs scope `write`.",
                scope="write",
                changes="alter table",
                body=AlterTable,
                example={"properties": {"set": {"owner": "sales"}, "unset": []}},
                results={200: Result("The table after the change", TableView, TABLE)},
                problems=(
                    "commit-conflict",
                    "table-read-only",
                    "commit-invalid",
                    "commit-id-reused",
                    "commit-id-expired",
                    "commit-too-large",
                    "schema-invalid",
                    "schema-change-not-allowed",
                    "property-invalid",
                    "protocol-not-supported",
                    *_COMMITTING,
                ),
            ),
            Operation(
                id="dropTable",
                method="DELETE",
                path="/v1/tables/{table}",
                endpoint=self.drop,
                tag=_TAG,
                summary="Drop a table",
                description="A last commit ends the table's log, and the name is free again. The files stay, unless "
                "`purge` is asked for. Needs scope `admin`.",
                scope="admin",
                changes="drop table",
                query=DropQuery,
                results={204: Result("The table is gone")},
                problems=("commit-conflict", "table-read-only", "protocol-not-supported", *_COMMITTING),
            ),
        ]
