"""The options of the format `tarnlog`, parsed once. Spark hands the keys over in lower case, the values as text.

Each direction has its own list; an option that it does not know is refused with the nearest one that it does.
"""

from __future__ import annotations

import datetime as dt
import difflib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from tarnlog import InvalidRequest
from tarnlog.protocol.ids import TableName
from tarnlog_spark._storage import S3_OPTIONS, Storage, storage_at

if TYPE_CHECKING:
    from tarnlog import Client

MIB = 1024 * 1024
DEFAULT_MAX_FILES = 1000
DEADLINE_SECONDS = 60.0
"""How long a request is repeated while the service does not answer."""

_UNITS = {"": 1, "b": 1, "k": 1024, "kb": 1024, "m": MIB, "mb": MIB, "g": 1024 * MIB, "gb": 1024 * MIB}
_SIZE = re.compile(r"(\d{1,15})\s*([a-z]{0,2})", re.ASCII | re.IGNORECASE)

_S3 = ("s3.endpoint", "s3.region", "s3.accessKey", "s3.secretKey", "s3.sessionToken")
_PLACE = ("path", "table", "url", "apiKey", "deadlineSeconds", *_S3)
_SPLITS = ("maxPartitionBytes", "parallelism")
_FEED = ("readChangeFeed", "startingVersion", "startingTimestamp")
_ALLOW = "allowOverwrite"  # a view hands its options to reads and writes alike
_BATCH = (
    "versionAsOf",
    "timestampAsOf",
    "columns",
    "filter",
    "pushFilters",
    "endingVersion",
    "endingTimestamp",
    _ALLOW,
)
_STREAM = ("maxFilesPerTrigger", "maxBytesPerTrigger", "ignoreDeletes", "ignoreChanges", "skipChangeCommits")
_OVERWRITE = ("overwriteSchema", "replaceWhere", "partitionOverwriteMode")
_WRITE = ("mergeSchema", "partitionBy", "txnAppId", "txnVersion", _ALLOW, *_OVERWRITE)
_SINK = ("mergeSchema", "txnAppId", "checkpointLocation", "partitionBy", "queryName")  # Spark hands the last one over

KNOWN: dict[str, tuple[str, ...]] = {
    "read": (*_PLACE, *_SPLITS, *_FEED, *_BATCH),
    "readStream": (*_PLACE, *_SPLITS, *_FEED, *_STREAM, "columns"),
    "write": (*_PLACE, *_WRITE),
    "writeStream": (*_PLACE, *_SINK),
}
"""Which options each direction takes, in the spelling that people write."""


class Place(Struct, frozen=True, kw_only=True):
    """Which table, where its service is, and how to reach its files. Picklable: tasks get it."""

    table: str
    url: str | None = None
    api_key: str | None = None
    s3: dict[str, str] = {}
    deadline: float = DEADLINE_SECONDS

    def client(self) -> Client:
        """A new client, which the caller closes."""
        from tarnlog_spark._service import ServiceClient  # tasks need no HTTP library

        return ServiceClient(self.url, api_key=self.api_key, deadline=self.deadline)

    def storage(self, location: str) -> Storage:
        """How to reach the data files of the table, which the service says to lie at `location`."""
        return storage_at(location, self.s3)


class Splits(Struct, frozen=True, kw_only=True):
    """Into how many tasks a read is cut."""

    max_bytes: int = 128 * MIB
    parallelism: int | None = None


class Feed(Struct, frozen=True, kw_only=True):
    """Where a stream or a change feed starts and ends; `latest` as a starting version is -1."""

    changes: bool = False
    starting_version: int | None = None
    starting_timestamp: int | None = None
    ending_version: int | None = None
    ending_timestamp: int | None = None


LATEST = -1


class ReadOptions(Struct, frozen=True, kw_only=True):
    """A batch read."""

    place: Place
    splits: Splits
    feed: Feed
    version: int | None = None
    timestamp: int | None = None
    columns: tuple[str, ...] = ()
    filter: str | None = None
    push_filters: bool = False


