"""Streams that read a table: every option, every restart, exact rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tarnlog import Client
from tests.service_process import ServiceProcess
from tests.spark.hand_made import HandMade
from tests.spark.queries import finished

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class Stream:
    """A query from a table into memory that is started again and again on one checkpoint."""

    def __init__(self, spark: SparkSession, url: str, table: str, home: Path, **options: str) -> None:
        self.spark = spark
        self.options = {"url": url, **options}
        self.table = table
        self.home = home
        self.batches: list[list[int]] = []
        self.while_running: Callable[[int], None] | None = None

    def source(self) -> DataFrame:
        return self.spark.readStream.format("tarnlog").options(**self.options).load(self.table)

    def run(self, *, fail_after: int | None = None) -> list[list[int]]:
        """Read what is there now; the ids of each batch. `fail_after` ends it in the middle of that many batches."""
        seen: list[list[int]] = []

        def take(batch: DataFrame, number: int) -> None:
            if self.while_running is not None:
                self.while_running(number)
            seen.append(sorted(row.id for row in batch.select("id").collect()))
            if fail_after is not None and len(seen) > fail_after:
                seen.pop()
                raise RuntimeError("on purpose")

        def start() -> StreamingQuery:
            writer = self.source().writeStream.foreachBatch(take).option("checkpointLocation", str(self.home))
            return writer.trigger(availableNow=True).start()

        if fail_after is None:
            finished(start)
        else:
            with pytest.raises(Exception, match="on purpose"):
                finished(start)
        self.batches.extend(batch for batch in seen if batch)
        return [batch for batch in seen if batch]

    def fails(self) -> str:
        """Why it cannot go on."""
        with pytest.raises(Exception) as caught:
            self.run()
        return str(caught.value)


@pytest.fixture
def stream(spark: SparkSession, tarnlog_service: ServiceProcess, tmp_path: Path) -> Callable[..., Stream]:
    numbers: Iterator[int] = iter(range(100))

    def made(table: str, **options: str) -> Stream:
        return Stream(spark, tarnlog_service.url, table, tmp_path / f"checkpoint-{next(numbers)}", **options)

    return made


def test_the_table_as_it_is_then_what_comes(client: Client, name: str, stream: Callable[..., Stream]) -> None:
    table = HandMade(client, name)
    table.add([1, 2], [3])
    query = stream(name)
    assert query.run() == [[1, 2, 3]]
    assert query.run() == []
    table.add([4])
    table.add([5], [6])
    assert query.run() == [[4, 5, 6]]


def test_a_stream_that_fails_anywhere_reads_each_row_once(
    client: Client, name: str, stream: Callable[..., Stream]
) -> None:
    """Limits cut the snapshot and the versions; each run dies in its next batch, which the run after it repeats."""
    table = HandMade(client, name)
    table.add([1], [2], [3])
    query = stream(name, maxFilesPerTrigger="2")
    assert query.run(fail_after=0) == []  # the first batch is planned and not done: its start must not move
    table.add([4], [5], [6])
    table.add([7])
    taken = 0
    for _ in range(3):
        taken += len(query.run(fail_after=1))
    query.run()
    assert sorted(value for batch in query.batches for value in batch) == [1, 2, 3, 4, 5, 6, 7]
    assert taken == 3
    assert all(len(batch) <= 2 for batch in query.batches)


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"startingVersion": "0"}, [[1, 2, 3, 4]]),
        ({"startingVersion": "2"}, [[3, 4]]),
        ({"startingVersion": "latest"}, []),
        ({"maxBytesPerTrigger": "1"}, [[1], [2], [3], [4]]),
        ({"startingVersion": "1", "maxBytesPerTrigger": "1g", "maxFilesPerTrigger": "3"}, [[1, 2, 3], [4]]),
        ({"readChangeFeed": "true", "startingVersion": "1"}, [[1, 2, 3, 4]]),
    ],
)
def test_where_it_starts_and_how_much_it_takes(
    client: Client, name: str, stream: Callable[..., Stream], options: dict[str, str], expected: list[list[int]]
) -> None:
    table = HandMade(client, name)
    table.add([1], [2])
    table.add([3], [4])
    query = stream(name, **options)
    found = query.run()
    if "maxBytesPerTrigger" in options and "startingVersion" not in options:
        found.sort()  # the snapshot comes in the order of its paths
    assert found == expected
    table.add([9])
    assert query.run() == [[9]]


def test_it_starts_at_a_time(client: Client, name: str, stream: Callable[..., Stream]) -> None:
    table = HandMade(client, name)
    table.add([1])
    moment = table.add([2]).timestamp
    assert stream(name, startingTimestamp=str(moment)).run() == [[2]]
    assert stream(name, startingTimestamp=str(moment - 1)).run()[-1][-1] == 2
    assert stream(name, startingTimestamp="2001-01-01").run() == [[1, 2]]
    assert "startingVersion latest" in stream(name, startingTimestamp="2199-01-01T00:00:00Z").fails()


def test_compaction_is_no_news_and_deletes_are_said(client: Client, name: str, stream: Callable[..., Stream]) -> None:
    """One query without and one with an option; `test_changes` has the rules of all."""
    table = HandMade(client, name)
    one, two = table.file([1]), table.file([2])
    table.commit(one, two)
    both = table.file([1, 2], data_change=False)
    table.remove(one, two, data_change=False, adds=[both], operation="OPTIMIZE")
    plain, skipping = stream(name, startingVersion="0"), stream(name, startingVersion="0", skipChangeCommits="true")
    assert plain.run() == skipping.run() == [[1, 2]]
    table.remove(both, adds=[table.file([1, 20])], operation="UPDATE")
    table.add([4])
    assert "rewrote rows" in plain.fails()
    assert skipping.run() == [[4]]
    feed = stream(name, startingVersion="4", readChangeFeed="true")
    assert feed.run() == [[4]]


def test_a_new_column_stops_it_and_a_restart_takes_it(client: Client, name: str, stream: Callable[..., Stream]) -> None:
    table = HandMade(client, name)
    table.add([1])
    query, narrow = stream(name), stream(name, columns="id")
    assert query.run() == narrow.run() == [[1]]
    source = query.source()  # its schema is taken here
    schema = client.get_table(name).schema
    wider = {
        **schema,
        "fields": [*schema["fields"], {"name": "x", "type": "integer", "nullable": True, "metadata": {}}],
    }
    client.alter_table(name, schema=wider)
    table.commit(table.parquet(pa.table({"id": [2], "day": ["b"], "x": pa.array([7], pa.int32())})))
    query.source = lambda: source  # type: ignore[method-assign]
    assert "column x is new" in query.fails()
    del query.source
    assert query.run() == narrow.run() == [[2]]


@pytest.mark.parametrize("feed", ["false", "true"])
def test_a_column_that_is_gone_stops_it_and_a_restart_does_without(
    client: Client, name: str, spark: SparkSession, stream: Callable[..., Stream], feed: str
) -> None:
    """Its rows would come with nulls there, as if somebody had written them."""
    table = HandMade(client, name)
    table.add([1])
    more = {"skipChangeCommits": "true"} if feed == "false" else {"startingVersion": "1"}
    query, narrow = stream(name, readChangeFeed=feed, **more), stream(name, columns="id", skipChangeCommits="true")
    assert query.run() == narrow.run() == [[1]]
    source = query.source()  # its schema is taken here
    table.add([2])
    rows = spark.createDataFrame([(3,)], "id long")
    rows.write.format("tarnlog").mode("overwrite").option("url", client.url).option("overwriteSchema", "true").save(
        name
    )
    table.commit(table.parquet(pa.table({"id": [4]})))
    query.source = lambda: source  # type: ignore[method-assign]
    assert "it has no column day any more" in query.fails()
    assert query.batches == [[1]]
    del query.source
    query.run()
    assert sorted(value for batch in query.batches for value in batch) == (
        [1, 2, 4] if feed == "false" else [1, 1, 2, 2, 3, 4]
    )
    assert narrow.run() == [[2, 4]]


def test_a_start_that_is_not_there_yet_is_refused(client: Client, name: str, stream: Callable[..., Stream]) -> None:
    """As the change feed of a batch does; the version that comes next is a start."""
    table = HandMade(client, name)
    table.add([1])
    for feed in ("false", "true"):
        told = stream(name, startingVersion="3", readChangeFeed=feed).fails()
        assert f"startingVersion 3 is not there yet: the newest version of {name} is 1" in told
    following = stream(name, startingVersion="2")
    assert following.run() == []
    table.add([2])
    assert following.run() == [[2]]


def test_available_now_ends_at_the_head_it_began_with(client: Client, name: str, stream: Callable[..., Stream]) -> None:
    """Somebody commits in every batch: without an end of its own it would go on for ever."""
    table = HandMade(client, name)
    table.add([1], [2])
    table.add([3])
    query = stream(name, maxFilesPerTrigger="1")
    written: list[int] = []

    def write_one(_: int) -> None:
        written.append(100 + len(written))
        assert len(written) < 20, "it follows the head"
        table.add([written[-1]])

    query.while_running = write_one
    assert sorted(query.run()) == [[1], [2], [3]]
    during, query.while_running = list(written), None
    assert len(during) == 3
    assert [value for batch in query.run() for value in batch] == during


def test_a_table_of_the_same_name_is_another_table(client: Client, name: str, stream: Callable[..., Stream]) -> None:
    HandMade(client, name).add([1])
    query = stream(name)
    assert query.run() == [[1]]
    client.drop_table(name)
    HandMade(client, name).add([1])
    assert "dropped and created again" in query.fails()


def test_a_log_that_was_cleaned_past_the_offset(client: Client, name: str, stream: Callable[..., Stream]) -> None:
    table = HandMade(client, name)
    table.add([1])
    query = stream(name)
    assert query.run() == [[1]]
    for value in (2, 3):
        table.add([value])
    assert table.cleaned(4) == 3
    assert "no longer in the log" in query.fails()
    assert stream(name).run() == [[1, 2, 3, 4]]
