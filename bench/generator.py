"""The load generator: closed-loop writers over raw HTTP/1.1, one keep-alive connection each, in a process of its own.

It must cost the machine little, because it shares it with what it measures: protocols instead of streams, requests
from a template, answers kept as bytes and decoded after the clock has stopped. `python -m bench.generator PLAN RESULT`.
"""

from __future__ import annotations

import asyncio
import gc
import random
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec

from bench.requests import commit_ids, request_source
from bench.samples import Acknowledged, Sample

PAUSE_AFTER_FAILURE = 0.05
GRACE = 120.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to send: writer i posts to targets[i % len(targets)] until the time is over or `limit` commits were sent."""

    port: int
    targets: list[str]
    tables: list[str]
    writers: int
    seconds: float
    limit: int = sys.maxsize
    adds: int = 1
    coalesce: bool = True
    seed: int = 0


class Run:
    """What all writers of one run share."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.deadline = 0.0
        self.left = plan.limit
        self.in_time = 0
        self.latencies: list[float] = []
        self.answers: list[tuple[str, bytes]] = []
        self.errors: dict[str, int] = {}

    def failed(self, kind: str) -> None:
        self.errors[kind] = self.errors.get(kind, 0) + 1


class Answer(msgspec.Struct, rename="camel"):
    """The part of a commit's answer that is checked against the log."""

    commit_id: str = ""
    version: int = -1
    seq: int = -1


class Problem(msgspec.Struct):
    """The part of a problem document that names it."""

    type: str = "unnamed"


def split_answer(data: bytes) -> tuple[int, bytes] | None:
    """(status, body) of one complete HTTP/1.1 answer, None while bytes are missing."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = data[:end].lower()
    at = head.find(b"\r\ncontent-length:")
    if at < 0:
        raise ValueError("the answer has no Content-Length; the generator does not read chunked answers")
    length = int(head[at + 17 :].split(b"\r\n", 1)[0])
    if len(data) < end + 4 + length:
        return None
    return int(head[9:12]), data[end + 4 : end + 4 + length]


class Writer(asyncio.Protocol):
    """One writer: sends, waits for the answer, sends the next."""

    def __init__(self, run: Run, table: str, source: Callable[[], bytes]) -> None:
        self._run, self._table, self._source = run, table, source
        self._loop = asyncio.get_running_loop()
        self._pending = b""
        self._sent = 0.0
        self._transport: asyncio.Transport
        self.done: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own type is not a subclass

    def send(self) -> None:
        run = self._run
        if run.left <= 0 or time.perf_counter() >= run.deadline:
            if not self.done.done():
                self.done.set_result(None)
            self._transport.close()
            return
        run.left -= 1
        request = self._source()
        self._sent = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        if self._pending:
            data = self._pending + data
        answer = split_answer(data)
        if answer is None:
            self._pending = data
            return
        self._pending = b""
        status, body = answer
        if 200 <= status < 300:
            self._run.latencies.append(now - self._sent)
            self._run.in_time += now <= self._run.deadline
            self._run.answers.append((self._table, body))
            self.send()
        else:
            self._run.failed(problem_name(status, body))
            self._loop.call_later(PAUSE_AFTER_FAILURE, self.send)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self._run.failed("connection lost")
            self.done.set_result(None)


def problem_name(status: int, body: bytes) -> str:
    """`429 too-many-waiting`: what a failure is counted under."""
    try:
        slug = msgspec.json.decode(body, type=Problem).type.rsplit("/", 1)[-1]
    except (msgspec.DecodeError, UnicodeDecodeError):
        slug = "unnamed"
    return f"{status} {slug}"


def acknowledgements(answers: list[tuple[str, bytes]]) -> list[Acknowledged]:
    """The places that were told; answers of a server that keeps no log (the no-op reference) have none."""
    decoded = ((table, msgspec.json.decode(body, type=Answer)) for table, body in answers)
    return [Acknowledged(table, one.commit_id, one.version, one.seq) for table, one in decoded if one.version >= 0]


async def drive(plan: Plan) -> Sample:
    """Connect every writer, start them together, stop at the deadline; an answer under way is waited for."""
    loop = asyncio.get_running_loop()
    run = Run(plan)
    ids = commit_ids(random.Random(plan.seed or time.time_ns()))
    writers: list[Writer] = []
    for index in range(plan.writers):
        which = index % len(plan.targets)
        source = request_source(plan.targets[which], plan.adds, plan.coalesce, ids)
        table = plan.tables[which]

        def make(table: str = table, source: Callable[[], bytes] = source) -> Writer:
            return Writer(run, table, source)

        _, writer = await loop.create_connection(make, "127.0.0.1", plan.port)
        writers.append(writer)
    cpu = _cpu_seconds()
    start = time.perf_counter()
    run.deadline = start + plan.seconds
    for writer in writers:
        writer.send()
    await asyncio.wait_for(asyncio.gather(*(writer.done for writer in writers)), plan.seconds + GRACE)
    wall = time.perf_counter() - start
    used = _cpu_seconds() - cpu
    return Sample(
        seconds=min(plan.seconds, wall),
        wall=wall,
        in_time=run.in_time,
        latencies=run.latencies,
        errors=run.errors,
        cpu=used,
        acknowledged=acknowledgements(run.answers),
    )


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main(plan_file: str, result_file: str) -> None:
    import uvloop

    gc.disable()  # a pause here would be counted as the server's latency; the process ends after the run
    plan = msgspec.json.decode(Path(plan_file).read_bytes(), type=Plan)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        Path(result_file).write_bytes(msgspec.json.encode(runner.run(drive(plan))))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
