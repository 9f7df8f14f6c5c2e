"""Batch reads: a snapshot, or the changes of a range of versions.

A read without a version is planned anew by each query, on the newest version; versionAsOf makes it stand still.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tarnlog.protocol.predicates import Predicate, to_builtins
from tarnlog_spark._changes import feed_files, feed_range
from tarnlog_spark._files import DataFile, added
from tarnlog_spark._filters import predicate_of
from tarnlog_spark._options import ReadOptions
from tarnlog_spark._planning import plan_files
from tarnlog_spark._reading import partitions_of, read_partition

if TYPE_CHECKING:
    import pyarrow as pa

    from tarnlog import Client


class TableReader(DataSourceReader):
    """Plans in the driver, reads in tasks. The change feed takes no filters: Spark applies them to its rows."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.predicate: Predicate | None = None

    def partitions(self) -> Sequence[InputPartition]:
        place = self.options.place
        with place.client() as client:
            storage = place.storage(client.get_table(place.table).location)
            return partitions_of(storage, self._files(client), self.options.splits)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self.schema, feed=self.options.feed.changes)

    def _files(self, client: Client) -> Iterable[DataFile]:
        table, feed = self.options.place.table, self.options.feed
        if feed.changes:
            first, last = feed_range(client, table, feed)
            return (file for version in feed_files(client, table, first, last) for file in version.files)
        asked = None if self.predicate is None else to_builtins(self.predicate)
        plan = plan_files(client, table, filter=asked, version=self.options.version, timestamp=self.options.timestamp)
        return map(added, plan.files)


class FilteringReader(TableReader):
    """A reader that hands filters to the service. Spark refuses one that can while its pushdown is switched off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        self.predicate = predicate_of(filters)
        return filters  # the plan leaves out files, never rows: Spark applies all of them


def asked_for_filters() -> bool:
    """Whether Spark is about to push filters.

    The switch spark.sql.python.filterPushdown.enabled does not reach this process; which of Spark's programs asks for
    the reader does. Where it cannot be told, nothing is pushed, which costs speed and never rows.
    """
    return any(frame.filename.endswith("data_source_pushdown_filters.py") for frame in inspect.stack(context=0))
