"""Parsers of what clients send: bodies and query strings of every route, headers, cursors, filters, names and times."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
from collections.abc import Callable, Sequence

import msgspec

from tarnlog.protocol.action_json import DECODE_ERRORS
from tarnlog.protocol.ids import TableName, parse_commit_id
from tarnlog.protocol.predicates import PredicateError, parse_predicate
from tarnlog.protocol.problems import ProblemError
from tarnlog.protocol.schema import SchemaError, parse_schema
from tarnlog_server.api.app import ApiSettings
from tarnlog_server.api.auth import ApiKey
from tarnlog_server.api.bodies import BodyLimits, inflating
from tarnlog_server.api.commit_body import decode_in_steps
from tarnlog_server.api.operation import Operation
from tarnlog_server.api.parameters import epoch_ms
from tarnlog_server.codec.sql_filter import SqlFilterError, parse_sql_filter
from tarnlog_server.core.match import check_predicate
from tests.api.conftest import add
from tests.codec.test_sql_filter import SCHEMA
from tests.fuzz.harness import Target
from tests.fuzz.served import JSON, Headers, Served, served, untouched

TABLE = "/v1/tables/db.t"
LIMITS = BodyLimits(sent=2**22, inflated=2**22)
SQL: list[bytes] = [
    b"id = 5 AND (name LIKE 'abc%' OR date BETWEEN '2024-01-01' AND DATE '2024-02-01') AND NOT ok",
    b"at >= TIMESTAMP '2024-01-01 00:00:00' AND amount < -1.5e3 AND price IN (1, 2.5, NULL) AND `a b` IS NOT NULL",
    b"CAST('2024-01-01' AS DATE) <= date AND id <=> 7::bigint AND who.City = 'x' AND startswith(name, 'y')",
    "größe <> 1 AND name LIKE 'a!_%' ESCAPE '!' OR `a``b` = 'it''s' AND 1 = 1".encode(),
]
SQL_TOKENS = (
    *(
        b" AND ",
        b" OR ",
        b" NOT ",
        b"(",
        b")",
        b"::int",
        b" IN (1)",
        b" = ",
        b" < ",
        b"<=>",
        b" BETWEEN 1 AND 2",
        b" LIKE ",
    ),
    *(
        b"CAST(",
        b" AS DATE)",
        b"DATE '",
        b"TIMESTAMP '",
        b"INTERVAL 1 DAY",
        b"CASE WHEN ",
        b"SELECT ",
        b"`",
        b"--",
        b"/*",
    ),
    *(
        b"MAP<",
        b"ARRAY<",
        b"->",
        b"||",
        b"::",
        b"?",
        b"@",
        b"$",
        b";",
        b"1e400",
        b"x'ff'",
        b"r'",
        b".",
        b"*",
        b" ESCAPE 'x'",
    ),
)
TREES = [
    {
        "op": "and",
        "args": [
            {"op": "eq", "column": "id", "value": 5},
            {
                "op": "or",
                "args": [{"op": "is-null", "column": "name"}, {"op": "in", "column": "id", "values": [1, None]}],
            },
            {"op": "not", "arg": {"op": "starts-with", "column": "name", "value": "x"}},
            {"op": "lt", "column": "at", "value": "2024-01-01T00:00:00Z"},
            {"op": "ge", "column": "price", "value": "1.50"},
        ],
    }
]
QUERIES = [
    b"version=1&maxStalenessSeconds=0.5&limit=10",
    b"timestamp=2024-01-01T00:00:00%2B01:00&limit=1",
    b"from=0&to=2&order=asc&limit=1&cursor=eyJ2IjoxfQ",
    b"namespace=db&purge=true&after=1",
]
HEADERS = (
    *(b"accept", b"accept-encoding", b"content-type", b"content-encoding", b"content-length", b"if-none-match"),
    *(b"authorization", b"last-event-id", b"x-request-id", b"origin", b"sec-fetch-site", b"cookie"),
)
HEADER_VALUES = [
    b"application/vnd.apache.arrow.stream;q=0.9, application/json;q=1.0",
    b"gzip;q=0.5, *;q=0",
    b'"01a1eaec.5", W/"x-gzip"',
    b"Bearer key.secret",
    b"Basic a2V5OnNlY3JldA==",
    b"http://127.0.0.1:8420",
    b"12",
]


def _operations() -> list[Operation]:
    return [operation for operation in served().api.app.operations if operation.id != "streamEvents"]


def _path(operation: Operation) -> str:
    filled = operation.path.replace("{table}", "db.t").replace("{version}", "1").replace("{session}", "s")
    return (
        filled.replace("{commitId}", "018cc251-f400-7000-8000-00000000abcd").replace("{appId:path}", "a").split("{")[0]
    )


def _body(operation_id: str) -> Callable[[bytes], object]:
    def sent(data: bytes) -> object:
        operation = next(one for one in served().api.app.operations if one.id == operation_id)
        return served().ask(operation.method, _path(operation), body=data)

    return sent


def _examples(operation_id: str) -> Callable[[], Sequence[bytes]]:
    def found() -> Sequence[bytes]:
        operation = next(one for one in served().api.app.operations if one.id == operation_id)
        samples = [json.dumps(operation.example).encode()]
        if operation_id == "planScan":
            samples += [json.dumps({"filter": tree, "limit": 5, "explain": True}).encode() for tree in TREES]
        if operation_id == "commit":
            samples.append(json.dumps(COMMIT).encode())
        return samples

    return found


COMMIT = {
    "actions": [
        add("day=1/x", partitionValues={"name": "1"}, tags={"t": None}, stats='{"numRecords":1}', numRecords=1),
        {"remove": {"path": "f0", "dataChange": True}},
        {"txn": {"appId": "a", "version": 1}},
        {"mergeskip": {"path": "f1", "skipTimestamp": 1, "reason": "r", "operation": "o"}},
    ],
    "readVersion": 1,
    "isolation": "serializable",
    "reads": {"filters": [*TREES, "id = 5"], "paths": ["f1"], "appIds": ["a"], "wholeTable": False},
    "operationParameters": {"a": [1, {"b": None}]},
    "operationMetrics": {"rows": 5},
}
WITH_BODIES = (
    *("commit", "createTable", "registerTable", "alterTable", "planScan", "recordSkip", "checkpoint", "compact"),
    *("cleanup", "beginSession", "extendSession", "vacuum", "erase", "verify", "repair", "rebuild"),
    "invalidateCache",
)


def _cursors() -> list[bytes]:
    """What is inside of real cursors."""
    found = []
    for path in ("/files", "/commits", "/changes"):
        page = msgspec.json.decode(untouched().ask("GET", TABLE + path, b"limit=1"))
        if page.get("next"):
            text = page["next"]
            found.append(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    plan = msgspec.json.decode(untouched().ask("POST", f"{TABLE}/plan", body=b'{"limit":1}'))
    text = plan["next"]
    assert len(found) == 3
    return [*found, base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))]


def _cursor(data: bytes) -> None:
    text = base64.urlsafe_b64encode(data).rstrip(b"=")[:2048]
    for path in ("/files", "/commits", "/changes", "/skips", "/cooldowns"):
        served().ask("GET", TABLE + path, b"limit=1&cursor=" + text)
    served().ask("GET", "/v1/tables", b"cursor=" + text)
    served().ask("POST", f"{TABLE}/plan", body=json.dumps({"cursor": text.decode()}).encode())


def _query(data: bytes) -> None:
    for operation in _operations():
        if operation.method == "GET" or operation.query is not None:
            # The table is needed on: what drops one is asked for another.
            path = _path(operation).replace("db.t", "db.gone") if operation.method == "DELETE" else _path(operation)
            served().ask(operation.method, path, data)


def _text(data: bytes) -> str:
    """Any text, lone surrogates among it: what a JSON string may hold."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "surrogateescape")


