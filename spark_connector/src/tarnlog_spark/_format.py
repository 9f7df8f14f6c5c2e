"""The format `tarnlog` of Spark's Python Data Source API: `spark.read.format("tarnlog").load("sales.orders")`.

Spark imports this module in a process for each step of a read or write, and in one that only looks for formats. So what
a direction needs is imported when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from tarnlog_spark._plain_errors import entry

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class TarnlogFormat(DataSource):
    """One table, in either direction, as a batch or a stream. Options: docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "tarnlog"

    @entry
    def schema(self) -> StructType:
        from tarnlog_spark._options import schema_options
        from tarnlog_spark._reading import table_schema

        found = schema_options(self.options)
        with found.place.client() as client:
            snapshot = client.snapshot(found.place.table, version=found.version, timestamp=found.timestamp)
        # Both are kept with the source: a batch stays at this version, and a stream whose schema was not given goes by
        # the table's and notices when it changes.
        self.follows_schema = not found.columns
        self.version = snapshot.version
        return table_schema(snapshot.meta_data, found.columns, feed=found.feed.changes)

    @entry
    def reader(self, schema: StructType) -> DataSourceReader:
        import msgspec

        from tarnlog_spark._batch_source import FilteringReader, TableReader, asked_for_filters
        from tarnlog_spark._options import read_options

        options = read_options(self.options)
        if options.timestamp is None and options.version is None and not options.feed.changes:
            options = msgspec.structs.replace(options, version=getattr(self, "version", None))
        kind = FilteringReader if options.push_filters and asked_for_filters() else TableReader
        return kind(options, schema)

    @entry
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        from tarnlog_spark._options import stream_options
        from tarnlog_spark._stream_source import TableStreamReader

        options = stream_options(self.options)
        return TableStreamReader(options, schema, follows_schema=getattr(self, "follows_schema", False))

    @entry
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tarnlog_spark._format_writers import table_writer
        from tarnlog_spark._options import write_options

        return table_writer(write_options(self.options, overwrite=overwrite), schema, overwrite=overwrite)

    @entry
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (Spark's name)
        from tarnlog_spark._format_writers import stream_writer
        from tarnlog_spark._options import sink_options

        return stream_writer(sink_options(self.options), schema, overwrite=overwrite)
