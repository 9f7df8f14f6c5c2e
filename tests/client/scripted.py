"""A service that says what it is told to say, and a clock that moves only when somebody sleeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx

from tarnlog import AsyncClient, Client

SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}

Reply = httpx.Response | Exception | Callable[[httpx.Request], httpx.Response]


def answer(status: int, document: Any = None, **headers: str) -> httpx.Response:
    content = b"" if document is None else json.dumps(document).encode()
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return httpx.Response(status, content=content, headers=named)


def problem(status: int, slug: str, *, retry_after: str | None = None, **fields: Any) -> httpx.Response:
    document = {"type": f"/problems/{slug}", "title": slug, "status": status, "detail": f"because {slug}", **fields}
    return answer(status, document, **({} if retry_after is None else {"retry_after": retry_after}))


def committed(request: httpx.Request, status: int = 201, **fields: Any) -> httpx.Response:
    commit_id = json.loads(request.content)["commitId"]
    document = {
        "outcome": "committed",
        "commitId": commit_id,
        "version": 13,
        "seq": 0,
        "timestamp": 1704067200000,
        "replayed": False,
        "attempts": 1,
        "rebasedOver": [],
        "somethingNew": {"a": 1},
        **fields,
    }
    return answer(status, document)


class Scripted:
    """Replies in order; the last one is repeated."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.requests: list[httpx.Request] = []
        self.slept: list[float] = []
        self.now = 1000.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def async_sleep(self, seconds: float) -> None:
        self.sleep(seconds)

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        return reply(request) if callable(reply) else reply

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(request.content) for request in self.requests if request.content]

    def client(self, **arguments: Any) -> Client:
        transport = httpx.MockTransport(self.handle)
        return Client("http://service", transport=transport, sleep=self.sleep, clock=self.clock, **arguments)

    def async_client(self, **arguments: Any) -> AsyncClient:
        transport = httpx.MockTransport(self.handle)
        return AsyncClient("http://service", transport=transport, sleep=self.async_sleep, clock=self.clock, **arguments)
