"""tarnlog's share of the Spark benchmark, in a process of its own: beside plain Parquet in one session, and alone.

`python -m bench.spark_child '{"work": "race", "url": ..., ...}'`; its last line is the answer. With the work "tables"
it answers the same commands as the peers do (bench.peers.spark_tables) until its stdin ends.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import msgspec

from bench.peers.spark_tables import SESSION, work
from bench.spark_data import ROWS_OF_A_SMALL_FILE, Sizes, rows, small_files
from tarnlog import Client
from tarnlog_spark import Table, session
from tarnlog_spark._options import Place
from tarnlog_spark._target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Ask = Callable[["DataFrame"], Any]


class Tarnlog:
    """The table format that this is about, with the same verbs as its peers."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self.spark = spark
        self._url = url
        self._tables: dict[str, Table] = {}

    def create(self, table: str) -> None:
        Table.create(self.spark, f"bench.{table}", "id BIGINT, x DOUBLE", url=self._url)

    def append(self, table: str, frame: DataFrame) -> None:
        self._table(table).write(frame)

    def read(self, table: str, where: str | None = None) -> DataFrame:
        return self._table(table).read(where)

    def rows(self, table: str) -> int:
        return self.read(table).count()

    def _table(self, table: str) -> Table:
        if table not in self._tables:
            self._tables[table] = Table.for_name(self.spark, f"bench.{table}", url=self._url)
        return self._tables[table]