def _path_text(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for path in (f"/v1/tables/{text}", f"{TABLE}/commits/{text}", f"{TABLE}/commits/by-id/{text}", f"/{text}"):
        served().ask("GET", path)
    served().ask("GET", f"{TABLE}/txns/{text}")
    served().ask("GET", f"/v1/operations/{text}")
    served().ask("DELETE", f"{TABLE}/sessions/{text}")


def _headers(data: bytes) -> None:
    number = len(data) % len(HEADERS)
    headers: Headers = ((HEADERS[number], data), *(JSON if HEADERS[number] != b"content-type" else ()))
    body = json.dumps({"limit": 1}).encode()
    for method, path in (("GET", TABLE), ("GET", f"{TABLE}/files"), ("POST", f"{TABLE}/plan"), ("GET", "/")):
        served().ask(method, path, body=body if method == "POST" else b"", headers=headers)


@functools.cache
def _guarded() -> Served:
    digest = hashlib.sha256(b"secret").hexdigest()
    return Served(ApiSettings(keys=(ApiKey(id="key", sha256=digest, scope="read"),)))


def _authorization(data: bytes) -> object:
    # A wrong key is answered late: only what is no wrong key is sent to the application.
    from tarnlog_server.api.auth import Authenticator

    keys = (ApiKey(id="key", sha256=hashlib.sha256(b"secret").hexdigest(), scope="read"),)
    authenticator = Authenticator(keys, _guarded().api.coordinator.world)
    return [authenticator._matching(data, basic) for basic in (False, True)]


def _sql(data: bytes) -> object:
    tree = parse_sql_filter(_text(data), SCHEMA, "Europe/Berlin" if len(data) % 2 else None)
    check_predicate(tree, SCHEMA)
    return tree


def _tree(data: bytes) -> object:
    try:
        value = msgspec.json.decode(data)
    except DECODE_ERRORS:
        return None
    tree = parse_predicate(value)
    check_predicate(tree, SCHEMA)
    return tree


def _schema(data: bytes) -> object:
    try:
        value = msgspec.json.decode(data)
    except DECODE_ERRORS:
        return None
    return parse_schema(value).to_schema_string()


def _gzip(data: bytes) -> object:
    return b"".join(inflating(data, LIMITS))


TARGETS: tuple[Target, ...] = (
    *(Target(f"body-{name}", _examples(name), _body(name), (), "json") for name in WITH_BODIES),
    Target("commit-in-steps", lambda: [json.dumps(COMMIT).encode()], decode_in_steps, (ProblemError,), "json"),
    Target("gzip-body", lambda: [gzip.compress(json.dumps(COMMIT).encode() * 50)], _gzip, (ProblemError,)),
    Target("query", lambda: QUERIES, _query, ()),
    Target("path", lambda: [b"db.t", b"1", b"018cc251-f400-7000-8000-00000000abcd"], _path_text, ()),
    Target("headers", lambda: HEADER_VALUES, _headers, ()),
    Target("authorization", lambda: HEADER_VALUES[3:5], _authorization, ()),
    Target("cursor", _cursors, _cursor, (), "json"),
    Target("sql-filter", lambda: SQL, _sql, (PredicateError, SqlFilterError), tokens=SQL_TOKENS),
    Target("filter-tree", lambda: [json.dumps(tree).encode() for tree in TREES], _tree, (PredicateError,), "json"),
    Target(
        "schema",
        lambda: [json.dumps(SCHEMA.to_json_object()).encode()],
        _schema,
        (SchemaError,),
        "json",
    ),
    Target("table-name", lambda: [b"sales.orders"], lambda data: TableName.parse(_text(data)), (ValueError,)),
    Target(
        "commit-id",
        lambda: [b"018cc251-f400-7000-8000-00000000abcd"],
        lambda data: parse_commit_id(_text(data)),
        (ValueError,),
    ),
    Target(
        "moment",
        lambda: [b"2024-01-01T00:00:00.123+02:00", b"1704067200000"],
        lambda data: epoch_ms(_text(data)),
        (ProblemError,),
    ),
)
