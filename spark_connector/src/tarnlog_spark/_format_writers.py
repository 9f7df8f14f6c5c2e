"""Writers of the format: files in tasks, one commit in the driver. `abort` never deletes anything.

Spark calls `abort` with every message also when `commit` raised, in another process, so it cannot know whether the
commit is in the log: what no commit names is left to vacuum. `commit` itself deletes its files when the service said
that they are never needed.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs
from msgspec import Struct
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tarnlog import Expired, TarnlogError
from tarnlog.protocol.actions import Add, Txn
from tarnlog_spark._arrow_read import as_schema
from tarnlog_spark._errors import ConflictError
from tarnlog_spark._landing import is_done
from tarnlog_spark._options import Place, SinkOptions, WriteOptions, option_error
from tarnlog_spark._plain_errors import entry
from tarnlog_spark._sink import Prepared, Wish, finish, prepare
from tarnlog_spark._storage import storage_at
from tarnlog_spark._writing import WriteTask, decode_message, encode_message, write_batches

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from tarnlog import Client

SESSION_SECONDS = 24 * 3600
"""How long vacuum leaves the table alone for a batch write: nobody could extend it while the tasks run."""

STREAM_SESSION_SECONDS = 3600
"""The same for a batch of a stream. Shorter, for a query that dies in each batch leaves one behind each time."""


class Session(Struct, frozen=True):
    """A write session that was begun for one batch, and when, by this machine's clock."""

    id: str
    begun: float


class FilesMessage(WriterCommitMessage):
    """The files that one task wrote; Spark hands over those of winning attempts only."""

    def __init__(self, adds: Sequence[str], session: Session | None = None) -> None:
        self.adds = tuple(adds)
        self.session = session


class TableWriter(DataSourceArrowWriter):
    """A batch write. Spark carries this very object to the tasks and to the commit."""

    def __init__(self, prepared: Prepared | None, place: Place, txn: tuple[str, int] | None, session: str) -> None:
        self.prepared = prepared  # None: the txn says that the rows are in the table already
        self.place = place
        self.txn = txn
        self.session = session
        self.begun = time.time()

    @entry
    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesMessage:
        return FilesMessage([] if self.prepared is None else _written(self.prepared.task, iterator))

    @entry
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self.prepared is None:
            return
        with self.place.client() as client:
            if time.time() - self.begun >= SESSION_SECONDS:
                raise Expired(
                    f"The write to {self.place.table} took longer than its write session of {SESSION_SECONDS // 3600} "
                    "hours: its files may have been deleted. Write it in smaller parts.",
                    slug="session-expired",
                )
            txn = None if self.txn is None else Txn(app_id=self.txn[0], version=self.txn[1])
            with _ended(client, self.place.table, self.session):
                finish(client, self.prepared, _files(messages), txn)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        return


