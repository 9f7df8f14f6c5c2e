"""The driver's half of a write through the format, on the service in memory: what is committed, what is deleted."""

from __future__ import annotations

import contextlib
import pickle
import time
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tarnlog import (
    Add,
    Client,
    Committed,
    CommitUnknown,
    Expired,
    InvalidRequest,
    Plan,
    Remove,
    Txn,
    Unavailable,
    Unknown,
)
from tarnlog.protocol.schema import parse_schema
from tarnlog.testing import FakeTarnlog
from tarnlog_server.codec.sql_filter import parse_sql_filter
from tarnlog_spark import _committing, _format_writers, _landing
from tarnlog_spark._errors import ConflictError, ConstraintError, SchemaMismatch
from tarnlog_spark._format_writers import FilesMessage, StreamWriter, query_id, stream_writer, table_writer
from tarnlog_spark._landing import is_done
from tarnlog_spark._options import Place, SinkOptions, WriteOptions
from tarnlog_spark._sink import Prepared, Wish, finish, prepare
from tarnlog_spark._writing import TARGET_BYTES, decode_message, write_batches

ROWS = StructType([StructField("id", LongType()), StructField("day", StringType())])


class Understanding(FakeTarnlog):
    """The fake with the service's reading of SQL predicates, which it leaves alone otherwise."""

    def plan(self, table: str, filter: Any = None, **at: Any) -> Plan:  # noqa: A002 (the API's word)
        tree = parse_sql_filter(filter, parse_schema(ROWS.jsonValue())) if isinstance(filter, str) else filter
        return super().plan(table, tree, **at)


class Sink:
    """One table of the fake, whose files are in a folder."""

    def __init__(self, folder: Path, partition_by: tuple[str, ...] = ("day",)) -> None:
        self.fake = Understanding()
        self.client = cast(Client, self.fake)
        self.folder = folder
        self.fake.create_table("a.t", ROWS.jsonValue(), partition_by=partition_by, location=folder.as_uri())

    def prepare(self, schema: StructType = ROWS, **wish: Any) -> Prepared:
        return prepare(self.client, Wish(place=Place(table="a.t"), **wish), schema)

    def files(self, prepared: Prepared, *rows: tuple[int, str | None]) -> list[Add]:
        """What the tasks of a write send."""
        columns = {"id": [row[0] for row in rows], "day": pa.array([row[1] for row in rows], pa.string())}
        return list(write_batches(prepared.task, pa.table(columns).to_batches()))

    def write(self, *rows: tuple[int, str | None], txn: Txn | None = None, **wish: Any) -> list[Add]:
        prepared = self.prepare(**wish)
        files = self.files(prepared, *rows)
        finish(self.client, prepared, files, txn)
        return files

    @property
    def schema(self) -> str:
        return self.fake.snapshot("a.t").meta_data.schema_string

    @property
    def live(self) -> set[str]:
        return {file.path for file in self.fake.files("a.t")}

    def on_disk(self, files: list[Add]) -> list[bool]:
        return [(self.folder / file.path).exists() for file in files]


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(tmp_path)


def paths(*files: Add) -> set[str]:
    return {file.path for file in files}


def test_which_files_each_kind_of_overwrite_replaces(sink: Sink) -> None:
    (a,), (b,), (none,) = sink.write((1, "a")), sink.write((2, "b")), sink.write((3, None))
    (other,) = sink.write((4, None), overwrite=True, dynamic_partitions=True)
    assert sink.live == paths(a, b, other)
    (new,) = sink.write((5, "b"), overwrite=True, replace_where="day >= 'b'")
    assert sink.live == paths(a, new, other)
    sink.write(overwrite=True, replace_where="day IS NULL")
    assert sink.live == paths(a, new)
    (last,) = sink.write((6, "z"), overwrite=True)
    assert sink.live == paths(last)
    sink.write(overwrite=True)
    assert sink.live == set()
    version = sink.fake.get_table("a.t").version
    sink.write()
    assert sink.fake.get_table("a.t").version == version, "nothing to say is no commit"
    assert none.path not in sink.live


