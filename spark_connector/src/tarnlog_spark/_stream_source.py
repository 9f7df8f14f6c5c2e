"""A stream that reads a table: first as it is, then what each version adds. Offsets: `_offsets`.

Lives in one process of the driver for as long as the query runs; only `read` runs in tasks, on a copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tarnlog import Expired, InvalidRequest, TableInfo
from tarnlog_spark._changes import VersionFiles, cleaned, feed_files, new_files, version_from
from tarnlog_spark._files import DataFile, added
from tarnlog_spark._offsets import NOTHING_YET, Limit, Offset, batch_end, files_between, offset_from
from tarnlog_spark._options import LATEST, StreamOptions, option_error
from tarnlog_spark._plain_errors import entry, plain_errors
from tarnlog_spark._reading import CHANGE_FIELDS, partitions_of, read_partition
from tarnlog_spark._spark_schema import strings_for_chars

if TYPE_CHECKING:
    import pyarrow as pa

    from tarnlog import Client


class TableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`follows_schema` says that the query took the table's schema as it was, and must restart when it changes."""

    def __init__(self, options: StreamOptions, schema: StructType, *, follows_schema: bool) -> None:
        self.options = options
        self.schema = schema
        self.follows_schema = follows_schema
        self._client: Client | None = None
        self._target: int | None = None
        self._snapshot: tuple[int, Sequence[DataFile]] | None = None

    # Offsets

    @entry
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        feed = self.options.feed
        table = self._table()
        if feed.starting_timestamp is not None:
            first = version_from(self._api, self.options.place.table, feed.starting_timestamp)
            return Offset(version=first - 1, table=table.id).to_json()
        if feed.starting_version is None:
            return Offset(version=NOTHING_YET, table=table.id, start="snapshot").to_json()
        if feed.starting_version == LATEST:
            return Offset(version=NOTHING_YET, table=table.id, start="latest").to_json()
        if feed.starting_version > table.version + 1:
            raise option_error(
                f"startingVersion {feed.starting_version} is not there yet: the newest version of {table.name} is "
                f"{table.version}. Use startingVersion latest to read what comes from now on."
            )
        return Offset(version=feed.starting_version - 1, table=table.id).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        if self.options.max_files is not None:
            return ReadMaxFiles(self.options.max_files)
        return ReadMaxBytes(self.options.max_bytes) if self.options.max_bytes is not None else ReadAllAvailable()

    @entry
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        self._target = self._table().version

    @entry
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        table = self._table()
        here = self._checked(start, table)
        head = table.version if self._target is None else min(self._target, table.version)
        if self.follows_schema:
            self._check_schema(table)
        end = batch_end(here, head, self._limit(limit), self._files_at, self._versions)
        return end.to_json()

    def _limit(self, asked: ReadLimit) -> Limit:
        """Spark's own limit; a query with both options keeps both, of which Spark can carry only one."""
        if isinstance(asked, ReadAllAvailable):
            return Limit()
        return Limit(self.options.max_files, self.options.max_bytes)

    # Files

    @entry
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        table = self._table()
        first, last = self._checked(start, table), self._checked(end, table)
        files = files_between(first, last, self._files_at, self._versions)
        return partitions_of(self.options.place.storage(table.location), files, self.options.splits)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with plain_errors():
            yield from read_partition(partition, self.schema, feed=self.options.feed.changes)

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _files_at(self, version: int) -> Sequence[DataFile]:
        """The snapshot that the stream starts from, by path; kept, because every batch of it asks again."""
        if self._snapshot is None or self._snapshot[0] != version:
            table = self.options.place.table
            try:
                moment = self._api.snapshot(table, version=version).timestamp
                found = self._api.files(table, version=version)
                files = [added(file, version=version, timestamp=moment) for file in found]
            except Expired as error:
                raise cleaned(table, version, error) from None
            self._snapshot = version, sorted(files, key=lambda file: file.path)
        return self._snapshot[1]

    def _versions(self, first: int, last: int) -> Iterator[VersionFiles]:
        table = self.options.place.table
        if self.options.feed.changes:
            return feed_files(self._api, table, first, last)
        return new_files(self._api, table, first, last, self.options)

    # The table

    @property
    def _api(self) -> Client:
        if self._client is None:
            self._client = self.options.place.client()
        return self._client

    def _table(self) -> TableInfo:
        return self._api.get_table(self.options.place.table)

    def _checked(self, document: dict[str, Any], table: TableInfo) -> Offset:
        offset = offset_from(document)
        if offset.table and offset.table != table.id:
            raise InvalidRequest(
                f"The checkpoint belongs to another table that was named {table.name} before: it was dropped and "
                "created again. Start the query with a new checkpoint.",
                slug="stream-table-replaced",
            )
        return offset

    def _check_schema(self, table: TableInfo) -> None:
        """Rows of a schema that the query does not know would lose columns, or get nulls, without a word."""
        known = {field.name: field.dataType.simpleString() for field in self.schema.fields}
        told = {field.name for field in CHANGE_FIELDS} if self.options.feed.changes else set()
        for field in strings_for_chars(StructType.fromJson(table.schema)).fields:
            if known.pop(field.name, None) != field.dataType.simpleString():
                kind = field.dataType.simpleString()
                raise _schema_changed(table, f"column {field.name} is new or of another type ({kind})")
        if gone := [name for name in known if name not in told]:
            raise _schema_changed(table, f"it has no column {gone[0]} any more")


def _schema_changed(table: TableInfo, how: str) -> InvalidRequest:
    return InvalidRequest(
        f"The schema of {table.name} changed: {how}. Restart the query: it takes the new schema and goes on where it "
        "stopped.",
        slug="stream-schema-changed",
    )
