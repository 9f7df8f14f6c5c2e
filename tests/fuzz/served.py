"""The application in this process for fuzz targets: raw requests in, answers out that never are the service's fault."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import msgspec

from tarnlog_server.api.app import ApiSettings
from tests.api.conftest import Api, add

REQUESTS = 3_000
"""After so many an application is replaced: what inputs created in it would slow it down."""
Headers = tuple[tuple[bytes, bytes], ...]
JSON: Headers = ((b"content-type", b"application/json"),)
LOCAL: Headers = ((b"host", b"127.0.0.1:8420"),)


class Fault(AssertionError):
    """An answer that blames the service, or none."""


class Served:
    """An application with the table db.t, driven without a socket: httpx would refuse much of what is sent here."""

    def __init__(self, settings: ApiSettings | None = None) -> None:
        self._runner = asyncio.Runner()
        self._settings = settings
        self._api: Api | None = None
        self._left = 0

    @property
    def api(self) -> Api:
        if self._api is None or self._left <= 0:
            self._api = self._runner.run(self._opened())
            self._left = REQUESTS
        return self._api

    def ask(self, method: str, path: str, query: bytes = b"", body: bytes = b"", headers: Headers = JSON) -> bytes:
        """The body of the answer; Fault if it is a 500: nothing here is damaged, and no request may damage anything."""
        api = self.api
        self._left -= 1
        status, content = self._runner.run(asked(api.app, method, path, query, body, headers))
        judge(status, content, damaged=False)
        return content

    async def _opened(self) -> Api:
        if self._api is not None:
            await self._api.__aexit__(None, None, None)
        api = Api(self._settings)
        if self._settings is None:
            await api.create(partitionColumns=["name"])
            for number in range(3):
                commit = {"actions": [add(f"f{number}", partitionValues={"name": str(number)})]}
                assert (await api.post("/v1/tables/db.t/commits", json=commit)).status_code == 201
        return api


async def asked(app: Any, method: str, path: str, query: bytes, body: bytes, headers: Headers) -> tuple[int, bytes]:
    """One request to an ASGI application; the status and what was sent of the body."""
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("utf-8", "replace"),
        "root_path": "",
        "query_string": query,
        "headers": [*LOCAL, *headers],
        "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 8420),
    }
    answer: dict[str, Any] = {"status": None, "body": b""}
    waiting = [{"type": "http.request", "body": body, "more_body": False}]
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if waiting:
            return waiting.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answer["status"] = message["status"]
            if any(value.startswith(b"text/event-stream") for _, value in message["headers"]):
                gone.set()  # it would go on for ever
        else:
            answer["body"] += message.get("body", b"")

    await app(scope, receive, send)
    return answer["status"], answer["body"]


def judge(status: int | None, content: bytes, *, damaged: bool = True) -> None:
    """Fault unless the answer is one of the documented ones; `log-corrupt` is one where something is `damaged`."""
    if status is None:
        raise Fault("there was no answer")
    if status == 500:
        slug = str(msgspec.json.decode(content).get("type", "")).rsplit("/", 1)[-1]
        if slug != "log-corrupt" or not damaged:
            raise Fault(f"{status} {content[:500]!r}")


@functools.cache
def served() -> Served:
    """One without keys, with a table."""
    return Served()


@functools.cache
def untouched() -> Served:
    """Another one, for samples: fuzzing changes nothing in it."""
    return Served()
