"""The pieces of work of the plan benchmark: a table of many files behind a service, and the same files at the peers."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import sqlite3
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from bench.open_tables import BenchWorld, service
from bench.peer_runs import ROOT, PeerError, Postgres, python_of
from bench.peers.ducklake_plan import fill_statements
from bench.peers.rss import memory_mb
from bench.plan_layout import ROWS, Entry, entries, expected, filters, path_of, same_selection
from bench.progress import say
from bench.quiet import busy_share
from bench.samples import rate
from bench.servers import Service, load_tables, tarnlog
from tarnlog.protocol.commits import CommitRequest, Committed
from tarnlog.protocol.ids import TableName
from tarnlog.protocol.tables import CreateTable

NAME = TableName("bench", "plan")
BATCH = 50_000
WARM = 9
QUIET_SECONDS = 6.0
ARROW = "application/vnd.apache.arrow.stream"
KINDS = (("id", "long"), ("d", "date"), ("x", "long"))
SCHEMA = {
    "type": "struct",
    "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in KINDS],
}


class PlanSize(msgspec.Struct, frozen=True):
    """How far to go."""

    rounds: int
    files: int
    few: int
    """Files of the small table that the growth is measured against."""
    seconds: float
    """How long each commit race lasts."""


class Planned(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One plan of one system: the medians of cold processes and of repeated plans."""

    system: str
    plan: str
    files: int
    cold_ms: float
    warm_ms: float
    found: int | None
    memory_mb: float
    cold_rounds: list[float] = []