class Waits(httpx.BaseTransport):
    """Adds up how long a client waits for the service."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._inner = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        start = time.perf_counter()
        answer = self._inner.handle_request(request)
        answer.read()
        self.seconds += time.perf_counter() - start
        return answer


class Race:
    """tarnlog and plain Parquet by turns, on the same files and the same rows."""

    def __init__(self, spark: SparkSession, url: str, folder: Path, sizes: Sizes) -> None:
        self._spark = spark
        self._url = url
        self._folder = folder
        self._sizes = sizes
        self._client = Client(url)

    def run(self) -> dict[str, Any]:
        found = {**self.scans(), **self.many_files(), **self.writes()}
        return {"raced": found, "overhead": self.overhead()}

    def scans(self) -> dict[str, Any]:
        """The native side reads the folder that the table's one write filled."""
        table = self._table("bench.scan")
        table.write(rows(self._spark, self._sizes.rows, self._sizes.files))
        place = self._place("bench.scan")
        low = self._sizes.rows // 3
        where = f"id >= {low} AND id < {low + self._sizes.rows // 1000}"
        asks: dict[str, tuple[str | None, Ask]] = {
            "scan": (None, lambda frame: frame.groupBy("k").sum("x").orderBy("k").collect()[:3]),
            "count": (None, lambda frame: frame.count()),
            "selective filter": (where, lambda frame: frame.selectExpr("count(*)", "sum(k)").collect()),
        }
        return {name: self._read_both(table, place, where, ask) for name, (where, ask) in asks.items()}

    def many_files(self) -> dict[str, Any]:
        """A range that one file in a thousand can hold, among very many files."""
        files = self._sizes.small_files
        place = small_files(self._client, "bench.many", files)
        low, width = files // 2 * ROWS_OF_A_SMALL_FILE, max(1, files // 1000) * ROWS_OF_A_SMALL_FILE
        where = f"id >= {low} AND id < {low + width}"
        found = self._read_both(
            self._table("bench.many"), str(place), where, lambda frame: frame.selectExpr("count(*)", "sum(x)").collect()
        )
        return {f"selective filter, {files:,} files": found}

    def writes(self) -> dict[str, Any]:
        """The same rows, each time into a new table, and each time into one that was written before."""
        frame = rows(self._spark, self._sizes.written, 8)
        found: dict[str, Any] = {}
        for kind, split in (("", []), ("partitioned ", ["p"])):
            found[f"{kind}write"] = self._write_both(frame, split)
            found[f"{kind}append"] = self._append_both(frame, split)
        return found

    def overhead(self) -> dict[str, float]:
        """A job from table to table: what of it went into planning the read, and into talk about the write."""
        waits = Waits()
        with Client(self._url, transport=waits) as client:
            source, sink = (
                Target(self._spark, Place(table=name, url=self._url), client) for name in ("bench.scan", "bench.job")
            )
            Table.create(self._spark, "bench.job", source.pin(files=False).schema, url=self._url)
            planned, committed, whole = [], [], []
            for _ in range(self._sizes.rounds + 1):
                start = time.perf_counter()
                rows = source.pin(filter="k < 500").rows()  # with the manifest, and Spark's look at it
                planned.append(time.perf_counter() - start)
                waits.seconds = 0.0
                Table(sink).write(rows.where("k < 500"))
                committed.append(waits.seconds)
                whole.append(time.perf_counter() - start)
        # The first job warms up what the others find ready.
        spent = {"plan": planned, "commit": committed, "job": whole}
        return {name: statistics.median(values[1:]) for name, values in spent.items()}

    def _table(self, name: str) -> Table:
        return Table.for_name(self._spark, name, url=self._url)

    def _place(self, name: str) -> str:
        (folder,) = {file.path.rpartition("/")[0] for file in self._client.files(name)}
        return f"{self._client.get_table(name).location}/{folder}"

    def _read_both(self, table: Table, place: str, where: str | None, ask: Ask) -> dict[str, list[float]]:
        def own() -> Any:
            return ask(table.read(where))

        def native() -> Any:
            frame = self._spark.read.parquet(place)
            return ask(frame if where is None else frame.where(where))

        if own() != native():
            raise RuntimeError("tarnlog and plain Parquet do not read the same")
        return self._by_turns(lambda _: own(), lambda _: native())

    def _write_both(self, frame: DataFrame, split: list[str]) -> dict[str, list[float]]:
        kind = "split" if split else "whole"

        def own(number: int) -> None:
            self._table(f"bench.{kind}{number}").write(frame, partition_by=split)

        def native(number: int) -> None:
            frame.write.partitionBy(*split).parquet(str(self._folder / f"{kind}{number}"))

        def clean(number: int) -> None:
            name = f"bench.{kind}{number}"
            if self._table(name).read().count() != self._sizes.written:
                raise RuntimeError(f"{name} does not hold what was written to it")
            self._client.drop_table(name, purge=True)
            shutil.rmtree(self._folder / f"{kind}{number}")

        own(0)
        native(0)
        clean(0)
        return self._by_turns(own, native, clean, self._sizes.write_rounds)

    def _append_both(self, frame: DataFrame, split: list[str]) -> dict[str, list[float]]:
        """Both sides grow alike; an append looks at nothing that is there, so its time does not."""
        kind = "grown_split" if split else "grown"
        name, folder = f"bench.{kind}", str(self._folder / kind)

        def own(_: int) -> None:
            self._table(name).write(frame)

        def native(_: int) -> None:
            frame.write.mode("append").partitionBy(*split).parquet(folder)

        def check(number: int) -> None:
            wanted = (number + 1) * self._sizes.written
            found = self._table(name).read().count(), self._spark.read.parquet(folder).count()
            if found != (wanted, wanted):
                raise RuntimeError(f"{name} and its folder hold {found} rows where {wanted} were written to each")

        self._table(name).write(frame, partition_by=split)
        native(0)
        check(0)
        found = self._by_turns(own, native, check, self._sizes.write_rounds)
        self._client.drop_table(name, purge=True)
        shutil.rmtree(folder)
        return found

    def _by_turns(
        self,
        own: Callable[[int], Any],
        native: Callable[[int], Any],
        after: Callable[[int], None] = lambda _: None,
        rounds: int | None = None,
    ) -> dict[str, list[float]]:
        """Both in every round, who goes first alternates: what the machine does meanwhile hits both alike.

        What `after` does is in nobody's time.
        """
        spent: dict[str, list[float]] = {"own": [], "native": []}
        both = {"own": own, "native": native}
        for number in range(1, (rounds or self._sizes.rounds) + 1):
            for side in sorted(both, reverse=number % 2 == 0):
                start = time.perf_counter()
                both[side](number)
                spent[side].append(time.perf_counter() - start)
            after(number)
        return spent


def main(setting: dict[str, Any]) -> int:
    if setting["work"] == "tables":
        return work(lambda: _tables(setting["url"]))
    spark, versions = _session()
    found = Race(spark, setting["url"], Path(setting["folder"]), msgspec.convert(setting["sizes"], Sizes)).run()
    print(json.dumps({**found, "versions": versions}))
    return 0


def _tables(url: str) -> tuple[Tarnlog, dict[str, str]]:
    spark, versions = _session()
    return Tarnlog(spark, url), versions


def _session() -> tuple[SparkSession, dict[str, str]]:
    spark = session("bench", conf=SESSION)
    spark.sparkContext.setLogLevel("OFF")
    return spark, {"tarnlog-spark": f"{version('tarnlog-spark')} on pyspark {spark.version}"}


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
