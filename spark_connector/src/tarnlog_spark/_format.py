"""The format `tarnlog` of Spark's Python Data Source API: `spark.read.format("tarnlog").load("sales.orders")`."""

from __future__ import annotations

import msgspec
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tarnlog_spark import _options
from tarnlog_spark._batch_source import FilteringReader, TableReader, asked_for_filters
from tarnlog_spark._format_writers import stream_writer, table_writer
from tarnlog_spark._reading import table_schema
from tarnlog_spark._stream_source import TableStreamReader


class TarnlogFormat(DataSource):
    """One table, in either direction, as a batch or a stream. Options: docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "tarnlog"

    def schema(self) -> StructType:
        found = _options.schema_options(self.options)
        with found.place.client() as client:
            snapshot = client.snapshot(found.place.table, version=found.version, timestamp=found.timestamp)
        # Both are kept with the source: a batch stays at this version, and a stream whose schema was not given goes by
        # the table's and notices when it changes.
        self.follows_schema = not found.columns
        self.version = snapshot.version
        return table_schema(snapshot.meta_data, found.columns, feed=found.feed.changes)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = _options.read_options(self.options)
        if options.timestamp is None and options.version is None and not options.feed.changes:
            options = msgspec.structs.replace(options, version=getattr(self, "version", None))
        kind = FilteringReader if options.push_filters and asked_for_filters() else TableReader
        return kind(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        options = _options.stream_options(self.options)
        return TableStreamReader(options, schema, follows_schema=getattr(self, "follows_schema", False))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return table_writer(_options.write_options(self.options, overwrite=overwrite), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (Spark's name)
        return stream_writer(_options.sink_options(self.options), schema, overwrite=overwrite)