class StreamWriter(DataSourceStreamArrowWriter):
    """A stream's sink. Spark makes it anew for each batch, and once more for each commit.

    The one that goes to the tasks begins a write session, and their messages tell the one of the commit, which ends it.
    A batch that gets none is written without: vacuum leaves new files alone for a day unless somebody overrides that.
    """

    def __init__(self, prepared: Prepared, place: Place, app_id: str) -> None:
        self.prepared = prepared
        self.place = place
        self.app_id = app_id
        self.session: Session | None = None

    def __getstate__(self) -> dict[str, Any]:
        """On its way to the tasks. The writer of a commit goes nowhere, and Spark tells no other difference."""
        if self.session is None:
            begun = time.time()
            with contextlib.suppress(TarnlogError), self.place.client() as client:
                found = client.begin_session(self.place.table, ttl_seconds=STREAM_SESSION_SECONDS)
                self.session = Session(found.id, begun)
        return self.__dict__

    @entry
    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesMessage:
        return FilesMessage(_written(self.prepared.task, iterator), self.session)

    @entry
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        files, session = _files(messages), _session(messages)
        if session is not None and time.time() - session.begun >= STREAM_SESSION_SECONDS:
            _check_there(self.place.table, self.prepared.task, files)
        with self.place.client() as client, _ended(client, self.place.table, None if session is None else session.id):
            finish(client, self.prepared, files, Txn(app_id=self.app_id, version=batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        session = _session(messages)
        if session is None or None not in messages:
            return  # every task is done, so that a commit was sent: it may still need its files
        with contextlib.suppress(TarnlogError), self.place.client() as client:
            client.end_session(self.place.table, session.id)


@contextlib.contextmanager
def _ended(client: Client, table: str, session: str | None) -> Iterator[None]:
    """Ends a session with a commit that is settled. After any other failure it lasts on: the commit may still need its
    files."""
    try:
        yield
    except TarnlogError as error:
        if not isinstance(error, ConflictError) and error.slug != "commit-invalid":
            raise
        _end(client, table, session)
        raise
    _end(client, table, session)


def _end(client: Client, table: str, session: str | None) -> None:
    if session is not None:
        with contextlib.suppress(TarnlogError):  # it expires by itself
            client.end_session(table, session)


def _check_there(table: str, task: WriteTask, files: Sequence[Add]) -> None:
    """Expired when a vacuum took files of a batch that lasted longer than its session."""
    found = task.storage.filesystem.get_file_info([task.storage.path(file.path) for file in files])
    gone = [file.path for file, info in zip(files, found, strict=True) if info.type == pafs.FileType.NotFound]
    if gone:
        raise Expired(
            f"The batch took longer than its write session of {STREAM_SESSION_SECONDS // 60} minutes, and a vacuum of "
            f"{table} deleted {len(gone)} of its files ({gone[0]}): nothing was committed. Restart the query, which "
            "writes the batch again, with smaller batches.",
            slug="session-expired",
        )


def _session(messages: Sequence[WriterCommitMessage | None]) -> Session | None:
    return next((message.session for message in messages if isinstance(message, FilesMessage)), None)


def table_writer(options: WriteOptions, schema: StructType, *, overwrite: bool) -> TableWriter:
    """Begins a batch write: the table, the fit of the rows, the commit id, and the session against vacuum."""
    wish = Wish(
        place=options.place,
        overwrite=overwrite,
        merge_schema=options.merge_schema,
        overwrite_schema=options.overwrite_schema,
        replace_where=options.replace_where,
        dynamic_partitions=options.dynamic_partitions,
        partition_by=options.partition_by,
        parameters={"mode": "Overwrite" if overwrite else "Append"},
    )
    with options.place.client() as client:
        table = options.place.table
        if options.txn is not None and is_done(client, table, options.txn):
            return TableWriter(None, options.place, options.txn, "")
        prepared = prepare(client, wish, schema)
        session = client.begin_session(table, ttl_seconds=SESSION_SECONDS)
    return TableWriter(prepared, options.place, options.txn, session.id)


def stream_writer(options: SinkOptions, schema: StructType, *, overwrite: bool) -> StreamWriter:
    """One batch of a stream, or its commit."""
    app_id = options.app_id or query_id(options.checkpoint, options.place.s3)
    wish = Wish(
        place=options.place,
        overwrite=overwrite,
        merge_schema=options.merge_schema,
        partition_by=options.partition_by,
        operation="STREAMING UPDATE",
        parameters={"outputMode": "Complete" if overwrite else "Append", "queryId": app_id},
    )
    with options.place.client() as client:
        return StreamWriter(prepare(client, wish, schema), options.place, app_id)


def query_id(checkpoint: str | None, s3: Mapping[str, str]) -> str:
    """The id that a query keeps over restarts, from its checkpoint: with it a batch that comes again is known."""
    if not checkpoint:
        raise option_error(
            "The sink needs the option checkpointLocation, in whose metadata the query's id is, or the option "
            "txnAppId: a name that this query keeps and no other query of the table has."
        )
    try:
        place = storage_at(checkpoint, s3)
        with place.filesystem.open_input_file(place.path("metadata")) as file:
            found = json.loads(file.read())["id"]
    except (TarnlogError, OSError, ValueError, KeyError, TypeError) as error:
        raise option_error(
            f"The query's id could not be read from the checkpoint {checkpoint} ({error}): give the query a name with "
            "the option txnAppId, which it keeps and no other query of the table has."
        ) from None
    return str(found)


def _written(task: WriteTask, batches: Iterator[pa.RecordBatch]) -> list[str]:
    return [encode_message(add) for add in write_batches(task, as_schema(batches, task.schema()))]


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[Add]:
    return [decode_message(text) for message in messages if isinstance(message, FilesMessage) for text in message.adds]
