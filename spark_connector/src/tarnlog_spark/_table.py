"""The table as Spark users see it: DataFrames in, DataFrames out, and the commands that go with it."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tarnlog import (
    CheckpointInfo,
    CleanupInfo,
    Conflict,
    EraseInfo,
    InvalidRequest,
    NotFound,
    TableInfo,
    VacuumInfo,
)
from tarnlog.protocol.ids import TableName
from tarnlog.protocol.tables import StateFormat
from tarnlog_spark import _feeds, _reports
from tarnlog_spark._arguments import (
    ASSIGNMENTS,
    CONDITION,
    DATA_FRAME,
    FLAG,
    MOMENT,
    NAMES,
    NUMBER,
    SCHEMA,
    SESSION,
    TEXT,
    TEXTS,
    WHOLE,
    takes,
)
from tarnlog_spark._arrow_types import check_storable
from tarnlog_spark._changing import ChangeResult, as_column, delete, update
from tarnlog_spark._fitting import nullable
from tarnlog_spark._landing import table_exists
from tarnlog_spark._merging import Merge
from tarnlog_spark._optimizing import Optimize
from tarnlog_spark._options import DEADLINE_SECONDS, Place, storage_options
from tarnlog_spark._restoring import RestoreResult, restore
from tarnlog_spark._schema_change import spelled
from tarnlog_spark._service import ServiceClient
from tarnlog_spark._spark_schema import quoted
from tarnlog_spark._staging import WRITERS, Writer
from tarnlog_spark._target import Target
from tarnlog_spark._writes import Mode, WriteOptions, WriteResult, check_options, write

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    Condition = str | Column

MODES = ("append", "overwrite", "error", "ignore")


class Table:
    """A table of a tarnlog service, for one Spark session. Made by `for_name`, `for_path` or `create`."""

    def __init__(self, target: Target) -> None:
        self._target = target

    @classmethod
    @takes(spark=SESSION, name=TEXT, url=TEXT, api_key=TEXT, options=TEXTS, deadline=NUMBER)
    def for_name(
        cls,
        spark: SparkSession,
        name: str,
        *,
        url: str | None = None,
        api_key: str | None = None,
        options: Mapping[str, str] | None = None,
        deadline: float = DEADLINE_SECONDS,
    ) -> Table:
        """The table `namespace.name`; it need not exist yet. I/O: none.

        url and api_key default to TARNLOG_URL and TARNLOG_API_KEY. `options` are the storage's (`s3.endpoint` and so
        on, as in the format's options); what is not given comes from the environment of driver and executors.
        Others are refused. While the service does not answer, each request is repeated for `deadline` seconds, and
        stderr says so.
        """
        try:
            known = str(TableName.parse(name))
        except ValueError as error:
            raise InvalidRequest(f"{error}.", slug="option-invalid") from None
        s3 = storage_options(options or {})
        place = Place(table=known, url=url, api_key=api_key, s3=s3, deadline=deadline)
        return cls(Target(spark, place, place.client()))

    @classmethod
    @takes(spark=SESSION, path=TEXT, url=TEXT, api_key=TEXT)
    def for_path(
        cls, spark: SparkSession, path: str, *, url: str | None = None, api_key: str | None = None, **more: Any
    ) -> Table:
        """The table that lies at a path or URI, by what the service's catalog says. Costs a listing of all tables."""
        with ServiceClient(url, api_key=api_key, deadline=more.get("deadline", DEADLINE_SECONDS)) as client:
            wanted = _location(path)
            for entry in client.list_tables():
                if _location(entry.location) == wanted:
                    return cls.for_name(spark, entry.name, url=url, api_key=api_key, **more)
        raise NotFound(
            f"No table of the service lies at {path}: register it (tarnlog register), or use its name.",
            slug="table-not-found",
            status=404,
        )

    @classmethod
    @takes(
        spark=SESSION,
        name=TEXT,
        schema=SCHEMA,
        partition_by=NAMES,
        location=TEXT,
        properties=TEXTS,
        description=TEXT,
        if_not_exists=FLAG,
        adopt_existing_files=FLAG,
    )
    def create(
        cls,
        spark: SparkSession,
        name: str,
        schema: StructType | str,
        *,
        partition_by: Sequence[str] = (),
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        if_not_exists: bool = False,
        adopt_existing_files: bool = False,
        **more: Any,
    ) -> Table:
        """A new, empty table. `schema` is Spark's, as an object or as DDL text. Types that data files cannot hold
        (char, varchar, variant, time, intervals, void, geometry) are refused: InvalidRequest names the columns.

        A `location` must be empty, unless an admin key passes `adopt_existing_files`.
        """
        table = cls.for_name(spark, name, **more)
        given = _parsed(schema) if isinstance(schema, str) else schema
        try:
            table._create(
                given,
                partition_by,
                location=location,
                properties=properties,
                description=description,
                adopt_existing_files=adopt_existing_files,
            )
        except Conflict as error:
            if not if_not_exists or error.slug != "table-exists":
                raise
        return table

    def __repr__(self) -> str:
        return f"Table({self.name!r})"

    @property
    def name(self) -> str:
        return self._target.table

    @property
    def exists(self) -> bool:
        """Whether the service has the table now."""
        try:
            self._target.client.get_table(self.name)
        except NotFound:
            return False
        return True

    @property
    def version(self) -> int:
        """The newest version."""
        return self._target.client.snapshot(self.name).version

    @property
    def schema(self) -> StructType:
        """The newest schema."""
        return self._target.pin(files=False).schema

    # Reading

    @takes(filter=CONDITION, columns=NAMES, version=WHOLE, timestamp=MOMENT)
    def read(
        self,
        filter: Condition | None = None,  # noqa: A002 (the API's word)
        *,
        columns: Sequence[str] | None = None,
        version: int | None = None,
        timestamp: int | str | dt.datetime | None = None,
    ) -> DataFrame:
        """The rows at the newest version, a version, or a time. The DataFrame stays at the version it was made at.

        A filter, SQL text or a Column, is read by Spark under the session's settings; files that cannot match are left
        out.
        """
        rows = self._target.read(filter, version=version, timestamp=_moment(timestamp))
        if filter is not None:
            rows = rows.where(as_column(filter))
        return rows if columns is None else rows.select(*(quoted(name) for name in columns))

    @takes(from_version=WHOLE, to_version=WHOLE)
    def changes(self, from_version: int, to_version: int | None = None) -> DataFrame:
        """The rows that versions added and removed, both ends inclusive, with `_change_type` (insert, delete),
        `_commit_version` and `_commit_timestamp`. A row that an update carries over is a delete and an insert."""
        return _feeds.changes(self._target, from_version, to_version)

    @takes(limit=WHOLE)
    def history(self, limit: int | None = None) -> DataFrame:
        """The commits, newest first."""
        return _reports.history(self._target, limit)

    def detail(self) -> DataFrame:
        """The table in one row: name, location, version, sizes, properties."""
        return _reports.detail(self._target)

    # Writing

    @takes(
        rows=DATA_FRAME,
        mode=TEXT,
        replace_where=TEXT,
        partition_overwrite_mode=TEXT,
        merge_schema=FLAG,
        overwrite_schema=FLAG,
        partition_by=NAMES,
        txn_app_id=TEXT,
        txn_version=WHOLE,
        writer=TEXT,
    )
    def write(
        self,
        rows: DataFrame,
        mode: Mode = "append",
        *,
        replace_where: str | None = None,
        partition_overwrite_mode: str = "static",
        merge_schema: bool = False,
        overwrite_schema: bool = False,
        partition_by: Sequence[str] | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
        writer: Writer = "auto",
    ) -> WriteResult:
        """Write a DataFrame in one commit; a table that does not exist is created with its schema.

        `error` and `ignore` write only where nothing was committed since the table was created: of several such writes
        one lands. A table that a first write created stays, empty, when the write fails.
        With txn_app_id and txn_version a write that is repeated changes nothing the second time. `writer` is Spark's
        own Parquet writer (native), pyarrow in tasks (arrow), or the first where it writes the same (auto).
        """
        if writer not in WRITERS:
            raise InvalidRequest(f"writer is one of {', '.join(WRITERS)}, not {writer!r}.", slug="option-invalid")
        if mode not in MODES:
            raise InvalidRequest(f"mode is one of {', '.join(MODES)}, not {mode!r}.", slug="option-invalid")
        if partition_overwrite_mode not in ("static", "dynamic"):
            raise InvalidRequest("partition_overwrite_mode is static or dynamic.", slug="option-invalid")
        if (txn_app_id is None) != (txn_version is None):
            raise InvalidRequest("txn_app_id and txn_version go together: both or neither.", slug="option-invalid")
        options = WriteOptions(
            mode=mode,
            replace_where=replace_where,
            dynamic_partitions=partition_overwrite_mode == "dynamic",
            merge_schema=merge_schema,
            overwrite_schema=overwrite_schema,
            txn=None if txn_app_id is None or txn_version is None else (txn_app_id, txn_version),
            writer=writer,
        )
        check_options(options)
        try:
            if options.first and self._is_written():
                raise table_exists(self.name)
            self._prepare(rows.schema, partition_by)
            return write(self._target, rows, options)
        except Conflict as error:
            if mode != "ignore" or error.slug != "table-exists":
                raise
            return WriteResult(version=None, skipped="the table exists")

    @takes(condition=CONDITION)
    def delete(self, condition: Condition | None = None) -> ChangeResult:
        """Delete the rows that make the condition true; all rows without one."""
        return delete(self._target, condition)

    @takes(set=ASSIGNMENTS, condition=CONDITION)
    def update(self, set: Mapping[str, Condition], condition: Condition | None = None) -> ChangeResult:  # noqa: A002
        """Set columns (SQL text or Columns) in the rows that make the condition true; in all rows without one."""
        return update(self._target, set, condition)

    @takes(source=DATA_FRAME, condition=CONDITION, target_alias=TEXT, source_alias=TEXT)
    def merge(
        self, source: DataFrame, condition: Condition, *, target_alias: str = "target", source_alias: str = "source"
    ) -> Merge:
        """Begin to describe a merge: add when_... clauses, then `execute`."""
        return Merge(self._target, source, condition, target_alias, source_alias)

    # Maintenance

    @takes(cooldown_hours=NUMBER)
    def optimize(self, *, cooldown_hours: float | None = None) -> Optimize:
        """Begin to describe an optimize: `where`, then `execute_compaction` or `execute_zorder_by`.

        cooldown_hours: how long a file that cannot be read is left alone (the table's `skip.cooldownHours`).
        """
        return Optimize(self._target, cooldown_hours=cooldown_hours)

    @takes(dry_run=FLAG, retention_hours=NUMBER, override_minimum=FLAG)
    def vacuum(
        self, *, dry_run: bool = True, retention_hours: float | None = None, override_minimum: bool = False
    ) -> VacuumInfo:
        """Find, or delete, data files that no kept version needs. A dry run unless told otherwise."""
        return self._target.client.vacuum(
            self.name, dry_run=dry_run, retention_hours=retention_hours, override_minimum=override_minimum
        )

    @takes(version=WHOLE, timestamp=MOMENT)
    def restore(self, version: int | None = None, *, timestamp: int | str | dt.datetime | None = None) -> RestoreResult:
        """Make the table what it was at a version or time, as a new version."""
        if (version is None) == (timestamp is None):
            raise InvalidRequest("Restore to a version or to a timestamp: give one of them.", slug="option-invalid")
        return restore(self._target, version=version, timestamp=_moment(timestamp))

    @takes(dry_run=FLAG)
    def erase(self, *, dry_run: bool = True) -> EraseInfo:
        """List, or delete now, the files that versions up to now removed, with the versions and states that name them:
        for rows that must not be readable any more. Time travel begins with the newest version afterwards. A dry run
        unless `dry_run=False`. Needs a key of scope admin."""
        return self._target.client.erase(self.name, dry_run=dry_run)

    @takes(dry_run=FLAG)
    def cleanup(self, *, dry_run: bool = True) -> CleanupInfo:
        """List, or delete, what of the log is older than the table's retention. A dry run unless `dry_run=False`."""
        return self._target.client.cleanup(self.name, dry_run=dry_run)

    @takes(format=TEXT)
    def checkpoint(self, format: StateFormat | None = None) -> CheckpointInfo:  # noqa: A002 (the API's word)
        """Write a state of the newest version now, in the table's format or the one given. The service does this by
        itself every `checkpoint.interval` versions."""
        return self._target.client.checkpoint(self.name, format)

    def compact(self) -> CheckpointInfo:
        """Write an Avro state from scratch: no tombstones, few manifests. It concerns the log alone: small data files
        are compacted by `optimize().execute_compaction()`."""
        return self._target.client.compact(self.name)

    def skips(self) -> DataFrame:
        """Live files that an operation could not process, with the reason and when they are tried again."""
        return _reports.skips(self._target)

    def cooldowns(self) -> DataFrame:
        """Files that operations leave out until their cooldown ends."""
        return _reports.cooldowns(self._target)

    def _is_written(self) -> bool:
        """Whether the table has more than its creation. One that was registered may have files from its start."""
        try:
            found = self._target.client.get_table(self.name)
        except NotFound as error:
            if error.slug != "table-not-found":
                raise
            return False
        return found.version > 0 or found.num_files > 0

    def _prepare(self, schema: StructType, partition_by: Sequence[str] | None) -> None:
        """See to it that the table is there, made by this write or by another at the same time, and partitioned so."""
        try:
            known = self._target.info
        except NotFound as error:
            if error.slug != "table-not-found":
                raise
            known = self._target.info = self._made(nullable(schema), partition_by or ())
        if partition_by is not None and spelled(partition_by, known.partition_columns) != known.partition_columns:
            raise InvalidRequest(
                f"{self.name} is partitioned by {list(known.partition_columns)}, which never changes: leave "
                "partition_by out, or write to a new table.",
                slug="option-invalid",
            )

    def _made(self, schema: StructType, partition_by: Sequence[str]) -> TableInfo:
        try:
            return self._create(schema, partition_by)
        except Conflict as error:
            if error.slug != "table-exists":
                raise
            return self._target.client.get_table(self.name)  # somebody else was quicker: it is as good

    def _create(
        self,
        schema: StructType,
        partition_by: Iterable[str],
        *,
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        adopt_existing_files: bool = False,
    ) -> TableInfo:
        check_storable(schema, self.name)
        return self._target.client.create_table(
            self.name,
            json.loads(schema.json()),
            partition_by=spelled(partition_by, schema.names),
            location=location,
            properties=properties,
            description=description,
            adopt_existing_files=adopt_existing_files,
        )


def _parsed(ddl: str) -> StructType:
    """The schema of DDL text. Spark makes no DataFrame of char and varchar: they are refused later, by name."""
    from pyspark.sql.types import DataType, StructType

    found = DataType.fromDDL(ddl)
    if not isinstance(found, StructType):
        raise InvalidRequest(f"{ddl!r} names no columns: write for example 'id long, day date'.", slug="schema-invalid")
    return found


def _location(text: str) -> str:
    plain = text.removeprefix("file://") if text.startswith("file://") else text
    return plain.rstrip("/")


def _moment(timestamp: int | str | dt.datetime | None) -> int | str | None:
    if isinstance(timestamp, dt.datetime):
        return int(timestamp.timestamp() * 1000)
    return timestamp