class StreamOptions(Struct, frozen=True, kw_only=True):
    """A stream that reads a table."""

    place: Place
    splits: Splits
    feed: Feed
    max_files: int | None = None
    max_bytes: int | None = None
    ignore_deletes: bool = False
    ignore_changes: bool = False
    skip_change_commits: bool = False


class WriteOptions(Struct, frozen=True, kw_only=True):
    """A batch write."""

    place: Place
    merge_schema: bool = False
    overwrite_schema: bool = False
    replace_where: str | None = None
    dynamic_partitions: bool = False
    partition_by: tuple[str, ...] = ()
    txn: tuple[str, int] | None = None


class SinkOptions(Struct, frozen=True, kw_only=True):
    """A stream that writes a table. `app_id` None: the query's own id, from its checkpoint."""

    place: Place
    merge_schema: bool = False
    partition_by: tuple[str, ...] = ()
    app_id: str | None = None
    checkpoint: str | None = None


def option_error(message: str) -> InvalidRequest:
    """An option that cannot be used; the message says what to write."""
    return InvalidRequest(message, slug="option-invalid")


_INSTEAD_OF_CATALOG = (
    "Spark keeps no options for such a table, so nothing was created in tarnlog: DROP TABLE it if SHOW TABLES lists "
    "it. Create the table with tarnlog_spark.Table.create(spark, 'namespace.name', schema) or by writing to it, and "
    "query it through CREATE TEMPORARY VIEW v USING tarnlog OPTIONS (table 'namespace.name')."
)


class _Given:
    """The options of one direction, read by the names that people write."""

    def __init__(self, options: Mapping[str, str], *directions: str) -> None:
        known = {name.lower(): name for direction in directions for name in KNOWN[direction]}
        self._values = {key.lower(): value for key, value in options.items()}
        if "provider" in self._values:  # the properties of a table that Spark's catalog is about to create
            raise option_error(f"CREATE TABLE ... USING tarnlog is not supported. {_INSTEAD_OF_CATALOG}")
        for key in self._values:
            if key not in known:
                raise option_error(_unknown(key, directions, known))

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def flag(self, name: str) -> bool:
        value = (self.text(name) or "false").strip().lower()
        if value not in ("true", "false"):
            raise option_error(f"{name} is true or false, not {value!r}.")
        return value == "true"

    def number(self, name: str, least: int = 0) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"\d{1,18}", value.strip(), re.ASCII) or int(value) < least:
            raise option_error(f"{name} is a number from {least}, not {value!r}.")
        return int(value)

    def size(self, name: str) -> int | None:
        value = self.text(name)
        match = None if value is None else _SIZE.fullmatch(value.strip())
        unit = "" if match is None else match[2].lower()
        if value is None:
            return None
        if match is None or unit not in _UNITS or int(match[1]) == 0:
            raise option_error(f"{name} is a number of bytes such as 1048576, 64m or 1g, not {value!r}.")
        return int(match[1]) * _UNITS[unit]

    def moment(self, name: str) -> int | None:
        """Epoch milliseconds from what people write; without a zone it is UTC."""
        text = (self.text(name) or "").strip()
        if not text:
            return None
        if text.isdecimal():
            return int(text)
        try:
            parsed = dt.datetime.fromisoformat(text)
        except ValueError:
            message = f"{name} is a time such as 2024-01-31T10:00:00Z, or epoch milliseconds, not {text!r}."
            raise option_error(message) from None
        zoned = parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=dt.UTC)
        return int(zoned.timestamp() * 1000)

    def only_one(self, *names: str) -> None:
        given = [name for name in names if self.text(name) is not None]
        if len(given) > 1:
            raise option_error(f"{' and '.join(given)} exclude each other: give one of them.")

    def place(self) -> Place:
        self.only_one("path", "table")
        table = self.text("table") or self.text("path")
        if not table:
            raise option_error(
                "Name the table: .load('namespace.name'), .save('namespace.name'), or the option table. A table of "
                f"Spark's catalog (CREATE TABLE ... USING tarnlog, saveAsTable) names none. {_INSTEAD_OF_CATALOG}"
            )
        try:
            name = str(TableName.parse(table))
        except ValueError as error:
            raise option_error(f"{error}.") from None
        s3 = {key: value for key, value in self._values.items() if key in S3_OPTIONS}
        deadline = self.number("deadlineSeconds", 1) or DEADLINE_SECONDS
        return Place(table=name, url=self.text("url"), api_key=self.text("apiKey"), s3=s3, deadline=deadline)

    def splits(self) -> Splits:
        return Splits(
            max_bytes=self.size("maxPartitionBytes") or Splits().max_bytes, parallelism=self.number("parallelism", 1)
        )

    def feed(self) -> Feed:
        self.only_one("startingVersion", "startingTimestamp")
        self.only_one("endingVersion", "endingTimestamp")
        latest = (self.text("startingVersion") or "").strip().lower() == "latest"
        return Feed(
            changes=self.flag("readChangeFeed"),
            starting_version=LATEST if latest else self.number("startingVersion"),
            starting_timestamp=self.moment("startingTimestamp"),
            ending_version=self.number("endingVersion"),
            ending_timestamp=self.moment("endingTimestamp"),
        )

    def names(self, name: str) -> tuple[str, ...]:
        """Names between commas; in back quotes, as in SQL, one that has a comma in it."""
        text, found, at = self.text(name) or "", [], 0
        while at < len(text):
            part = _NAME.match(text, at)
            if part is None:
                raise option_error(f"{name} is names between commas; a name in back quotes ends with one: {text!r}.")
            found.append(part[1].replace("``", "`") if part[1] is not None else part[2].strip())
            at = part.end()
        return tuple(one for one in found if one)


