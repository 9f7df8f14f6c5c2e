"""The benchmark's own code: percentiles, requests, load generator, the check that reads logs. No timing is asserted."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from bench.generator import Plan, drive, problem_name, split_answer
from bench.log_check import check_log, inflate, version_files
from bench.quiet import busy_between
from bench.report import Grid, markdown, write_section
from bench.requests import commit_body, commit_ids, request_source
from bench.samples import Acknowledged, Measure, Sample, measure, median_of, percentile, rate, window_rate
from bench.servers import ServerError, puts_in


@pytest.mark.parametrize(
    "values, q, expected",
    [
        ([5.0], 0.5, 5.0),
        ([3.0, 1.0, 2.0], 0.5, 2.0),
        ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0),
        ([float(n) for n in range(1, 101)], 0.99, 99.0),
        ([float(n) for n in range(1, 1001)], 0.99, 990.0),
        ([1.0, 2.0], 1.0, 2.0),
        ([1.0, 2.0], 0.0, 1.0),
    ],
)
def test_percentile_is_the_nearest_rank(values: list[float], q: float, expected: float) -> None:
    assert percentile(values, q) == expected


def test_percentile_of_nothing_and_of_a_wrong_share() -> None:
    assert math.isnan(percentile([], 0.5))
    with pytest.raises(ValueError, match="between 0 and 1"):
        percentile([1.0], 99)


def sample(count: int, *, in_time: int, wall: float, errors: dict[str, int] | None = None) -> Sample:
    return Sample(seconds=2.0, wall=wall, in_time=in_time, latencies=[0.01] * count, errors=errors or {})


def test_stragglers_count_with_the_time_they_took_and_are_left_out_of_the_window() -> None:
    late = sample(101, in_time=100, wall=10.0)
    assert (rate(late), window_rate(late)) == (10.1, 50.0)
    long = sample(8, in_time=0, wall=4.0)
    assert (rate(long), window_rate(long)) == (2.0, 0.0)


def test_the_median_round_is_shown_and_failures_of_every_round_count() -> None:
    def one(count: int, errors: dict[str, int]) -> Measure:
        return measure("x", "W1", 1, 1, sample(count, in_time=count, wall=2.0, errors=errors))

    found = median_of([one(30, {"a": 1}), one(10, {}), one(20, {"a": 1, "b": 1})])
    assert (found.per_second, found.rounds) == (10.0, [15.0, 5.0, 10.0])
    assert (found.commits, found.failed, found.errors) == (60, 3, {"a": 2, "b": 1})
    assert found.failed_percent == pytest.approx(100 * 3 / 63)


def test_commit_ids_are_fresh_canonical_uuid7_of_now() -> None:
    ids = commit_ids(random.Random(7), now=lambda: 1_700_000_000.123)
    made = [ids().decode() for _ in range(1000)]
    assert len(set(made)) == 1000
    for text in made:
        value = UUID(text)
        assert (str(value), value.version, value.int >> 80) == (text, 7, 1_700_000_000_123)
        assert value.variant == "specified in RFC 4122"


def test_every_request_is_whole_and_adds_files_of_its_own() -> None:
    source = request_source("/v1/tables/a.b/commits", 2, False, commit_ids(random.Random(1)))
    paths: set[str] = set()
    for _ in range(50):
        head, _, body = source().partition(b"\r\n\r\n")
        assert head.startswith(b"POST /v1/tables/a.b/commits HTTP/1.1\r\n")
        assert f"Content-Length: {len(body)}".encode() in head
        request = json.loads(body)
        adds = [action["add"] for action in request["actions"]]
        assert request["coalesce"] is False
        assert all(request["commitId"] in add["path"] and add["partitionValues"] for add in adds)
        paths |= {add["path"] for add in adds}
    assert len(paths) == 100
    assert 500 <= len(commit_body(1, True)) <= 1000


def test_an_answer_is_split_only_when_it_is_complete() -> None:
    whole = b"HTTP/1.1 201 Created\r\nServer: x\r\nContent-Length: 2\r\n\r\n{}"
    assert all(split_answer(whole[:cut]) is None for cut in range(len(whole)))
    assert split_answer(whole) == (201, b"{}")
    with pytest.raises(ValueError, match="Content-Length"):
        split_answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")


def test_failures_are_named_by_status_and_slug() -> None:
    assert problem_name(429, b'{"type":"https://x/problems/too-many-waiting"}') == "429 too-many-waiting"
    assert problem_name(500, b"<html>") == "500 unnamed"


def test_only_puts_are_counted() -> None:
    text = (
        'tarnlog_storage_requests_total{code="ok",op="put_if_absent"} 5.0\n'
        'tarnlog_storage_requests_total{code="exists",op="put_if_absent"} 1.0\n'
        'tarnlog_storage_requests_total{code="ok",op="put"} 2.0\n'
        'tarnlog_storage_requests_total{code="ok",op="get"} 40.0\n'
    )
    assert puts_in(text) == 8.0
    with pytest.raises(ServerError, match="tarnlog_storage_requests_total"):
        puts_in("something_else 1.0\n")


def test_waiting_for_the_disk_is_not_use() -> None:
    before = "cpu  100 0 50 1000 10 0 0 0 0 0\ncpu0 1 2 3\n"
    after = "cpu  120 0 60 1050 30 0 0 0 0 0\ncpu0 1 2 3\n"
    assert busy_between(before, after) == pytest.approx(0.3)
    assert busy_between(before, before) == 0.0


class LittleService:
    """Answers commits in batches of `batch` and writes the version files itself."""

    def __init__(self, log: Path, batch: int) -> None:
        self._log, self._batch = log, batch
        self._waiting: list[tuple[dict[str, Any], asyncio.Future[bytes]]] = []
        self._version = 0
        self.refuse_every = 0
        self._seen = 0
        self._write([{"protocol": {}}, {"metaData": {}}])

    def _write(self, lines: list[dict[str, Any]]) -> None:
        text = "\n".join(json.dumps(line) for line in lines).encode() + b"\n"
        form = (text, gzip.compress(text), b"\x01\x01" + gzip.compress(text))[self._version % 3]
        (self._log / f"{self._version:020d}.json").write_bytes(form)

    async def commit(self, request: dict[str, Any]) -> bytes:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if len(self._waiting) == self._batch:
            self.flush()
        return await answer

    def flush(self) -> None:
        batch, self._waiting = self._waiting, []
        self._version += 1
        subs = [{"commitId": request["commitId"], "seq": seq} for seq, (request, _) in enumerate(batch)]
        adds = [action for request, _ in batch for action in request["actions"]]
        self._write([{"commitInfo": {"subCommits": subs}}, *adds])
        for seq, (request, answer) in enumerate(batch):
            place = {"commitId": request["commitId"], "version": self._version, "seq": seq}
            answer.set_result(json.dumps({"outcome": "committed", **place}).encode())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"Content-Length: (\d+)", head)
                assert length is not None
                request = json.loads(await reader.readexactly(int(length[1])))
                self._seen += 1
                if self.refuse_every and self._seen % self.refuse_every == 0:
                    status, body = b"429 Too Many Requests", b'{"type":"x/too-many-waiting"}'
                else:
                    status, body = b"201 Created", await self.commit(request)
                writer.write(b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))
        except asyncio.IncompleteReadError:
            writer.close()


@asynccontextmanager
async def little_service(log: Path, batch: int) -> AsyncIterator[tuple[LittleService, int]]:
    service = LittleService(log, batch)
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    async with server:
        yield service, server.sockets[0].getsockname()[1]


def plan(port: int, **more: Any) -> Plan:
    return Plan(port=port, targets=["/c"], tables=["a.b"], seconds=30.0, seed=3, **more)


async def test_the_log_of_a_loaded_service_holds_what_was_acknowledged(tmp_path: Path) -> None:
    async with little_service(tmp_path, 4) as (_, port):
        done = await drive(plan(port, writers=4, limit=80, adds=3))
    found = check_log(tmp_path, done.acknowledged)
    assert (len(done.latencies), done.errors) == (80, {})
    assert (found.versions, found.sub_commits, found.adds) == (21, 80, 240)
    assert found.exact


async def test_refused_commits_are_failures_and_are_not_in_the_log(tmp_path: Path) -> None:
    async with little_service(tmp_path, 1) as (service, port):
        service.refuse_every = 5
        done = await drive(plan(port, writers=2, limit=20))
    assert done.errors == {"429 too-many-waiting": 4}
    assert len(done.latencies) == 16
    assert check_log(tmp_path, done.acknowledged).exact


def _lose(log: Path, told: list[Acknowledged]) -> None:
    told.append(Acknowledged("a.b", "never-written", 1, 0))


def _misplace(log: Path, told: list[Acknowledged]) -> None:
    told[0] = Acknowledged("a.b", told[0].commit_id, told[0].version + 1, told[0].seq)


def _repeat(log: Path, told: list[Acknowledged]) -> None:
    newest, path = version_files(log)[-1]
    (log / f"{newest + 1:020d}.json").write_bytes(path.read_bytes())


def _leave_a_gap(log: Path, told: list[Acknowledged]) -> None:
    newest, path = version_files(log)[-1]
    path.rename(log / f"{newest + 1:020d}.json")


def _truncate(log: Path, told: list[Acknowledged]) -> None:
    path = log / f"{2:020d}.json"  # compressed by the little service
    path.write_bytes(path.read_bytes()[:-12])


def _forget(log: Path, told: list[Acknowledged]) -> None:
    told.pop()


@pytest.mark.parametrize(
    "harm, fault",
    [
        (_lose, "lost"),
        (_misplace, "misplaced"),
        (_repeat, "repeated"),
        (_leave_a_gap, "gaps"),
        (_truncate, "unreadable"),
        (_forget, "unacknowledged"),
    ],
)
async def test_every_disagreement_is_found(
    tmp_path: Path, harm: Callable[[Path, list[Acknowledged]], None], fault: str
) -> None:
    async with little_service(tmp_path, 2) as (_, port):
        told = (await drive(plan(port, writers=2, limit=6))).acknowledged
    assert check_log(tmp_path, told).exact
    harm(tmp_path, told)
    found = check_log(tmp_path, told)
    assert getattr(found, fault)
    assert not found.exact
    assert found.sound is (fault == "unacknowledged")


def test_a_truncated_version_file_is_an_error_and_not_an_empty_one() -> None:
    with pytest.raises(EOFError):
        inflate(b"\x01\x01" + gzip.compress(b"{}" * 500)[:-12])


def test_a_page_keeps_what_others_wrote_in_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    write_section(page, "commit", "first")
    page.write_text(page.read_text() + "\nby hand\n")
    write_section(page, "plan", "other")
    write_section(page, "commit", markdown(Grid("T", ["a", "b"], [["x|y", "1"]])))
    text = page.read_text()
    assert "first" not in text
    assert all(part in text for part in ("# Benchmarks", "by hand", "other", "| x\\|y | 1 |", "|---|---:|"))
    assert text.count("<!-- commit: written by the benchmark -->") == 1
