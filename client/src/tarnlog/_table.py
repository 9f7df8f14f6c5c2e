"""Rows of a table without Spark: exactly the planned files are read, then the filter is applied to their rows.

    client.table("sales.orders").to_pandas("day = '2024-01-01' AND amount > 10", columns=["id", "amount"])

What each method needs beside pyarrow comes with the extra of its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tarnlog._errors import InvalidRequest
from tarnlog._extras import needed
from tarnlog.protocol.schema import Schema, SchemaError, parse_schema_string

if TYPE_CHECKING:
    from tarnlog._api import TableApi
    from tarnlog._plans import Filter
    from tarnlog._wire import Timestamp

PARALLEL_FILES = 8


class Table:
    """A table that can be read. Costs nothing until something is read; `api` stays open for as long."""

    def __init__(self, api: TableApi, name: str) -> None:
        self._api = api
        self.name = name

    def __repr__(self) -> str:
        return f"Table({self.name!r})"

    def to_arrow(
        self,
        filter: Filter | None = None,  # noqa: A002
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
    ) -> Any:
        """The rows that the filter wants, as a `pyarrow.Table`; all columns in the table's order, or those named.

        One version is read, whatever is committed meanwhile. InvalidRequest for a filter that compares text under a
        collation, which only engines that know it can. Needs the extra `arrow`.
        """
        pa = needed("pyarrow", "arrow")
        from tarnlog._data_files import DataFiles
        from tarnlog._row_filter import check_collations, columns_of, matching_rows

        plan = self._api.plan(self.name, filter, version=version, timestamp=timestamp)
        at = self._api.snapshot(self.name, version=plan.version)
        if at.meta_data.format.provider != "parquet":
            raise InvalidRequest(f"The files of {self.name} are {at.meta_data.format.provider}: only parquet is read.")
        if plan.filter is not None:
            check_collations(plan.filter, _schema(at.meta_data.schema_string))
        wanted = self._fields(at.meta_data.schema_string, columns)
        names = list(wanted.names)
        asked = set() if plan.filter is None else columns_of(plan.filter)
        needs = pa.schema([*wanted, *self._more(at.meta_data.schema_string, asked, names)])
        files = DataFiles(self._api.get_table(self.name).location)
        partitions = frozenset(name.lower() for name in at.meta_data.partition_columns)

        def rows(file: Any) -> Any:
            found = files.read(file, needs, partitions)
            return (found if plan.filter is None else matching_rows(found, plan.filter)).select(names)

        with ThreadPoolExecutor(PARALLEL_FILES, thread_name_prefix="tarnlog-read") as pool:
            parts = list(pool.map(rows, plan.files))
        return pa.concat_tables(parts) if parts else wanted.empty_table()

    def to_pandas(
        self,
        filter: Filter | None = None,  # noqa: A002
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
    ) -> Any:
        """The same as a `pandas.DataFrame`. Needs the extra `pandas`."""
        needed("pandas", "pandas")
        return self.to_arrow(filter, version=version, timestamp=timestamp, columns=columns).to_pandas()

    def to_polars(
        self,
        filter: Filter | None = None,  # noqa: A002
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
    ) -> Any:
        """The same as a `polars.DataFrame`. Needs the extra `polars`."""
        polars = needed("polars", "polars")
        return polars.from_arrow(self.to_arrow(filter, version=version, timestamp=timestamp, columns=columns))

    def to_duckdb(
        self,
        filter: Filter | None = None,  # noqa: A002
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
        connection: Any = None,
    ) -> Any:
        """The same as a DuckDB relation, of `connection` or of DuckDB's own one. Needs the extra `duckdb`."""
        duckdb = needed("duckdb", "duckdb")
        rows = self.to_arrow(filter, version=version, timestamp=timestamp, columns=columns)
        return (connection or duckdb.default_connection()).from_arrow(rows)

    def _fields(self, schema_string: str, columns: Sequence[str] | None) -> Any:
        """The Arrow schema of the columns that are asked for."""
        pa = needed("pyarrow", "arrow")
        from tarnlog._arrow_schema import arrow_field

        schema = _schema(schema_string)
        by_name = schema.by_name()
        if columns is not None and (missing := [name for name in columns if name.lower() not in by_name]):
            raise InvalidRequest(f"{self.name} has no column {missing[0]!r}: it has {', '.join(schema.names)}.")
        fields = schema.fields if columns is None else [by_name[name.lower()] for name in columns]
        return pa.schema([arrow_field(field) for field in fields])

    def _more(self, schema_string: str, asked: set[str], names: list[str]) -> list[Any]:
        """The columns that only the filter needs."""
        from tarnlog._arrow_schema import arrow_field

        by_name = _schema(schema_string).by_name()
        there = {name.lower() for name in names}
        tops = {name.lower() if name.lower() in by_name else name.lower().partition(".")[0] for name in asked}
        return [arrow_field(by_name[name]) for name in sorted(tops - there) if name in by_name]


def _schema(text: str) -> Schema:
    try:
        return parse_schema_string(text)
    except SchemaError as error:
        raise InvalidRequest(f"The table's schema cannot be read: {error}") from None
