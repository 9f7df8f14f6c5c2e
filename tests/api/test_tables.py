"""Tables over HTTP."""

from __future__ import annotations

import pytest

from tests.api.conftest import SCHEMA, Api, add, pointers, slug


async def test_create_and_describe(api: Api) -> None:
    answer = await api.post(
        "/v1/tables",
        json={"name": "db.t", "schema": SCHEMA, "partitionColumns": ["name"], "properties": {"owner": "me"}},
    )
    assert answer.status_code == 201
    assert answer.headers["location"] == "/v1/tables/db.t"
    table = answer.json()
    assert table["version"] == 0
    assert table["schema"] == SCHEMA
    assert table["partitionColumns"] == ["name"]
    assert table["properties"] == {"owner": "me"}
    assert (await api.get("/v1/tables/db.t")).json() == table


async def test_a_name_is_taken_once(api: Api, table: str) -> None:
    again = await api.post("/v1/tables", json={"name": "db.t", "schema": SCHEMA})
    assert (again.status_code, slug(again)) == (409, "table-exists")


async def test_tables_do_not_overlap(api: Api) -> None:
    await api.create("db.one", location="memory://warehouse/x/t1")
    inside = await api.post(
        "/v1/tables", json={"name": "db.two", "schema": SCHEMA, "location": "memory://warehouse/x/t1/y"}
    )
    assert (inside.status_code, slug(inside)) == (409, "location-overlap")
    await api.create("db.ten", location="memory://warehouse/x/t10")


@pytest.mark.parametrize(
    "location",
    ["../x", "memory://warehouse/../x", "memory://warehouse/%2e%2e/x", "file:///etc/x", "memory://other/x", "", "\0",
     "memory://warehouse", "memory://warehouse/_catalog/x", "x" * 2000],
)  # fmt: skip
async def test_locations_that_are_not_allowed(api: Api, location: str) -> None:
    answer = await api.post("/v1/tables", json={"name": "db.t", "schema": SCHEMA, "location": location})
    assert (answer.status_code, slug(answer)) == (422, "location-not-allowed")
    assert (await api.get("/v1/tables")).json()["tables"] == []


@pytest.mark.parametrize("name", ["*", "..", "a", "a.", ".b", "a.b.c", "a/b", "a b.c", "-a.b", "a." + "b" * 1024, ""])
async def test_names_that_are_none(api: Api, name: str) -> None:
    created = await api.post("/v1/tables", json={"name": name, "schema": SCHEMA})
    assert (created.status_code, slug(created)) == (422, "table-name-invalid")


@pytest.mark.parametrize("path", ["*", "%2e%2e", "a", "a." + "b" * 1024, "a.b%00", "%ff.%fe", "a..b"])
async def test_names_that_are_none_in_paths(api: Api, path: str) -> None:
    for answer in (
        await api.get(f"/v1/tables/{path}"),
        await api.get(f"/v1/tables/{path}/snapshot"),
        await api.post(f"/v1/tables/{path}/commits", json={"actions": [add("x")]}),
        await api.delete(f"/v1/tables/{path}"),
    ):
        assert (answer.status_code, slug(answer)) == (422, "table-name-invalid")


@pytest.mark.parametrize(
    "body, code",
    [
        ({"schema": {"type": "struct", "fields": []}}, "schema-invalid"),
        ({"schema": {"type": "array"}}, "schema-invalid"),
        ({"partitionColumns": ["missing"]}, "schema-invalid"),
        ({"partitionColumns": ["id", "id"]}, "schema-invalid"),
        ({"properties": {"commit.maxBytes": "many"}}, "property-invalid"),
    ],
)
async def test_tables_that_cannot_be(api: Api, body: dict[str, object], code: str) -> None:
    answer = await api.post("/v1/tables", json={"name": "db.t", "schema": SCHEMA, **body})
    assert (answer.status_code, slug(answer)) == (422, code)


@pytest.mark.parametrize(
    "body, pointer",
    [
        ({"surprise": 1}, "/surprise"),
        ({"name": 1}, "/name"),
        ({"schema": "{}"}, "/schema"),
        ({"partitionColumns": "id"}, "/partitionColumns"),
        ({"partitionColumns": ["id", 1]}, "/partitionColumns/1"),
        ({"properties": {"a": 1}}, "/properties"),
        ({"a/b~c": 1}, "/a~1b~0c"),
    ],
)
async def test_bodies_are_strict(api: Api, body: dict[str, object], pointer: str) -> None:
    answer = await api.post("/v1/tables", json={"name": "db.t", "schema": SCHEMA, **body})
    assert (answer.status_code, slug(answer), pointers(answer)) == (422, "request-invalid", [pointer])