_NAME = re.compile(r"\s*+(?:`((?:[^`]|``)+)`\s*|((?!`)[^,]*))(?:,|\Z)")


def storage_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options of a `Table`, which are the storage's alone, with lower-case keys. InvalidRequest for any other."""
    known = {name.lower(): name for name in _S3}
    for key in options:
        if key.lower() not in known:
            raise option_error(_no_option("Table", key, known))
    return {key.lower(): value for key, value in options.items()}


def _unknown(key: str, directions: tuple[str, ...], known: Mapping[str, str]) -> str:
    what = " and ".join(f"spark.{direction}" if direction.startswith("read") else direction for direction in directions)
    return _no_option(f"{what} of the format tarnlog", key, known)


def _no_option(what: str, key: str, known: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(key.lower(), known, n=1)
    if near:
        return f"{what} knows no option {key!r}: did you mean {known[near[0]]}?"
    return f"{what} knows no option {key!r}; it takes {', '.join(sorted(known.values()))}."


def schema_options(options: Mapping[str, str]) -> ReadOptions:
    """What a read's schema depends on; whether it is a batch or a stream is not known yet."""
    given = _Given(options, "read", "readStream")
    return _read(given)


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """The options of `spark.read`."""
    found = _read(_Given(options, "read"))
    feed = found.feed
    if feed.changes:
        if found.version is not None or found.timestamp is not None:
            raise option_error("readChangeFeed reads a range: use startingVersion and endingVersion, not versionAsOf.")
        if feed.starting_version is None and feed.starting_timestamp is None:
            raise option_error("readChangeFeed needs startingVersion or startingTimestamp.")
        if found.filter is not None:
            raise option_error("readChangeFeed takes no filter: use where() on what it gives.")
        if feed.starting_version == LATEST:
            raise option_error("startingVersion latest is for streams: give a number.")
    elif feed != Feed():
        raise option_error("startingVersion, endingVersion and their timestamps need readChangeFeed = true here.")
    return found


def _read(given: _Given) -> ReadOptions:
    given.only_one("versionAsOf", "timestampAsOf")
    return ReadOptions(
        place=given.place(),
        splits=given.splits(),
        feed=given.feed(),
        version=given.number("versionAsOf"),
        timestamp=given.moment("timestampAsOf"),
        columns=given.names("columns"),
        filter=given.text("filter"),
        push_filters=given.flag("pushFilters"),
    )


def stream_options(options: Mapping[str, str]) -> StreamOptions:
    """The options of `spark.readStream`. Without any limit a batch takes at most 1000 files."""
    given = _Given(options, "readStream")
    max_files, max_bytes = given.number("maxFilesPerTrigger", 1), given.size("maxBytesPerTrigger")
    return StreamOptions(
        place=given.place(),
        splits=given.splits(),
        feed=given.feed(),
        max_files=DEFAULT_MAX_FILES if max_files is None and max_bytes is None else max_files,
        max_bytes=max_bytes,
        ignore_deletes=given.flag("ignoreDeletes"),
        ignore_changes=given.flag("ignoreChanges"),
        skip_change_commits=given.flag("skipChangeCommits"),
    )


def write_options(options: Mapping[str, str], *, overwrite: bool) -> WriteOptions:
    """The options of `df.write`."""
    given = _Given(options, "write")
    mode = (given.text("partitionOverwriteMode") or "static").strip().lower()
    if mode not in ("static", "dynamic"):
        raise option_error(f"partitionOverwriteMode is static or dynamic, not {mode!r}.")
    app_id, txn_version = given.text("txnAppId"), given.number("txnVersion")
    if (app_id is None) != (txn_version is None):
        raise option_error("txnAppId and txnVersion go together: give both or neither.")
    found = WriteOptions(
        place=given.place(),
        merge_schema=given.flag("mergeSchema"),
        overwrite_schema=given.flag("overwriteSchema"),
        replace_where=given.text("replaceWhere"),
        dynamic_partitions=mode == "dynamic",
        partition_by=given.names("partitionBy"),
        txn=None if app_id is None or txn_version is None else (app_id, txn_version),
    )
    _check_overwrite(found, overwrite)
    if overwrite and given.text("table") is not None and not given.flag(_ALLOW):
        _check_narrow(found)
    return found


def _check_narrow(found: WriteOptions) -> None:
    """Refuse to replace a whole table that the option table names, as INSERT OVERWRITE of a view does."""
    if found.overwrite_schema or found.replace_where is not None or found.dynamic_partitions:
        return
    raise option_error(
        f"This would replace every row of {found.place.table}; nothing was written. INSERT OVERWRITE of a view needs "
        "allowOverwrite 'true' among the view's OPTIONS. For df.write, name the table in save(...) and not by the "
        "option table, or set the option allowOverwrite to true."
    )


def _check_overwrite(found: WriteOptions, overwrite: bool) -> None:
    asked = {
        "overwriteSchema": found.overwrite_schema,
        "replaceWhere": found.replace_where is not None,
        "partitionOverwriteMode=dynamic": found.dynamic_partitions,
    }
    wanted = [name for name, is_set in asked.items() if is_set]
    if wanted and not overwrite:
        raise option_error(f"{wanted[0]} is for mode('overwrite'); this write appends.")
    if found.merge_schema:
        wanted += ["mergeSchema"] if wanted and not found.dynamic_partitions else []
    if len(wanted) > 1:
        raise option_error(f"{' and '.join(wanted)} exclude each other: give one of them.")


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The options of `df.writeStream`."""
    given = _Given(options, "writeStream")
    return SinkOptions(
        place=given.place(),
        merge_schema=given.flag("mergeSchema"),
        partition_by=given.names("partitionBy"),
        app_id=given.text("txnAppId"),
        checkpoint=given.text("checkpointLocation"),
    )
