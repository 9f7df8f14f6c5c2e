"""Overwrites beside other commits, by the Table API and by the format: the same answers, at the same price.

The rival commits between the plan of what goes and the commit that says so, which is where conflicts come from. The
format's commit runs in this process, as Spark calls it in another one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from tarnlog import Client, Committed, Conflict
from tarnlog_spark import SchemaMismatch, Table, _committing, _landing, _planning, _sink, _writes
from tarnlog_spark._committing import removal
from tarnlog_spark._format_writers import table_writer
from tarnlog_spark._options import write_options
from tarnlog_spark._writes import Mode
from tests.service_process import ServiceProcess
from tests.spark.hand_made import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = "id long, day string"
WAYS = ("table", "format")
KINDS: dict[str, dict[str, Any]] = {
    "all": {},
    "dynamic": {"partitionOverwriteMode": "dynamic"},
    "where": {"replaceWhere": "day = 'a'"},
    "schema": {"overwriteSchema": "true"},
}


class Story:
    """One table of days a and b, and the two ways to write to it. What is not asked for itself goes without Spark."""

    def __init__(self, spark: SparkSession, client: Client, name: str) -> None:
        self.spark = spark
        self.client = client
        self.table = Table.create(spark, name, DDL, partition_by=["day"], url=client.url)
        self.write("format", rows((0, "a")), "append")
        self.write("format", rows((1, "b")), "append")

    def append(self, number: int, day: str) -> None:
        self.write("format", rows((number, day)), "append")

    def delete(self, day: str) -> None:
        gone = [removal(file) for file in self.client.files(self.table.name) if file.partition_values["day"] == day]
        self.client.commit(
            self.table.name, gone, read_version=self.client.snapshot(self.table.name).version, operation="DELETE"
        )

    def write(self, way: str, given: pa.Table, mode: Mode = "overwrite", **options: str) -> None:
        if way == "format":
            overwrite = mode == "overwrite"
            asked = write_options({"url": self.client.url, "path": self.table.name, **options}, overwrite=overwrite)
            writer = table_writer(asked, from_arrow_schema(given.schema), overwrite=overwrite)
            writer.commit([writer.write(iter(given.to_batches()))])
            return
        self.table.write(
            self.spark.createDataFrame(given).coalesce(1),
            mode,
            replace_where=options.get("replaceWhere"),
            partition_overwrite_mode=options.get("partitionOverwriteMode", "static"),
            overwrite_schema="overwriteSchema" in options,
        )

    @property
    def found(self) -> list[tuple[Any, ...]]:
        """What the table holds, in order."""
        folder = Path(self.client.get_table(self.table.name).location.removeprefix("file://"))
        files = [folder / unquote(file.path) for file in self.client.files(self.table.name)]
        read = [row for file in files for row in pq.ParquetFile(file).read(columns=["id", "day"]).to_pylist()]
        return sorted(((row["id"], row["day"]) for row in read), key=repr)


def rows(*given: tuple[Any, str]) -> pa.Table:
    return pa.table({"id": [row[0] for row in given], "day": [row[1] for row in given]})


@pytest.fixture
def story(spark: SparkSession, tarnlog_service: ServiceProcess, client: Client, name: str) -> Story:
    return Story(spark, client, name)


Interrupt = Callable[[Callable[[], Any]], list[str]]


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Interrupt:
    """Lets a rival commit right before the first commit of what follows is sent; tells what was sent."""

    def by(rival: Callable[[], Any]) -> list[str]:
        real, sent, coming = _committing.commit_job, list[str](), [rival]

        def late(client: Client, job: Any, actions: Any) -> Committed:
            if coming:
                coming.pop()()
                sent.clear()  # what the rival sent
            sent.append(job.operation)
            return real(client, job, actions)

        monkeypatch.setattr(_landing, "commit_job", late)
        monkeypatch.setattr(_writes, "commit_job", late)
        return sent

    return by


Between = Callable[[Callable[[], Any]], None]


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Between:
    """Lets a rival commit when the files are written, and nothing is planned yet."""

    def by(rival: Callable[[], Any]) -> None:
        real, coming = _landing.land, [rival]

        def late(*args: Any) -> Any:
            if coming:
                coming.pop()()
            return real(*args)

        monkeypatch.setattr(_writes, "land", late)
        monkeypatch.setattr(_sink, "land", late)

    return by


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "kind, rival, tries, expected",
    [
        # A blind append does not get in the way of anything, and comes after it; a schema leaves nothing over.
        ("all", ("append", "b"), 1, [(9, "a"), (5, "b")]),
        ("dynamic", ("append", "a"), 1, [(1, "b"), (5, "a"), (9, "a")]),
        ("where", ("append", "a"), 1, [(1, "b"), (5, "a"), (9, "a")]),
        # What goes has changed: it is planned anew.
        ("all", ("delete", "b"), 2, [(9, "a")]),
        ("dynamic", ("delete", "a"), 2, [(1, "b"), (9, "a")]),
        ("where", ("delete", "a"), 2, [(1, "b"), (9, "a")]),
        ("schema", ("delete", "b"), 2, [(9, "a")]),
        # Partitions that stay may change as they like.
        ("dynamic", ("delete", "b"), 1, [(9, "a")]),
        ("where", ("delete", "b"), 1, [(9, "a")]),
    ],
)
def test_a_commit_in_between(
    story: Story,
    interrupt: Interrupt,
    way: str,
    kind: str,
    rival: tuple[str, str],
    tries: int,
    expected: list[tuple[Any, ...]],
) -> None:
    what, day = rival
    sent = interrupt(lambda: story.append(5, day) if what == "append" else story.delete(day))
    story.write(way, rows((9, "a")), **KINDS[kind])
    assert sent == ["WRITE"] * tries
    assert story.found == sorted(expected, key=repr)
    assert story.client.sessions(story.table.name) == ()
    assert story.table.version == 4


@pytest.mark.parametrize("way", WAYS)
def test_a_schema_of_its_own_leaves_no_file_of_an_append_in_between(
    story: Story, interrupt: Interrupt, way: str
) -> None:
    sent = interrupt(lambda: story.append(5, "b"))
    story.write(way, rows(("nine", "a")), overwriteSchema="true")
    assert sent == ["WRITE"] * 2
    assert story.found == [("nine", "a")]


@pytest.mark.parametrize("way", WAYS)
def test_an_append_whose_columns_went_is_refused(story: Story, between: Between, way: str) -> None:
    """The table has columns of another kind when the rows arrive: they are not forced upon it."""
    text = rows(("nine", "a"))
    between(lambda: story.write("format", text, overwriteSchema="true"))
    with pytest.raises(SchemaMismatch) as error:
        story.write(way, rows((5, "b")), "append")
    assert list(error.value.columns) == ["id"]
    assert story.found == [("nine", "a")]


@pytest.mark.parametrize("way", WAYS)
def test_an_append_meets_a_new_column(story: Story, between: Between, way: str) -> None:
    more = rows((7, "b")).append_column("more", [[1]])
    between(lambda: story.write("format", more, "append", mergeSchema="true"))
    story.write(way, rows((5, "b")), "append")
    assert story.found == [(0, "a"), (1, "b"), (5, "b"), (7, "b")]


def test_a_table_that_was_made_anew_is_not_written_to(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files lie where the old one was."""
    real = _planning.plan_files

    def made_anew(client: Client, name: str, **how: Any) -> Any:
        client.drop_table(name)
        client.create_table(name, SCHEMA, partition_by=["day"])
        return real(client, name, **how)

    monkeypatch.setattr(_landing, "plan_files", made_anew)
    with pytest.raises(Conflict, match="created again"):
        story.write("table", rows((9, "a")))
    assert story.client.get_table(story.table.name).version == 0
