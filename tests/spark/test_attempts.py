"""Native writes when a task runs more than once at a time, as with `spark.speculation`.

A local Spark never speculates, and a cluster starts the second attempt on another machine, so the attempts are made
here: Spark's own commit protocol, set up as a native write sets it up, is driven through two attempts of one task that
both write whole files. Everything around that job is the real thing, up to the commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tarnlog import Client
from tarnlog_spark import Table, _staging
from tarnlog_spark._local_files import local_options
from tarnlog_spark._writing import WriteTask
from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNCOORDINATED = "spark.hadoop.outputCommitCoordination.enabled"


class Attempts:
    """A job of Spark's commit protocol into a folder, whose attempts are told what to do."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._jvm = cast(Any, spark)._jvm
        context = cast(Any, spark.sparkContext)
        hadoop = self._jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
        # As Spark does before it starts the job: confs of the session, then the writer's options.
        for key, value in {**_staging._CONFS, **local_options(spark)}.items():
            hadoop.set(key, value)
        hadoop.set("mapreduce.job.outputformat.class", "org.apache.parquet.hadoop.ParquetOutputFormat")
        hadoop.set("mapreduce.output.fileoutputformat.outputdir", folder.as_uri())
        committer = _staging._CONFS["spark.sql.parquet.output.committer.class"]
        hadoop.set("spark.sql.sources.outputCommitterClass", committer)
        self._hadoop = hadoop
        self._job = self._jvm.org.apache.hadoop.mapreduce.JobID("20240101", 0)
        protocol = getattr(self._jvm, _staging._CONFS["spark.sql.sources.commitProtocolClass"])
        self._protocol = protocol("job", folder.as_uri(), False)
        self._driver = self._context(0, 0)
        self._protocol.setupJob(self._driver)
        self._messages: list[Any] = []

    def write(self, task: int, attempt: int, *ids: int) -> Any:
        """One attempt of a task writes a whole file."""
        context = self._context(task, attempt)
        self._protocol.setupTask(context)
        spec = self._jvm.org.apache.spark.internal.io.FileNameSpec("", "-c000.snappy.parquet")
        place = self._protocol.newTaskTempFile(context, self._jvm.scala.Option.empty(), spec)
        path = Path(self._jvm.org.apache.hadoop.fs.Path(place).toUri().getPath())
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), path)
        return context

    def commit(self, context: Any) -> None:
        """The driver let this attempt win."""
        self._messages.append(self._protocol.commitTask(context))

    def abort(self, context: Any) -> None:
        self._protocol.abortTask(context)

    def end(self) -> None:
        """The job commits what its tasks sent."""
        messages = self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(self._messages_as_java()).toSeq()
        self._protocol.commitJob(self._driver, messages)

    def _messages_as_java(self) -> Any:
        listed = self._jvm.java.util.ArrayList()
        for message in self._messages:
            listed.add(message)
        return listed

    def _context(self, task: int, attempt: int) -> Any:
        mapreduce = self._jvm.org.apache.hadoop.mapreduce
        task_id = mapreduce.TaskID(self._job, mapreduce.TaskType.MAP, task)
        attempt_id = mapreduce.TaskAttemptID(task_id, attempt)
        return mapreduce.task.TaskAttemptContextImpl(self._hadoop, attempt_id)


Story = Callable[[Attempts], None]


def loser_is_told(job: Attempts) -> None:
    """The usual end: the slow attempt is killed, and clears up after itself."""
    slow, fast = job.write(0, 0, 1, 2), job.write(0, 1, 1, 2)
    job.commit(fast)
    job.abort(slow)
    job.commit(job.write(1, 0, 3))
    job.end()


def loser_dies(job: Attempts) -> None:
    """The machine of the slow attempt is lost: its whole file is left behind."""
    job.write(0, 0, 1, 2)
    job.commit(job.write(0, 1, 1, 2))
    job.commit(job.write(1, 0, 3))
    job.end()


def loser_writes_on(job: Attempts) -> None:
    """The slow attempt has not heard of the end of the job, and opens one more file."""
    job.commit(job.write(0, 1, 1, 2))
    job.commit(job.write(1, 0, 3))
    job.end()
    job.write(0, 0, 1, 2)


def both_commit(job: Attempts) -> None:
    """Two drivers of one mind: even then a task's files are there once."""
    slow, fast = job.write(0, 0, 1, 2), job.write(0, 1, 1, 2)
    job.commit(fast)
    job.commit(slow)
    job.commit(job.write(1, 0, 3))
    job.end()


def failed_and_done_again(job: Attempts) -> None:
    job.abort(job.write(1, 0, 3))
    job.commit(job.write(0, 0, 1, 2))
    job.commit(job.write(1, 1, 3))
    job.end()


@pytest.fixture
def uncoordinated(spark: SparkSession) -> Iterator[None]:
    """Which attempt may commit is the driver's decision, and here the test's."""
    conf = cast(Any, spark.sparkContext)._jsc.sc().conf()
    conf.set(UNCOORDINATED, "false")
    yield
    conf.remove(UNCOORDINATED)


def in_attempts(spark: SparkSession, story: Story) -> Callable[[Any, WriteTask, str, frozenset[str]], int]:
    """What takes the place of Spark's job: it writes the ids 1 to 3 by two tasks."""

    def run(rows: Any, task: WriteTask, folder: str, futile: frozenset[str]) -> int:
        story(Attempts(spark, Path(task.storage.path(folder))))
        return 3

    return run


@pytest.mark.usefixtures("uncoordinated")
@pytest.mark.parametrize("story", [loser_is_told, loser_dies, loser_writes_on, both_commit, failed_and_done_again])
def test_only_what_winners_wrote_is_committed(
    spark: SparkSession,
    tarnlog_service: ServiceProcess,
    client: Client,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    story: Story,
) -> None:
    table = Table.create(spark, name, "id long", url=tarnlog_service.url)
    monkeypatch.setattr(_staging, "_run", in_attempts(spark, story))
    result = table.write(spark.range(3), writer="native")
    assert (result.num_rows, result.num_files) == (3, 2)
    assert Counter(row.id for row in table.read().collect()) == Counter([1, 2, 3])
    folder = Path(client.get_table(name).location.removeprefix("file://"))
    named = [file.path for file in client.files(name)]
    lying = {path.relative_to(folder).as_posix() for path in folder.glob("write-*/*") if path.is_file()}
    assert lying == set(named), "nothing of a loser is where files of the table are"
