"""The steps of the demonstration, each of which checks what it shows: a wrong count ends it with an error."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from tarnlog import Client, Ledger
from tarnlog_spark import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = "demo.orders"
SCHEMA = "id BIGINT, day DATE, customer STRING, amount DOUBLE"
DAYS = 4
BATCHES, ROWS = 6, 2000
"""What each of the two writers appends, and how many rows at a time."""
STREAMED_FILES, STREAMED_ROWS = 5, 400
FIRST_STREAMED = 1_000_000
"""Ids of streamed orders start here, so that nobody else makes them."""
FIRST_MERGED, MERGED_ROWS = 2_000_000, 400
"""Orders that the merge adds."""


class WrongCount(Exception):
    """What was read is not what was written: a bug, never a matter of luck."""


class Told(Struct, frozen=True):
    """What a step has to say: a line, and rows for a small table below it."""

    line: str
    below: tuple[tuple[str, str], ...] = ()


class Story:
    """One table and everything that happens to it."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self._spark = spark
        self._url = url
        self._folder = folder
        self._client = Client(url)
        self._table = Table.for_name(spark, TABLE, url=url)
        self._rows = 0
        self._before_merge = 0

    def close(self) -> None:
        self._client.close()

    def create(self) -> Told:
        """A table by day."""
        Table.create(self._spark, TABLE, SCHEMA, partition_by=["day"], url=self._url, description="Orders of a shop")
        return Told(f"{TABLE}, partitioned by day")

    def write_together(self) -> Told:
        """Two batch writers and a stream append to the table at the same time; nobody waits, nobody conflicts."""
        # Started from here: Spark looks for formats only in threads that it knows.
        stream = (
            self._spark.readStream.schema(SCHEMA)
            .option("maxFilesPerTrigger", 1)
            .json(str(self._incoming_files()))
            .writeStream.format("tarnlog")
            .option("url", self._url)
            .option("table", TABLE)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

        def append(writer: int) -> None:
            for batch in range(BATCHES):
                self._table.write(self._orders((writer * BATCHES + batch) * ROWS, ROWS))

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(append, range(2)))
        stream.awaitTermination()
        self._rows = 2 * BATCHES * ROWS + STREAMED_FILES * STREAMED_ROWS
        self._check(self._table.read().count(), self._rows, "rows after all writers")
        commits = sum(1 for one in self._client.history(TABLE) if one.operation in ("WRITE", "STREAMING UPDATE"))
        return Told(f"{commits} commits, {self._rows:,} rows, every one there once, no conflict")

    def optimize(self) -> Told:
        """Small files become large ones; one that cannot be read is skipped, stays listed, and rests for a day."""
        victim, path = self._some_file()
        sound = path.read_bytes()
        path.write_bytes(b"not Parquet any more" + sound[20:-8] + b"????????")
        try:
            done = self._table.optimize(cooldown_hours=24).execute_compaction()
            listed = {add.path for add in self._client.files(TABLE)}
        finally:
            path.write_bytes(sound)  # a copy is put back, as an operator would
        if list(done.skipped) != [victim] or victim not in listed:
            raise WrongCount(
                f"skipped {list(done.skipped)}, and {victim} is {'' if victim in listed else 'not '}listed"
            )
        self._check(self._table.read().count(), self._rows, "rows after the optimize")
        line = (
            f"{done.num_removed_files} files became {done.num_added_files}; 1 unreadable file skipped, and still listed"
        )
        return Told(line)

    def merge(self) -> Told:
        """Orders that are there get a new amount, others are added."""
        self._before_merge = self._table.version
        known, new = 500, MERGED_ROWS
        source = self._orders(0, known).unionByName(self._orders(FIRST_MERGED, new))
        source = source.withColumn("amount", source.amount + 1000.0)
        done = (
            self._table.merge(source, "target.id = source.id AND target.day = source.day")
            .when_matched_update({"amount": "source.amount"})
            .when_not_matched_insert_all()
            .execute()
        )
        self._rows += new
        self._check(self._table.read().count(), self._rows, "rows after the merge")
        self._check(self._table.read("amount >= 1000").count(), known + new, "rows with the new amount")
        return Told(f"{known} orders updated, {new} added, as version {done.version}")

    def travel(self) -> Told:
        """The table as it was."""
        before = self._table.read(version=self._before_merge)
        self._check(before.count(), self._rows - MERGED_ROWS, "rows before the merge")
        self._check(before.where("amount >= 1000").count(), 0, "merged amounts before the merge")
        kept = f"version {self._before_merge} still has its {self._rows - MERGED_ROWS:,} rows"
        return Told(f"{kept}, none of them merged")

    def plan(self) -> Told:
        """Which files a scan needs, and what left the others out."""
        wanted = f"day = DATE '2024-01-02' AND id >= {FIRST_MERGED}"
        plan = self._client.plan(TABLE, wanted)
        self._check(self._table.read(wanted).count(), MERGED_ROWS // DAYS, "rows that the filter selects")
        return Told(f"{len(plan.files)} of {plan.ledger.files_total} files are read", _funnel(plan.ledger))

    def vacuum(self) -> Told:
        """What could be deleted once nobody needs it; nothing is."""
        found = self._table.vacuum(dry_run=True)
        return Told(
            f"{found.orphaned_files_found} files are past their retention of {found.retention_hours:g} h (dry run)"
        )

    def history(self) -> Told:
        """Who did what."""
        kinds: dict[str, int] = {}
        for one in self._client.history(TABLE):
            kinds[one.operation or "?"] = kinds.get(one.operation or "?", 0) + 1
        rows = tuple((kind, f"{count}") for kind, count in sorted(kinds.items(), key=lambda item: -item[1]))
        return Told(f"version {self._table.version}, {sum(kinds.values())} commits", rows)

    def _orders(self, first: int, rows: int) -> DataFrame:
        return self._spark.range(first, first + rows).selectExpr(
            "id",
            f"date_add(DATE '2024-01-01', CAST(id % {DAYS} AS INT)) AS day",
            "concat('customer-', id % 97) AS customer",
            "CAST(id % 1000 AS DOUBLE) AS amount",
        )

    def _incoming_files(self) -> Path:
        """Files as another system would drop them, for the stream."""
        folder = self._folder / "incoming"
        folder.mkdir()
        for number in range(STREAMED_FILES):
            first = FIRST_STREAMED + number * STREAMED_ROWS
            lines = [
                {"id": id_, "day": f"2024-01-0{1 + id_ % DAYS}", "customer": "streamed", "amount": 1.0}
                for id_ in range(first, first + STREAMED_ROWS)
            ]
            (folder / f"{number}.json").write_text("\n".join(map(json.dumps, lines)))
        return folder

    def _some_file(self) -> tuple[str, Path]:
        """A data file of the table, as the log names it and as it lies on disk."""
        add = next(iter(self._client.files(TABLE)))
        root = self._client.get_table(TABLE).location
        base = Path(unquote(urlsplit(root).path)) if root.startswith("file:") else Path(root)
        return add.path, base / unquote(add.path)

    @staticmethod
    def _check(found: int, wanted: int, what: str) -> None:
        if found != wanted:
            raise WrongCount(f"{what}: {found:,} where {wanted:,} were written")


def _funnel(ledger: Ledger) -> tuple[tuple[str, str], ...]:
    return (
        ("files in the table", f"{ledger.files_total}"),
        ("left by the partition", f"{ledger.files_after_partition_pruning}"),
        ("left by statistics", f"{ledger.files_after_data_skipping}"),
        ("left by cooldowns", f"{ledger.files_after_cooldowns}"),
    )