class Raced(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Commits a second with the index and without, round by round."""

    with_index: list[float]
    without: list[float]


class PlanBench:
    """Makes tables below a scratch folder and measures plans on them."""

    def __init__(self, scratch: Path, size: PlanSize) -> None:
        self._scratch = scratch
        self._size = size
        self.busy: list[float] = []

    def tarnlog(self) -> list[Planned]:
        """Every plan over HTTP, on the large table; and one that selects the same files on both sizes."""
        found = []
        for files in (self._size.few, self._size.files):
            folder = self._scratch / f"plan-{files}"
            say(f"making a table of {files:,} files")
            folder.mkdir()
            asyncio.run(build(folder, files))
            asked = {"same": same_selection()} | (filters(files) if files == self._size.files else {})
            with tarnlog(self._scratch, folder.name) as running:
                # What a restart finds in the index was put there by a service that had the table open.
                _plan(running, filters(files)["everything"])
                _settled(running)
                _index_filled(folder)
            for name, predicate in asked.items():
                found.append(self._measured(folder, files, name, predicate))
        return found

    def _measured(self, folder: Path, files: int, name: str, predicate: str | None) -> Planned:
        self.busy.append(busy_share())
        cold, warm, memory, found = [], [], [], 0
        for _ in range(self._size.rounds):
            with tarnlog(self._scratch, folder.name) as running:
                spent, found = _plan(running, predicate)
                cold.append(spent)
                _settled(running)
                _plan(running, predicate)
                warm.append(statistics.median(_plan(running, predicate)[0] for _ in range(WARM)))
                memory.append(memory_mb(str(running.pid)))
        wanted = expected(files, name)
        if found != wanted:
            raise RuntimeError(f"the plan {name!r} names {found} files where {wanted} can match")
        one = Planned(
            system="tarnlog",
            plan=name,
            files=files,
            cold_ms=statistics.median(cold),
            warm_ms=statistics.median(warm),
            found=found,
            memory_mb=statistics.median(memory),
            cold_rounds=[round(spent, 1) for spent in cold],
        )
        say(f"{files:,} files, {name}: cold {one.cold_ms:.0f} ms, warm {one.warm_ms:.1f} ms, {one.memory_mb:.0f} MB")
        return one

    def deltalake(self, versions: dict[str, str]) -> list[Planned]:
        """deltalake on the same files. Raises PeerError."""
        say("deltalake: planning")
        setting = {"folder": str(self._scratch), "files": self._size.files, "rounds": min(self._size.rounds, 3)}
        return self._peer("deltalake", "lake", "bench.peers.delta_plan", setting, versions)

    def ducklake(self, server: Postgres, versions: dict[str, str]) -> list[Planned]:
        """DuckLake on the same files, its catalog on PostgreSQL. Raises PeerError."""
        say("ducklake: planning")
        folder = self._scratch / "ducklake"
        folder.mkdir()
        server.fresh_database("bench")
        setting = {"socket": server.socket, "database": "bench", "folder": str(folder), "files": self._size.files}
        setting |= {"rounds": min(self._size.rounds, 2)}
        self._peer("ducklake", "duck", "bench.peers.ducklake_plan", setting | {"work": "build"}, versions)
        server.sql(fill_statements(self._size.files), "bench")
        return self._peer("ducklake", "duck", "bench.peers.ducklake_plan", setting | {"work": "plan"}, versions)

    def _peer(
        self, system: str, environment: str, module: str, setting: dict[str, Any], versions: dict[str, str]
    ) -> list[Planned]:
        command = [str(python_of(environment)), "-m", module, json.dumps(setting)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PeerError((done.stderr.strip().splitlines() or ["no message"])[-1])
        answer = json.loads(done.stdout.splitlines()[-1])
        versions.update(answer["versions"])
        return [
            Planned(
                system=system,
                plan=name,
                files=self._size.files,
                cold_ms=statistics.median(run["cold_ms"] for run in runs),
                warm_ms=statistics.median(statistics.median(run["warm_ms"]) for run in runs),
                found=runs[0]["found"],
                memory_mb=statistics.median(run["memory_mb"] for run in runs),
                cold_rounds=[round(run["cold_ms"], 1) for run in runs],
            )
            for name, runs in answer["plans"].items()
        ]

    def races(self) -> Raced:
        """32 writers on one table, with the index and without, in turn."""
        rates: dict[str, list[float]] = {"on": [], "off": []}
        for number in range(max(2, self._size.rounds)):
            for index in ("on", "off") if number % 2 == 0 else ("off", "on"):
                folder = self._scratch / f"race-{number}-{index}"
                folder.mkdir()
                env = {} if index == "on" else {"TARNLOG_DATABASE_URL": "off"}
                with tarnlog(folder, "warehouse", env=env) as running:
                    table = running.create("bench.race")
                    reached = rate(load_tables(running, [table], 32, self._size.seconds, folder))
                rates[index].append(reached)
                say(f"32 writers, index {index}: {reached:,.0f}/s")
        return Raced(with_index=rates["on"], without=rates["off"])


async def build(folder: Path, files: int, tags: dict[str, str] | None = None) -> None:
    """The table with an Avro state at its head; `tags` are those of its files."""
    replica = service(folder, BenchWorld())
    await replica.tables.create(CreateTable(name=str(NAME), schema=SCHEMA, partition_columns=("d",)))
    lines: list[dict[str, Any]] = []
    for entry in entries(files):
        lines.append({"add": _add(entry) | ({} if tags is None else {"tags": tags})})
        if len(lines) == BATCH or entry.number == files - 1:
            outcome = await replica.commits.commit(NAME, msgspec.convert({"actions": lines}, CommitRequest))
            if not isinstance(outcome, Committed):
                raise RuntimeError(f"the benchmark's own commit failed: {outcome}")
            lines = []
    await replica.checkpoints.checkpoint(NAME, "avro")
    await replica.close(1)


def _add(entry: Entry) -> dict[str, Any]:
    return {
        "path": path_of(entry),
        "partitionValues": {"d": entry.day},
        "size": 100_000 + entry.number,
        "modificationTime": 1_704_067_200_000 + entry.number,
        "dataChange": True,
        "numRecords": ROWS,
        "minValues": {"id": str(entry.number * ROWS), "x": str(entry.low)},
        "maxValues": {"id": str(entry.number * ROWS + ROWS - 1), "x": str(entry.high)},
    }


def _plan(running: Service, predicate: str | None) -> tuple[float, int]:
    """Milliseconds until the last byte of a plan was read into Arrow columns, and how many files it names."""
    body = json.dumps({} if predicate is None else {"filter": predicate})
    headers = {"Content-Type": "application/json", "Accept": ARROW}
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", running.port, timeout=300)) as connection:
        connection.connect()
        start = time.perf_counter()
        connection.request("POST", f"/v1/tables/{NAME}/plan", body, headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"the plan was answered {answer.status}: {answer.read(500)!r}")
        rows = pa.ipc.open_stream(answer).read_all().num_rows
        return (time.perf_counter() - start) * 1e3, rows


def _settled(running: Service) -> None:
    """Return when the table is open in full and what is written behind is written."""
    with _get(running, f"/v1/tables/{NAME}/files?limit=1") as answer:
        answer.read()
    calm = 0
    while calm < 3:
        calm = calm + 1 if _cpu_of(running.pid, 0.3) < 0.1 else 0


def _index_filled(folder: Path) -> None:
    """Return when no more decoded manifests come into the index: they are put slowly, so that nobody is disturbed."""
    found, since = -1, time.monotonic()
    while time.monotonic() - since < QUIET_SECONDS:
        with contextlib.closing(sqlite3.connect(folder / ".tarnlog" / "index.sqlite")) as index:
            (now,) = index.execute("SELECT count(*) FROM tarnlog_segments").fetchone()
        if now != found:
            found, since = now, time.monotonic()
        time.sleep(0.5)


@contextlib.contextmanager
def _get(running: Service, path: str) -> Iterator[http.client.HTTPResponse]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", running.port, timeout=300)) as connection:
        connection.request("GET", path)
        yield connection.getresponse()


def _cpu_of(pid: int, seconds: float) -> float:
    """The share of one core that a process uses."""

    def ticks() -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(seconds)
    return (ticks() - before) / 100 / seconds
