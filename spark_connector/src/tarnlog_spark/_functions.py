"""Read-only commands in SQL, as table functions: `SELECT * FROM tarnlog_history('sales.orders')`.

Tasks run them and may run them twice, so none of them changes anything.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from tarnlog import Client, CommitRecord, StateInfo
from tarnlog.arrow_files import adds_of
from tarnlog.protocol.actions import WIRE_NAMES, Action, Add, CommitInfo, MetaData, Protocol, Remove, Skip, Txn
from tarnlog_spark._action_columns import columns_of, ddl, values_of
from tarnlog_spark._service import ServiceClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.udtf import UserDefinedTableFunction

_LOG_NAMES: dict[tuple[type[Struct], str], str] = {(Txn, "version"): "txnVersion"}
_LOG_FIELDS = columns_of((Add, Remove, Skip, Txn, MetaData, Protocol, CommitInfo), _LOG_NAMES)
_FILES = columns_of((Add,))
_LOG = {"version": "bigint", "timestamp": "timestamp", "action": "string"}
_LOG |= {name: kind for name, kind in _LOG_FIELDS.items() if name not in _LOG}
_COOLDOWNS = {"path": "string", "retryAfter": "timestamp"}
_HISTORY = {**columns_of((CommitRecord,)), "timestamp": "timestamp"}
_SKIPS = {**columns_of((Skip,)), "skipTimestamp": "timestamp", "retryAfter": "timestamp"}


class _Function:
    """A function of one table; the subclasses that are registered know the service."""

    url: str | None = None
    api_key: str | None = None
    columns: dict[str, str]

    def _client(self) -> Client:
        return ServiceClient(self.url, api_key=self.api_key)

    @classmethod
    def _row(cls, value: Struct) -> tuple[Any, ...]:
        row = values_of(value, cls.columns)
        for name, kind in cls.columns.items():
            if kind == "timestamp" and isinstance(row[name], int):
                row[name] = _moment(row[name])
        return tuple(row.values())


class History(_Function):
    """tarnlog_history(table): one row a commit, newest first."""

    columns = _HISTORY

    def eval(self, table: str) -> Iterator[tuple[Any, ...]]:
        with self._client() as client:
            for record in client.history(table):
                yield self._row(record)


class State(_Function):
    """tarnlog_state(table): how the newest state of the table does, in one row."""

    columns = columns_of((StateInfo,))

    def eval(self, table: str) -> Iterator[tuple[Any, ...]]:
        with self._client() as client:
            yield self._row(client.state(table))


class Files(_Function):
    """tarnlog_files(table [, version]): the live files."""

    columns = _FILES

    def eval(self, table: str, version: int | None = None) -> Iterator[tuple[Any, ...]]:
        with self._client() as client:
            for file in client.files(table, version=version):
                yield self._row(file)


class Log(_Function):
    """tarnlog_log(table [, first [, last]]): one row an action, in the order of the log, a column a field.

    From the oldest version that is kept; a `first` before that is refused, for something would be missing.
    """

    columns = _LOG

    def eval(self, table: str, first: int | None = None, last: int | None = None) -> Iterator[tuple[Any, ...]]:
        with self._client() as client:
            head = client.snapshot(table).version
            if first is None:
                first = next((commit.version for commit in client.history(table, order="asc", page_size=1)), 0)
            for number in range(first, (head if last is None else min(last, head)) + 1):
                found = client.version(table, number)
                for action in found.actions:
                    yield self._action(action, number, found.timestamp)

    def _action(self, action: Action | CommitInfo, version: int, timestamp: int) -> tuple[Any, ...]:
        row = values_of(action, self.columns, _LOG_NAMES)
        row |= {"version": version, "timestamp": _moment(timestamp), "action": WIRE_NAMES[type(action)]}
        return tuple(row.values())


class Plan(_Function):
    """tarnlog_plan(table [, filter [, version]]): the files that a scan with this SQL predicate would read.

    One that the service does not understand is refused: it would leave out nothing, which is no plan of it.
    """

    columns = _FILES

    def eval(self, table: str, filter: str | None = None, version: int | None = None) -> Iterator[tuple[Any, ...]]:  # noqa: A002 (the API's word)
        with self._client() as client:
            found = client.plan_arrow(table, filter, version=version).files
            for file in (add for batch in found.to_batches() for add in adds_of(batch)):
                yield self._row(file)


class Skips(_Function):
    """tarnlog_skips(table): live files that an operation could not process."""

    columns = _SKIPS

    def eval(self, table: str) -> Iterator[tuple[Any, ...]]:
        with self._client() as client:
            yield from self.rows(client, table)

    @classmethod
    def rows(cls, client: Client, table: str) -> Iterator[tuple[Any, ...]]:
        """The rows by a given client; `Table.skips` has the same."""
        return map(cls._row, client.skips(table))


class Cooldowns(_Function):
    """tarnlog_cooldowns(table): files to be left alone, and until when."""

    columns = _COOLDOWNS

    def eval(self, table: str) -> Iterator[tuple[Any, ...]]:
        with self._client() as client:
            yield from self.rows(client, table)

    @classmethod
    def rows(cls, client: Client, table: str) -> Iterator[tuple[Any, ...]]:
        """The rows by a given client; `Table.cooldowns` has the same."""
        return ((path, _moment(retry_after)) for path, retry_after in client.cooldowns(table).items())


FUNCTIONS: dict[str, type[_Function]] = {
    "tarnlog_history": History,
    "tarnlog_state": State,
    "tarnlog_files": Files,
    "tarnlog_log": Log,
    "tarnlog_plan": Plan,
    "tarnlog_skips": Skips,
    "tarnlog_cooldowns": Cooldowns,
}


def register(spark: SparkSession, *, url: str | None = None, api_key: str | None = None) -> None:
    """Make the functions known to a session, classic or Connect.

    They ask the service at `url` with `api_key`, by default what TARNLOG_URL and TARNLOG_API_KEY say here: tasks need
    no environment of their own.
    """
    from pyspark.sql.functions import udtf

    service = {
        "url": url or os.environ.get("TARNLOG_URL"),
        "api_key": api_key or os.environ.get("TARNLOG_API_KEY"),
    }
    for name, kind in FUNCTIONS.items():
        bound = type(kind.__name__, (kind,), service)
        made = udtf(bound, returnType=ddl(kind.columns))
        spark.udtf.register(name, cast("UserDefinedTableFunction", made))


def _moment(milliseconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(milliseconds / 1000, tz=dt.UTC)
