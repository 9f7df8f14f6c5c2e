"""Batch reads: a snapshot, or the changes of a range of versions.

Spark plans a DataFrame of such a source once and keeps that plan for all queries over it. So a DataFrame stays at the
version at which it was made, and filters that one query pushes must not leave out files that another one needs: they
are taken only where the option pushFilters says that there is no other. The option filter is part of the DataFrame.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition, IsNotNull, IsNull, Not
from pyspark.sql.types import DataType, StringType, StructType

from tarnlog.protocol.predicates import And, Predicate, to_builtins
from tarnlog_spark._changes import feed_files, feed_range
from tarnlog_spark._files import added
from tarnlog_spark._filters import predicate_of
from tarnlog_spark._options import ReadOptions
from tarnlog_spark._planning import plan_files
from tarnlog_spark._reading import partitions_of, read_partition, rows_matching
from tarnlog_spark._storage import Storage

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
        place, splits = self.options.place, self.options.splits
        with place.client() as client:
            storage = place.storage(client.get_table(place.table).location)
            if self.options.feed.changes:
                first, last = feed_range(client, place.table, self.options.feed)
                found = feed_files(client, place.table, first, last)
                return partitions_of(storage, (file for version in found for file in version.files), splits)
            return self._snapshot(client, storage)

    def _snapshot(self, client: Client, storage: Storage) -> Sequence[InputPartition]:
        table, version, timestamp = self.options.place.table, self.options.version, self.options.timestamp
        rows, parts = None, [] if self.predicate is None else [self.predicate]
        if self.options.filter is not None:
            # Refused here when it cannot be understood: it decides which rows there are.
            own = client.plan(table, self.options.filter, version=version, timestamp=timestamp)
            assert own.filter is not None
            version, timestamp = own.version, None
            rows = rows_matching(own.filter, client.snapshot(table, version=version).meta_data)
            parts.append(own.filter)
        asked = to_builtins(And(tuple(parts))) if parts else None
        plan = plan_files(client, table, filter=asked, version=version, timestamp=timestamp)
        return partitions_of(storage, map(added, plan.files), self.options.splits, rows)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self.schema, feed=self.options.feed.changes)


class FilteringReader(TableReader):
    """A reader that hands filters to the service. Spark refuses one that can while its pushdown is switched off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        self.predicate = predicate_of(comparable(filters, self.schema))
        return filters  # the plan leaves out files, never rows: Spark applies all of them


def comparable(filters: Iterable[Filter], schema: StructType) -> list[Filter]:
    """The filters without comparisons of text under a collation, which bounds cannot answer: Spark 4.3 pushes none
    of them. The schema is that of the read, which may give a column a collation that the table does not have."""
    collated = {field.name.lower() for field in schema.fields if _is_collated(field.dataType)}
    return [pushed for pushed in filters if not _compares(pushed, collated)]


def _is_collated(kind: DataType) -> bool:
    """Whether values of the type are text that does not compare by its bytes."""
    return isinstance(kind, StringType) and kind != StringType()


def _compares(pushed: Filter, columns: set[str]) -> bool:
    if isinstance(pushed, Not):
        return _compares(pushed.child, columns)
    if isinstance(pushed, IsNull | IsNotNull):
        return False
    attribute: tuple[str, ...] = getattr(pushed, "attribute", ())
    return bool(attribute) and attribute[0].lower() in columns


def asked_for_filters() -> bool:
    """Whether Spark is about to push filters.

    The switch spark.sql.python.filterPushdown.enabled does not reach this process; which of Spark's programs asks for
    the reader does. Where it cannot be told, nothing is pushed, which costs speed and never rows.
    """
    return any(frame.filename.endswith("data_source_pushdown_filters.py") for frame in inspect.stack(context=0))
