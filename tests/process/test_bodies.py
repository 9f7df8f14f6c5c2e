"""A service under bodies that are far larger than they look: its memory stays bounded, and others are served."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.process.raw import JSON_TYPE, add, slug
from tests.service_process import ServiceProcess

Start = Callable[..., ServiceProcess]
MIB = 1024 * 1024
BUDGET = 16 * MIB
PACKED = {"content-encoding": "gzip", **JSON_TYPE}
SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}


def peak_memory(pid: int) -> int:
    """The most that a process has had in memory, in bytes."""
    text = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("VmHWM"))


def bombs() -> list[bytes]:
    """Bodies of some ten kilobytes that inflate to 7 MB, within the ratio that is allowed, and ones beyond it."""
    noise = random.Random(3).randbytes(25_000).hex().encode()
    blanks = b'{"actions":[],"operation":"' + noise + b'"}' + b" " * 12_000_000
    nested = b'{"operationParameters":{"n":"' + noise + b'","a":[' + b"[]," * 2_000_000 + b"[]]}}"
    beyond = b'{"operationParameters":{"a":[' + b"[]," * 9_000_000 + b"[]]}}"
    return [gzip.compress(text, 6) for text in (blanks, nested, beyond)]


async def test_bodies_that_inflate_take_bounded_memory_and_others_are_served(start_service: Start) -> None:
    service = start_service(env={"TARNLOG_MAX_BODY_MEMORY_BYTES": str(BUDGET)})
    bodies = bombs()
    assert max(len(body) for body in bodies) < 60_000
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as http:
        created = await http.post("/v1/tables", json={"name": "db.t", "schema": SCHEMA})
        assert created.status_code == 201, created.text
        before = peak_memory(service.pid)
        sending = [
            asyncio.ensure_future(http.post("/v1/tables/db.t/commits", content=body, headers=PACKED))
            for body in bodies * 6
        ]
        number = 0
        while not all(task.done() for task in sending) or number < 3:
            assert (await http.get("/v1/health/live")).status_code == 200
            body = json.dumps({"actions": [add(f"file-{number}")]}).encode()
            answer = await http.post("/v1/tables/db.t/commits", content=body, headers=JSON_TYPE)
            assert answer.status_code == 201, answer.text
            number += 1
        answers = await asyncio.gather(*sending)
        slugs = {slug(answer) for answer in answers}
        assert slugs <= {"commit-too-large", "commit-invalid", "too-many-waiting"}, slugs
        assert {answer.status_code for answer in answers} <= {413, 422, 429}
        grown = peak_memory(service.pid) - before
        assert grown < 100 * MIB, f"{grown / MIB:.0f} MiB for {len(answers)} bodies"
        assert (await http.get("/v1/tables/db.t")).json()["version"] == number