async def test_list_in_pages(api: Api) -> None:
    names = [f"a.t{number}" for number in range(5)]
    for name in [*names, "b.t"]:
        await api.create(name)
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await api.get("/v1/tables", params={"namespace": "a", "limit": 2, **cursor})).json()
        seen += [table["name"] for table in page["tables"]]
        assert len(page["tables"]) <= 2
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert seen == names
    assert len((await api.get("/v1/tables")).json()["tables"]) == 6


async def test_alter(api: Api, table: str) -> None:
    changed = await api.patch(
        table, json={"properties": {"set": {"owner": "me"}, "unset": []}, "description": "orders, one row each"}
    )
    assert changed.status_code == 200
    assert changed.json()["version"] == 1
    assert changed.json()["properties"] == {"owner": "me"}
    assert changed.json()["description"] == "orders, one row each"
    removed = await api.patch(table, json={"properties": {"unset": ["owner"]}, "description": None})
    assert removed.json()["properties"] == {}
    assert removed.json()["description"] is None


async def test_alter_the_schema(api: Api, table: str) -> None:
    wider = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "x", "type": "long", "nullable": True, "metadata": {}}]}
    assert (await api.patch(table, json={"schema": wider})).json()["schema"] == wider
    narrower = {**SCHEMA, "fields": SCHEMA["fields"][:1]}
    refused = await api.patch(table, json={"schema": narrower})
    assert (refused.status_code, slug(refused)) == (422, "schema-change-not-allowed")


async def test_drop_and_create_again(api: Api, table: str) -> None:
    first = (await api.get(table)).json()
    dropped = await api.delete(table)
    assert (dropped.status_code, dropped.content) == (204, b"")
    for answer in (await api.get(table), await api.delete(table), await api.get(f"{table}/files")):
        assert (answer.status_code, slug(answer)) == (404, "table-not-found")
    second = await api.create()
    assert second["id"] != first["id"]


async def test_purge(api: Api, table: str) -> None:
    await api.append("a")
    location = (await api.get(table)).json()["location"].removeprefix("memory://warehouse/")
    await api.store.put(f"{location}/a", b"the data")
    assert (await api.delete(table, params={"purge": "true"})).status_code == 204
    left = [info.key for info in await api.store.list(location)]
    assert f"{location}/a" not in left
    assert any(key.endswith("/00000000000000000002.json") for key in left), left


async def test_register_a_dropped_log(api: Api, table: str) -> None:
    await api.append("a")
    location = (await api.get(table)).json()["location"]
    await api.delete(table)
    refused = await api.post("/v1/tables/register", json={"name": "db.again", "location": location})
    assert (refused.status_code, slug(refused)) == (422, "log-not-supported")
    taken = await api.post(
        "/v1/tables/register", json={"name": "db.again", "location": location, "foreignWritersStopped": True}
    )
    assert taken.status_code == 201, taken.text
    assert taken.json()["numFiles"] == 1


async def test_register_read_only(api: Api, table: str) -> None:
    await api.append("a")
    location = (await api.get(table)).json()["location"].removeprefix("memory://warehouse/")
    for info in await api.store.list(location):
        await api.store.put(info.key.replace(location, "copies/one"), await api.store.get(info.key))
    registered = await api.post(
        "/v1/tables/register", json={"name": "db.copy", "location": "memory://warehouse/copies/one"}
    )
    assert registered.status_code == 201, registered.text
    assert registered.json()["readOnly"] is True
    refused = await api.post("/v1/tables/db.copy/commits", json={"actions": [add("x")]})
    assert (refused.status_code, slug(refused)) == (409, "table-read-only")


async def test_register_where_there_is_nothing(api: Api) -> None:
    answer = await api.post("/v1/tables/register", json={"name": "db.x", "location": "memory://warehouse/empty"})
    assert (answer.status_code, slug(answer)) == (422, "log-not-supported")


async def test_the_tag_changes_with_the_version(api: Api, table: str) -> None:
    first = await api.get(table)
    tag = first.headers["etag"]
    unchanged = await api.get(table, headers={"if-none-match": tag})
    assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", tag)
    assert (await api.get(table, headers={"if-none-match": f'"other", W/{tag}'})).status_code == 304
    await api.append("a")
    changed = await api.get(table, headers={"if-none-match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag
