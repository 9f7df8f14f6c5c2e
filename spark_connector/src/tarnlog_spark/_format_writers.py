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
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tarnlog import Client, Expired, TarnlogError
from tarnlog.protocol.actions import Add, Txn
from tarnlog_spark._arrow_read import as_schema
from tarnlog_spark._errors import ConflictError
from tarnlog_spark._landing import is_done
from tarnlog_spark._options import Place, SinkOptions, WriteOptions, option_error
from tarnlog_spark._sink import Prepared, Wish, finish, prepare
from tarnlog_spark._storage import storage_at
from tarnlog_spark._writing import WriteTask, decode_message, encode_message, write_batches

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

SESSION_SECONDS = 24 * 3600
"""How long vacuum leaves the table alone for a batch write: nobody could extend it while the tasks run."""


class FilesMessage(WriterCommitMessage):
    """The files that one task wrote; Spark hands over those of winning attempts only."""

    def __init__(self, adds: Sequence[str]) -> None:
        self.adds = tuple(adds)


class TableWriter(DataSourceArrowWriter):
    """A batch write. Spark carries this very object to the tasks and to the commit."""

    def __init__(self, prepared: Prepared | None, place: Place, txn: tuple[str, int] | None, session: str) -> None:
        self.prepared = prepared  # None: the txn says that the rows are in the table already
        self.place = place
        self.txn = txn
        self.session = session
        self.begun = time.time()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesMessage:
        return FilesMessage([] if self.prepared is None else _written(self.prepared.task, iterator))

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
            try:
                finish(client, self.prepared, _files(messages), txn)
            except TarnlogError as error:
                if isinstance(error, ConflictError) or error.slug == "commit-invalid":
                    self._end_session(client)
                raise  # otherwise the session lasts on: a commit that is not settled may still need its files
            self._end_session(client)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        return

    def _end_session(self, client: Client) -> None:
        with contextlib.suppress(TarnlogError):  # it expires by itself
            client.end_session(self.place.table, self.session)


class StreamWriter(DataSourceStreamArrowWriter):
    """A stream's sink. Spark makes it anew for each batch, and once more for each commit.

    There is no write session: a batch is far shorter than the day for which vacuum leaves every new file alone.
    """

    def __init__(self, prepared: Prepared, place: Place, app_id: str) -> None:
        self.prepared = prepared
        self.place = place
        self.app_id = app_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesMessage:
        return FilesMessage(_written(self.prepared.task, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        with self.place.client() as client:
            finish(client, self.prepared, _files(messages), Txn(app_id=self.app_id, version=batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        return


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
