"""What the service says about a table, as small DataFrames."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from typing import TYPE_CHECKING, Any

from tarnlog_spark._action_columns import ddl
from tarnlog_spark._functions import Cooldowns, Skips
from tarnlog_spark._target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HISTORY = (
    "version long, seq int, timestamp timestamp, operation string, operationParameters map<string,string>, "
    "operationMetrics map<string,string>, commitId string, isBlindAppend boolean, committedBy string"
)
DETAIL = (
    "name string, id string, location string, version long, partitionColumns array<string>, numFiles long, "
    "sizeInBytes long, numRecords long, properties map<string,string>, description string, createdAt timestamp"
)


def history(target: Target, limit: int | None) -> DataFrame:
    """A row for each commit, newest first; several commits may share a version."""
    commits = itertools.islice(target.client.history(target.table), limit)
    rows = [
        (
            commit.version,
            commit.seq,
            moment(commit.timestamp),
            commit.operation,
            texts(commit.operation_parameters),
            texts(commit.operation_metrics),
            commit.commit_id,
            commit.is_blind_append,
            commit.committed_by,
        )
        for commit in commits
    ]
    return target.spark.createDataFrame(rows, HISTORY)


def detail(target: Target) -> DataFrame:
    """One row."""
    info = target.client.get_table(target.table)
    row = (
        info.name,
        info.id,
        info.location,
        info.version,
        list(info.partition_columns),
        info.num_files,
        info.total_bytes,
        info.num_records,
        info.properties,
        info.description,
        moment(info.created_time),
    )
    return target.spark.createDataFrame([row], DETAIL)


def skips(target: Target) -> DataFrame:
    """A row for each record of a live file that could not be processed."""
    rows = list(Skips.rows(target.client, target.table))
    return target.spark.createDataFrame(rows, ddl(Skips.columns))


def cooldowns(target: Target) -> DataFrame:
    """A row for each file that is left out for now."""
    rows = list(Cooldowns.rows(target.client, target.table))
    return target.spark.createDataFrame(rows, ddl(Cooldowns.columns))


def moment(millis: int | None) -> dt.datetime | None:
    """A time of the service as Spark takes it."""
    return None if millis is None else dt.datetime.fromtimestamp(millis / 1000, dt.UTC)


def texts(values: dict[str, Any]) -> dict[str, str]:
    """Free-form values as text: a map column has one type."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