def test_rows_outside_of_replace_where_commit_nothing(sink: Sink) -> None:
    (kept,) = sink.write((1, "a"))
    prepared = sink.prepare(overwrite=True, replace_where="day = 'a'")
    files = sink.files(prepared, (2, "a"), (3, "b"))
    with pytest.raises(ConstraintError, match="do not match replaceWhere"):
        finish(sink.client, prepared, files)
    assert sink.live == paths(kept)
    assert sink.on_disk(files) == [False, False]
    with pytest.raises(InvalidRequest, match=r"partition columns \(day\), not on id"):
        sink.prepare(overwrite=True, replace_where="id = 1")


def test_an_answer_that_comes_late_is_waited_for(sink: Sink) -> None:
    sink.fake.next_commit(Unknown)
    (file,) = sink.write((1, "a"))
    assert sink.live == paths(file)
    assert sink.fake.get_table("a.t").version == 1


def test_what_is_not_known_keeps_its_files(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Committed:
        raise CommitUnknown(Unknown(commit_id="c", retry_after=1))

    prepared = sink.prepare()
    files = sink.files(prepared, (1, "a"))
    monkeypatch.setattr(_landing, "commit_job", never)
    with pytest.raises(CommitUnknown):
        finish(sink.client, prepared, files)
    assert sink.on_disk(files) == [True]


def test_a_conflict_that_comes_again_and_again_takes_its_files_along(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody replaces the table between each plan and its commit."""
    sink.write((1, "a"))
    prepared = sink.prepare(overwrite=True)
    files = sink.files(prepared, (2, "a"))
    real, sent = _committing.commit_job, list[Any]()

    def beaten(client: Client, job: Any, actions: Any) -> Committed:
        sent.append(job)
        gone = [Remove(path=path, data_change=True) for path in sink.live]
        (new,) = sink.files(prepared, (len(sent) + 10, "a"))
        sink.fake.commit("a.t", [*gone, new], read_version=job.read_version, operation="RIVAL")
        return real(client, job, actions)

    monkeypatch.setattr(_landing, "commit_job", beaten)
    monkeypatch.setattr(_committing, "REBASES", 3)
    with pytest.raises(ConflictError):
        finish(sink.client, prepared, files)
    assert [job.read_version for job in sent] == [1, 2, 3], "each plan is of the newest version"
    assert len({job.commit_id for job in sent}) == 3
    assert sink.on_disk(files) == [False]


@pytest.mark.parametrize("batch", [0, 4])
def test_a_batch_that_comes_again_changes_nothing(sink: Sink, batch: int) -> None:
    (first,) = sink.write((1, "a"), txn=Txn(app_id="q", version=batch))
    assert is_done(sink.client, "a.t", ("q", batch))
    assert not is_done(sink.client, "a.t", ("q", batch + 1))
    again = sink.write((1, "a"), txn=Txn(app_id="q", version=batch))
    assert sink.live == paths(first)
    assert sink.on_disk([first, *again]) == [True, False]


def test_only_the_files_of_winning_attempts_are_committed(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark hands over one message a task; what other attempts wrote stays where it is, for vacuum."""
    monkeypatch.setattr(Place, "client", lambda self: contextlib.nullcontext(sink.fake))
    writer = table_writer(WriteOptions(place=Place(table="a.t")), ROWS, overwrite=False)
    batches = pa.table({"id": [1, 2], "day": ["a", "b"]}).to_batches()
    lost, won = writer.write(iter(batches)), writer.write(iter(batches))
    assert len(sink.fake.sessions("a.t")) == 1
    writer.commit([won, None])
    assert sink.live == {decode_message(text).path for text in won.adds}
    writer.abort([lost, won])
    assert sink.on_disk([decode_message(text) for text in (*lost.adds, *won.adds)]) == [True] * 4
    assert not sink.fake.sessions("a.t")


class Batch:
    """A batch of a stream as Spark carries it out: a writer that goes to the tasks, and another one that commits."""

    def __init__(self, sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Place, "client", lambda self: contextlib.nullcontext(sink.fake))
        self.options = SinkOptions(place=Place(table="a.t"), app_id="q")
        self._fake = sink.fake

    def sessions(self) -> int:
        return len(self._fake.sessions("a.t"))

    def writer(self) -> StreamWriter:
        return stream_writer(self.options, ROWS, overwrite=False)

    def written(self) -> FilesMessage:
        """What a task sends."""
        made = self.writer()
        sent = [pickle.loads(pickle.dumps(made)) for _ in range(2)]  # Spark sends it twice
        assert sent[0].session == sent[1].session
        message: FilesMessage = sent[0].write(iter(pa.table({"id": [1], "day": ["a"]}).to_batches()))
        return message


def test_a_batch_of_a_stream_has_a_session_until_its_commit_is_settled(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = Batch(sink, monkeypatch)
    message = batch.written()
    assert batch.sessions() == 1
    batch.writer().commit([message, batch.writer().write(iter([]))], 0)
    assert (batch.sessions(), len(sink.live)) == (0, 1)
    again = batch.written()
    batch.writer().commit([again], 0)  # it is there already
    assert (batch.sessions(), len(sink.live)) == (0, 1)

    message = batch.written()
    monkeypatch.setattr(_committing, "PATIENCE_SECONDS", 0)
    sink.fake.next_commit(Unknown)
    with pytest.raises(CommitUnknown):
        batch.writer().commit([message], 1)
    batch.writer().abort([message], 1)
    assert batch.sessions() == 1, "the commit may still land"
    batch.writer().commit([message], 1)
    assert (batch.sessions(), len(sink.live)) == (0, 2)


def test_a_batch_whose_tasks_failed_leaves_no_session(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch(sink, monkeypatch)
    batch.writer().abort([None, batch.written()], 0)
    batch.writer().abort([None, None], 0)
    assert batch.sessions() == 0


def test_a_batch_goes_on_without_a_session_that_cannot_be_had(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise Unavailable("the table has 1000 write sessions", slug="too-many-waiting")

    batch = Batch(sink, monkeypatch)
    monkeypatch.setattr(sink.fake, "begin_session", refused)
    batch.writer().commit([batch.written()], 0)
    assert len(sink.live) == 1


def test_a_batch_that_outlives_its_session_looks_for_its_files(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch(sink, monkeypatch)
    monkeypatch.setattr(_format_writers, "STREAM_SESSION_SECONDS", 1)
    whole, lost = batch.written(), batch.written()
    sink.folder.joinpath(decode_message(lost.adds[0]).path).unlink()
    time.sleep(1.1)
    batch.writer().commit([whole], 0)
    with pytest.raises(Expired, match="deleted 1 of its files"):
        batch.writer().commit([lost], 1)
    assert sink.live == {decode_message(whole.adds[0]).path}


def test_schemas(sink: Sink) -> None:
    wider = StructType([*ROWS.fields, StructField("x", StringType())])
    with pytest.raises(SchemaMismatch, match="x: the table has no such column"):
        sink.prepare(wider)
    with pytest.raises(SchemaMismatch, match="day: the table is partitioned by it"):
        sink.prepare(StructType([ROWS.fields[0]]), overwrite=True, overwrite_schema=True)
    assert sink.prepare(StructType([ROWS.fields[0]])).landing.schema_string == sink.schema, "absent is null"
    assert '"x"' in sink.prepare(wider, merge_schema=True).landing.schema_string
    with pytest.raises(InvalidRequest, match=r"is partitioned by \(day\)"):
        sink.prepare(partition_by=("id",))


@pytest.mark.parametrize("told, expected", [("100000", 100_000), ("0", TARGET_BYTES), ("1m", TARGET_BYTES)])
def test_the_size_of_files_is_the_tables(sink: Sink, told: str, expected: int) -> None:
    assert sink.prepare().task.target_bytes == TARGET_BYTES
    sink.fake.alter_table("a.t", set_properties={"targetFileSize": told})
    assert sink.prepare().task.target_bytes == expected


def test_the_query_id_comes_from_the_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "check point"
    folder.mkdir()
    (folder / "metadata").write_text('{"id":"0a1b"}')
    for spelling in (str(folder), folder.as_uri(), f"file:{folder}"):
        assert query_id(spelling, {}) == "0a1b"
    for wrong in (str(tmp_path), "hdfs://name/place"):
        with pytest.raises(InvalidRequest, match="txnAppId"):
            query_id(wrong, {})
    with pytest.raises(InvalidRequest, match="checkpointLocation"):
        query_id(None, {})
