"""What clients are told of malformed bodies and queries, over every route: plain words, never those of the decoder."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from tarnlog_server.api.app import ApiSettings
from tarnlog_server.api.auth import ApiKey
from tarnlog_server.api.fault_words import in_words
from tarnlog_server.api.operation import Operation, OperationRoute
from tests.api.conftest import Api

WORDS: list[tuple[str, str]] = [
    ("Expected `str`, got `int`", "must be a string, not a number"),
    ("Expected `str | null`, got `bool`", "must be a string or null, not true or false"),
    ("Expected `int`, got `float`", "must be a whole number, not a number with a fraction"),
    ("Expected `object`, got `array`", "must be an object, not a list"),
    ("Expected `int` >= 0", "must be at least 0"),
    ("Expected `float` > 0.0", "must be above 0"),
    ("Expected `int` <= 9", "must be at most 9"),
    ("Expected `str` of length >= 1", "must have at least 1 character"),
    ("Expected `str` of length <= 128", "must have at most 128 characters"),
    ("Expected `array` of length >= 1", "must have at least 1 element"),
    ("Expected `str` matching regex '^a$'", "must match the regular expression '^a$'"),
    ("Object missing required field `path`", "the field path is missing"),
    ("Invalid enum value 'x'", "'x' is not allowed here"),
    ("Input data was truncated", "the body is not JSON: it is empty, or breaks off"),
    ("JSON is malformed: trailing characters (byte 5)", "the body is not JSON: trailing characters at byte 5"),
    ("Number out of range", "the number is too large"),
    ("Something `new`", "Something new"),
]


@pytest.mark.parametrize("text, said", WORDS)
def test_words(text: str, said: str) -> None:
    assert in_words(text) == said


JARGON = ("`", "Expected", "Object ", "Invalid enum", "Input data", "msgspec", "malformed", "Struct")
VALUES: tuple[Any, ...] = (7, -1, 1.5, 1e300, "", "x", "x" * 2000, True, None, [], [1], {}, {"x": 1}, 2**70)
RAW = (b"", b"null", b"[]", b"5", b'"x"', b"{", b'{"a"', b"{}}", b"not json", b'{"a": NaN}', b"\xff", b"[" * 600)
TEXTS = ("", "x", "-1", "1.5", "9" * 30, "true", "%FF", "2024-13-01")


def operations(api: Api) -> list[Operation]:
    found = [route.operation for route in api.app.routes if isinstance(route, OperationRoute)]
    assert len(found) > 30
    return found


def mutated(value: Any) -> Iterator[Any]:
    """The example with one member changed, left out or added, anywhere in it."""
    if isinstance(value, dict):
        yield {**value, "surprise": 1}
        for key, member in value.items():
            yield {name: other for name, other in value.items() if name != key}
            for wrong in VALUES:
                yield {**value, key: wrong}
            for inner in mutated(member):
                yield {**value, key: inner}
    elif isinstance(value, list) and value:
        for wrong in VALUES:
            yield [*value[:-1], wrong]
        for inner in mutated(value[-1]):
            yield [*value[:-1], inner]


def told(answer: httpx.Response) -> str:
    document = answer.json()
    return " ".join([document["detail"], *(error["message"] for error in document.get("errors", []))])


def check(answer: httpx.Response, sent: object) -> int:
    if answer.status_code < 400:
        return 0
    assert answer.status_code != 500, (sent, answer.text)
    text = told(answer)
    assert not [word for word in JARGON if word in text], (sent, text)
    return 1


def path_of(operation: Operation) -> str:
    path = operation.path.replace("{table}", "db.t").replace("{version}", "0")
    while "{" in path:
        path = path[: path.index("{")] + "x" + path[path.index("}") + 1 :]
    return path


async def test_no_route_answers_a_malformed_body_in_the_words_of_the_decoder(api: Api, table: str) -> None:
    refused = 0
    for operation in operations(api):
        if operation.body is None:
            continue
        url = path_of(operation)
        headers = {"content-type": "application/json"}
        for raw in RAW:
            refused += check(await api.request(operation.method, url, content=raw, headers=headers), raw)
        seen = 0
        for body in mutated(copy.deepcopy(msgspec.to_builtins(operation.example or {}))):
            seen += 1
            if seen % 3 and seen > 60:
                continue  # a third of the long ones
            refused += check(await api.request(operation.method, url, content=json.dumps(body), headers=headers), body)
    assert refused > 500


async def test_no_route_answers_a_malformed_query_in_the_words_of_the_decoder(api: Api, table: str) -> None:
    refused = 0
    for operation in operations(api):
        if operation.method != "GET" or operation.id == "streamEvents":
            continue
        names = [field.encode_name for field in msgspec.structs.fields(operation.query)] if operation.query else []
        for name in (*names, "surprise"):
            for text in TEXTS:
                query = f"{path_of(operation)}?{name}={text}"
                refused += check(await api.get(query), query)
    assert refused > 100


@pytest.mark.parametrize("name", ["after", "since", "lastEventId", "cursor"])
async def test_who_looks_for_a_way_to_resume_events_is_told_the_header(api: Api, table: str, name: str) -> None:
    answer = await api.get(f"{table}/events?{name}=3")
    assert answer.status_code == 422
    assert "Last-Event-ID" in answer.json()["detail"]


async def test_basic_on_the_api_is_told_to_use_bearer() -> None:
    key = ApiKey(id="k", sha256="0" * 64, scope="read")
    credentials = base64.b64encode(b"k:secret").decode()
    async with Api(ApiSettings(keys=(key,))) as api:
        answer = await api.post("/v1/tables", json={}, headers={"authorization": f"Basic {credentials}"})
        assert answer.status_code == 401
        assert "use Authorization: Bearer" in answer.json()["detail"]
        assert answer.headers["www-authenticate"].startswith("Bearer")
