"""The rows that versions added and removed, as one DataFrame by Spark's own reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)

from tarnlog.protocol.actions import Add
from tarnlog_spark._changes import feed_files, feed_range
from tarnlog_spark._files import DataFile
from tarnlog_spark._options import Feed
from tarnlog_spark._planning import Plan
from tarnlog_spark._reading import check_feed
from tarnlog_spark._reports import moment
from tarnlog_spark._spark_schema import quoted
from tarnlog_spark._target import Pinned, Target

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CHANGES = "_change_type string, _commit_version long, _commit_timestamp timestamp"


def changes(target: Target, first: int, last: int | None) -> DataFrame:
    """The change feed of versions first to last, in the newest schema. A file is read once, whatever happened to it."""
    asked = Feed(changes=True, starting_version=first, ending_version=last)
    first, last = feed_range(target.client, target.table, asked)
    found = [file for version in feed_files(target.client, target.table, first, last) for file in version.files]
    whole = target.pin(files=False)
    files = {file.path: _as_add(file) for file in found}
    plan = Plan(version=whole.version, meta_data=whole.meta_data, files=tuple(files.values()))
    pinned = Pinned(target, plan)
    check_feed(pinned.schema)
    place, row = pinned.place_names()
    rows = pinned.placed_rows(names=(place, row))
    told = [(pinned.storage.path(file.path), file.change, file.version, moment(file.timestamp)) for file in found]
    listed = target.spark.createDataFrame(told, f"{place} string, {_CHANGES}")
    names = [F.col(quoted(field.name)) for field in pinned.schema.fields]
    joined = rows.withColumn(place, _plain_place(F.col(place))).join(F.broadcast(listed), place)
    return joined.select(*names, "_change_type", "_commit_version", "_commit_timestamp")


def _as_add(file: DataFile) -> Add:
    return Add(
        path=file.path,
        partition_values=file.partition_values,
        size=file.size,
        modification_time=0,
        data_change=True,
    )


def _plain_place(column: Column) -> Column:
    """A file as `Storage.path` spells it, in Spark: its reader writes an encoded URI, in which a plus is a plus."""
    decoded = F.url_decode(F.replace(column, F.lit("+"), F.lit("%2B")))
    local = F.regexp_replace(decoded, "^file:/+", "/")
    return F.when(column.startswith("file:"), local).otherwise(
        F.when(column.rlike("^[a-z0-9]+://"), F.regexp_replace(decoded, "^[a-z0-9]+://", "")).otherwise(column)
    )
