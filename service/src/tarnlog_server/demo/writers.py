"""Writers that append as fast as they are answered, and send the same commit again when they are not."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Any

import httpx

from tarnlog import new_commit_id

TABLE = "demo.events"
SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": False, "metadata": {}},
        {"name": "text", "type": "string", "nullable": True, "metadata": {}},
    ],
}
PAUSE_SECONDS = 0.1
ANSWER_SECONDS = 10.0


@dataclasses.dataclass(slots=True)
class Acknowledged:
    """What a writer was told of one commit."""

    commit_id: str
    version: int
    seq: int
    seconds: float
    unanswered: int
    """How often it was sent without an answer: cut off by the kill, or sent to nobody."""
    replayed: bool
    """The answer was of an earlier send, which had landed although nobody could say so."""


class Writers:
    """Everything the writers did."""

    def __init__(self, url: str, count: int) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.refused: list[str] = []
        self._url = url
        self._count = count
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Write until stopped; every writer finishes the commit it has begun."""
        await asyncio.gather(*(self._write(number) for number in range(self._count)))

    def stop(self) -> None:
        """No new commits."""
        self._stopping.set()

    async def _write(self, writer: int) -> None:
        async with httpx.AsyncClient(base_url=self._url, timeout=ANSWER_SECONDS) as client:
            number = 0
            while not self._stopping.is_set():
                await self._commit(client, f"writer-{writer:02}/{number:06}.parquet")
                number += 1

    async def _commit(self, client: httpx.AsyncClient, path: str) -> None:
        commit_id = new_commit_id()
        add = {"path": path, "partitionValues": {}, "size": 1024, "modificationTime": 0, "dataChange": True}
        body = {"commitId": commit_id, "operation": "WRITE", "actions": [{"add": add}]}
        started = time.monotonic()
        unanswered = 0
        while True:
            try:
                answer = await client.post(f"/v1/tables/{TABLE}/commits", json=body)
            except httpx.TransportError as error:
                unanswered += not isinstance(error, httpx.ConnectError)  # what was never sent cannot have landed
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if answer.status_code in (429, 503):
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if answer.status_code not in (200, 201):
                self.refused.append(answer.text)
                return
            told = answer.json()
            seconds = time.monotonic() - started
            self.acknowledged.append(
                Acknowledged(commit_id, told["version"], told["seq"], seconds, unanswered, told["replayed"])
            )
            return
