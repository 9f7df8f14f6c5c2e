"""Spark sessions whose settings change what rows, filters and assignments mean, for the comparison with plain Spark.

Each entry of SESSIONS is settings that can be had together, with the filters and steps that they matter to. The
filters of COMMON mean something in every one of them. Dates and times are compared as days and microseconds: Python
holds them by other calendars and zones.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from msgspec import Struct

from tests.spark.oracle import Shape
from tests.spark.oracle_steps import FORMAT, Delete, Dynamic, Merge, Optimize, Replace, Step, Update

_COLUMNS = (
    # name, type in the table, type in Python, from Python, to Python
    ("k", "bigint", "bigint", "k", "k"),
    ("i", "int", "int", "i", "i"),
    ("s", "string", "string", "s", "s"),
    ("d", "date", "int", "date_from_unix_date(d)", "unix_date(d)"),
    ("ts", "timestamp_ltz", "bigint", "timestamp_micros(ts)", "unix_micros(ts)"),
    ("ntz", "timestamp_ntz", "string", "CAST(ntz AS timestamp_ntz)", "CAST(ntz AS string)"),  # a number needs a zone
    ("st", "struct<a: int, b: int, c: string>", "struct<a: int, b: int, c: string>", "st", "st"),
    ("m", "map<string, int>", "map<string, int>", "m", "m"),
    ("part", "string", "string", "part", "part"),
    ("pd", "date", "int", "date_from_unix_date(pd)", "unix_date(pd)"),
    ("pt", "timestamp_ltz", "bigint", "timestamp_micros(pt)", "unix_micros(pt)"),
)
_PARTITIONS = ("part", "pd", "pt")


def _shape(*more: tuple[str, str]) -> Shape:
    columns = [*_COLUMNS, *((name, kind, "string", f"CAST({name} AS {kind})", name) for name, kind in more)]
    return Shape(
        ddl=", ".join(f"{name} {kind}" for name, kind, *_ in columns),
        partitions=_PARTITIONS,
        raw=", ".join(f"{name} {kind}" for name, _, kind, *_ in columns),
        into=tuple(f"{into} AS {name}" for name, _, _, into, _ in columns),
        back=tuple(f"{back} AS {name}" for name, _, _, _, back in columns),
    )


NARROW = _shape()
COLLATED = _shape(("ci", "string collate UTF8_LCASE"), ("uni", "string collate UNICODE_CI"))


def _day(text: str | None) -> int | None:
    return None if text is None else (dt.date.fromisoformat(text) - dt.date(1970, 1, 1)).days


def _at(text: str | None) -> int | None:
    """Microseconds of a time in UTC."""
    if text is None:
        return None
    return (dt.datetime.fromisoformat(text) - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)  # noqa: DTZ001


def _row(k: int, i: int | None, s: str | None, times: list[str | None], st: Any, m: Any, *part: str | None) -> Any:
    d, ts, ntz = times
    text, pd, pt = part
    return (k, i, s, _day(d), _at(ts), ntz, st, m, text, _day(pd), _at(pt))


# Los Angeles goes from 2 to 3 o'clock at 10:00 UTC of 2024-03-10, and back at 09:00 UTC of 2024-11-03. The calendars
# of old and of today differ before 1582-10-15, and clocks did before the zones of the 19th century.
_NIGHT = "2024-03-10 08:00:00"
_SPRING: list[str | None] = ["2024-03-10", "2024-03-10 09:59:59.999999", "2024-03-10 02:30:00"]
_SUMMER: list[str | None] = ["2024-03-09", "2024-03-10 10:00:00", "2024-03-10 03:00:00"]
_CAESAR: list[str | None] = ["1500-02-28", "1500-02-28 12:00:00", "1500-02-28 00:00:00"]
_GREGOR: list[str | None] = ["1582-10-10", "1582-10-10 00:00:00", "1582-10-10 00:00:00"]
_FIRST: list[str | None] = ["0001-01-03", "0002-01-01 00:00:00", "0001-01-01 00:00:00"]
_RAILWAY: list[str | None] = ["1883-11-18", "1883-11-18 12:07:00", "1883-11-18 12:07:00"]
_ONCE: list[str | None] = ["2024-11-03", "2024-11-03 08:30:00", "2024-11-03 01:30:00"]
_TWICE: list[str | None] = ["2024-11-04", "2024-11-03 09:30:00", "2024-11-03 01:30:00"]
_LAST: list[str | None] = ["9999-12-31", "2024-03-09 18:15:00", "2024-03-10 00:00:00"]
ROWS: list[Any] = [
    _row(0, 5, "a", _SPRING, (1, 2, "x"), {"x": 1}, "a", "1500-02-28", _NIGHT),
    _row(1, -5, "A", _SUMMER, (2, 1, "X"), {}, "A", "1500-02-28", _NIGHT),
    _row(2, 2**31 - 1, "a\\b", _CAESAR, None, None, "a\\nb", None, None),
    _row(3, -(2**31), "a\nb", _GREGOR, (None, 3, None), None, "a\nb", "1582-10-10", "1582-10-10 00:00:00"),
    _row(4, 0, "ab", _FIRST, (4, 4, "b"), {"x": None}, "ab", "1500-02-28", None),
    _row(5, None, "a'b", _RAILWAY, (5, None, "c"), {}, "a'b", "1582-10-10", "1883-11-18 12:07:00"),
    _row(6, 6, "5", _ONCE, (6, 7, "d"), {"y": 2}, "5", "2024-11-03", "2024-11-03 08:30:00"),
    _row(7, 7, "05", _TWICE, (7, 6, "e"), {"z": 3}, "05", "2024-11-03", "2024-11-03 09:30:00"),
    _row(8, 8, "Ä", _LAST, (8, 8, "Ä"), {"ä": 4}, "b", "2024-03-10", "2024-03-09 18:15:00"),
    _row(9, 9, None, [None, None, None], None, None, None, None, None),
]
_COLLATED_TEXT = ("abc", "ABC", "Straße", "STRASSE", "ä", "Ä", "b", "B", "zz", None)


def rows_of(shape: Shape) -> list[Any]:
    """ROWS in a shape: columns of other collations have values that are equal in them and nowhere else."""
    if shape is NARROW:
        return ROWS
    return [(*row, text, text) for row, text in zip(ROWS, _COLLATED_TEXT, strict=True)]


COMMON = (
    "i > 0",
    "NOT (i <= 5)",
    "s = 'a' OR s > 'b'",
    "part = 'a'",
    "part IN ('A', 'ab', NULL)",
    "NOT (part = 'a')",
    "part < 'a'",
    "d < date'1582-10-15'",
    "d >= '2024-03-10'",
    "pd = date'1500-02-28'",
    "pd < '1582-10-11'",
    "ts >= timestamp'2024-03-10 02:30:00'",
    "ts = '2024-11-03 01:30:00'",
    "ts < '1883-11-18 12:00:00'",
    "ntz < timestamp_ntz'2024-03-10 02:30:00'",
    "ntz = ts",
    "pt = timestamp'2024-03-10 00:00:00'",
    "pt <= '1900-01-01'",
    "CAST(ts AS date) = d",
    "st.c = 'X'",
    "s LIKE 'a%'",
)


class Session(Struct, frozen=True, kw_only=True):
    """Settings that a user may have together, and what they matter to."""

    name: str
    confs: dict[str, str]
    why: str
    filters: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    pushed: str | None = None
    """A filter that the format takes from Spark."""
    reads: tuple[dict[str, str], ...] = ()
    """Settings of which each gives the same rows at the end."""
    shape: Shape = NARROW

    @property
    def rows(self) -> list[Any]:
        return rows_of(self.shape)

    def __str__(self) -> str:
        return self.name


def _replace(condition: str, way: str, shape: Shape = NARROW) -> Replace:
    """All rows once more, with other numbers, in place of those that match."""
    new = [(row[0] + 100, 1, *row[2:]) for row in rows_of(shape)]
    return Replace(new, condition, way, shape)


def _merge(source: dict[str, str], shape: Shape = NARROW) -> Merge:
    """Rows that match, and new ones, from a source with columns of other types or orders."""
    rows = [(key, 3, *row[2:]) for key, row in zip((0, 6, 7, 20), rows_of(shape)[4:], strict=False)]
    return Merge(
        rows=rows,
        delete="source.k = 7",
        update=None,
        insert="true",
        old_update=None,
        old_delete="target.k = 8",
        source=source,
        shape=shape,
    )


_SWAPPED = {"st": "named_struct('c', st.c, 'b', st.b, 'a', st.a)"}
_LITERALS = (
    "part = 'a\\nb'",
    "part = 'a\\\\nb'",
    "part = r'a\\nb'",
    "part = 'a''b'",
    "part = 'a' 'b'",
    "part IN ('a\\'b', 'x')",
    "s LIKE 'a\\\\\\\\b'",
    "s RLIKE '^\\\\d+$'",
)
"""Text that has a backslash, or a quote, or two parts: it means what the parser's settings say."""
_QUOTES = ('part = "a"', "\"part\" = 'a'", "s = 'A' OR \"part\" > 'a'", 'part IN ("a", "s")')

SESSIONS = (
    Session(
        name="default",
        confs={},
        why="what the others are compared with: quotes are text, a backslash escapes, case does not count",
        filters=(*_LITERALS, *_QUOTES, "PART = 'a' OR I = 6"),
        steps=(
            Update({"S": "concat(s, '\\n')", "st": _SWAPPED["st"]}, "PART = \"a\" OR part = 'a\\nb'"),
            _replace("part IN ('ab', 'a')", FORMAT),  # which knows no session, and takes only what has one meaning
            _merge(_SWAPPED),
            Update({"i": "k + 3000000000"}, "part = '5'"),
        ),
    ),
    Session(
        name="ansi-off",
        confs={
            "spark.sql.ansi.enabled": "false",
            "spark.sql.session.timeZone": "America/Los_Angeles",
            "spark.sql.legacy.typeCoercion.datetimeToString.enabled": "true",
            "spark.sql.legacy.sizeOfNull": "true",
        },
        why="text is cast where it is compared with a number, casts and sums that fail are null or wrap, dates may be "
        "compared as text, the size of null is -1; a store assignment fails all the same",
        pushed="d < '2024-1-5' AND part > 4",
        filters=(
            *_QUOTES[:1],
            "part = 5",
            "part IN (5, 6)",
            "part > 4",
            "i = '5'",
            "i > 'x'",
            "d < '2024-1-5'",
            "pd < '2024-1-5'",
            "ts > 'x'",
            "size(m) = -1",
            "i + 2147483647 < 0",
            "NOT (CAST(part AS int) = 5)",
        ),
        steps=(
            Update({"i": "CAST('abc' AS int)", "k": "k + CAST(part AS int)"}, "part = 5"),
            Update({"i": "k + 3000000000"}, "k = 0"),
            Update({"i": "'abc'"}, "k = 0"),
            _replace("part > 4", "native"),
            Delete("size(m) = -1 OR ts = '2024-03-10 02:30:00'"),
        ),
    ),
    Session(
        name="double-quotes",
        confs={
            "spark.sql.ansi.doubleQuotedIdentifiers": "true",
            "spark.sql.ansi.enforceReservedKeywords": "true",
            "spark.sql.session.timeZone": "Asia/Kathmandu",
        },
        why="text in double quotes is a column's name; words are reserved",
        pushed="\"part\" = 'a' AND \"pt\" >= '2024-03-10 00:00:00'",
        filters=(*_QUOTES, "\"PART\" IN ('a', 'b')", "\"pt\" = timestamp'2024-03-10 00:00:00'"),
        steps=(
            Update({"s": "concat(\"part\", '!')"}, "\"part\" = 'a'"),
            Update({"s": '"x"'}, "true"),
            _replace("\"part\" = 'b'", "native"),
            Delete("\"pt\" = '2024-03-10 00:00:00' OR \"part\" = '5'"),
        ),
    ),
    Session(
        name="literals",
        confs={
            "spark.sql.parser.escapedStringLiterals": "true",
            "spark.sql.legacy.consecutiveStringLiterals.enabled": "true",
            "spark.tarnlog.oracle": "a",
        },
        why="a backslash in text is a backslash; 'a''b' is ab; ${a.setting} is its value",
        pushed="part = 'a\\nb'",
        filters=(*_LITERALS, "part = '${spark.tarnlog.oracle}'", "part IN ('${spark.tarnlog.oracle}b', 'x')"),
        steps=(
            Update({"s": "'\\t'"}, "part = 'a\\nb'"),
            _replace("part = 'a''b'", "arrow"),
            Delete("part = 'a\\nb' OR part = '${spark.tarnlog.oracle}'"),
        ),
    ),
    Session(
        name="case-sensitive",
        confs={
            "spark.sql.caseSensitive": "true",
            "spark.sql.storeAssignmentPolicy": "STRICT",
            "spark.sql.timestampType": "TIMESTAMP_NTZ",
            "spark.sql.session.timeZone": "Asia/Kathmandu",
        },
        why="a name in another case is no column; a value is stored only where nothing can be lost; the type and the "
        "literal `timestamp` have no zone",
        pushed="ntz < timestamp'2024-03-10 02:45:00'",
        filters=("PART = 'a'", "I > 0", "ntz = timestamp'2024-03-10 02:30:00'", "pt < timestamp'2024-03-10 00:00:00'"),
        steps=(
            Update({"K": "i", "st": _SWAPPED["st"]}, "i > 0"),
            Update({"i": "k"}, "k = 0"),
            _replace("pt = timestamp'2024-03-10 00:00:00'", "native"),
            _merge({"k": "CAST(k AS int)", **_SWAPPED}),
            Delete("ntz >= timestamp'2024-11-03 01:30:00'"),
        ),
    ),
    Session(
        name="legacy-calendar",
        confs={
            "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
            "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
            "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
            "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
            "spark.sql.parquet.outputTimestampType": "INT96",
            "spark.sql.legacy.timeParserPolicy": "LEGACY",
            "spark.sql.datetime.java8API.enabled": "true",
            "spark.sql.session.timeZone": "America/Los_Angeles",
        },
        why="days before 1582-10-15 and times before 1900 would be shifted in files that do not say their calendar",
        filters=(
            "d = date'1582-10-10'",
            "d >= to_date('1582-10-10', 'yyyy-MM-dd') AND d < '1600-01-01'",
            "pd = date'1582-10-10'",
            "ts < timestamp'1582-10-15 00:00:00'",
            "pt = timestamp'1883-11-18 04:07:00'",
            "ts = timestamp'2024-03-10 02:30:00' OR hour(ts) = 1",
        ),
        steps=(
            Update({"d": "date_sub(d, 1)", "ts": "ts", "pd": "date'1582-10-04'"}, "part = 'ab'"),
            _replace("pd = date'1500-02-28'", "arrow"),
            Dynamic([(200, 1, *ROWS[3][2:])], "native", NARROW),
            Delete("d < date'1000-01-01'"),
            Optimize(("d", "ts")),
        ),
        reads=(
            {"spark.sql.parquet.datetimeRebaseModeInRead": "EXCEPTION"},
            {"spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED"},
            {"spark.sql.parquet.int96RebaseModeInRead": "EXCEPTION"},
        ),
    ),
    Session(
        name="collations",
        confs={"spark.sql.session.timeZone": "Asia/Kathmandu"},
        why="text of other collations is equal, and ordered, otherwise than its bytes are",
        shape=COLLATED,
        pushed="ci = 'ABC' OR ci IS NULL",
        filters=(
            "ci = 'ABC'",
            "ci IN ('Abc', 'x')",
            "ci > 'B'",
            "NOT (ci = 'abc')",
            "uni = 'STRASSE'",
            "uni >= 'ä'",
            "ci LIKE 'A%'",
            "s COLLATE UTF8_LCASE = 'A'",
            "part = 'a' COLLATE UNICODE_CI",
            "ci = s",
        ),
        steps=(
            Update({"uni": "upper(uni)", "s": "ci", "ci": "s"}, "ci = 'ABC'"),
            _replace("uni = 'b'", "arrow", COLLATED),
            _merge({"ci": "upper(ci)"}, COLLATED),
            Delete("ci > 'B'"),
        ),
    ),
    Session(
        name="legacy-store",
        confs={
            "spark.sql.storeAssignmentPolicy": "LEGACY",
            "spark.sql.ansi.enabled": "false",
            "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
            "spark.sql.legacy.castComplexTypesToString.enabled": "true",
            "spark.sql.legacy.exponentLiteralAsDecimal.enabled": "true",
        },
        why="Spark would store nulls and wrong numbers, a map may name a key twice, a struct is other text, 1e1 is a "
        "decimal",
        filters=("CAST(st AS string) LIKE '%1, 2%'", "i < 1e1", "element_at(map('x', 1, 'x', i), 'x') = 5"),
        steps=(
            Update({"i": "k + 3000000000"}, "k = 0"),
            Update({"i": "s"}, "k = 0"),
            Update({"s": "CAST(st AS string)", "m": "map('x', 1, 'x', i)", "i": "k + 1e1"}, "i > 0"),
            _merge({"i": "k + 1000000000000"}),
        ),
    ),
    Session(
        name="readers",
        confs={
            "spark.sql.parquet.enableVectorizedReader": "false",
            "spark.sql.parquet.filterPushdown": "false",
            "spark.sql.parquet.recordLevelFilter.enabled": "true",
            "spark.sql.parquet.mergeSchema": "true",
            "spark.sql.parquet.writeLegacyFormat": "true",
            "spark.sql.parquet.fieldId.read.enabled": "true",
            "spark.sql.sources.partitionOverwriteMode": "dynamic",
            "spark.sql.sources.useV1SourceList": "",
            "spark.sql.sources.default": "json",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.execution.arrow.useLargeVarTypes": "true",
            "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PushDownPredicates",
        },
        why="Spark's files are read, written and filtered by other code, which must give the same rows",
        steps=(
            _replace("part IN ('a', 'A')", "native"),
            _merge({}),
            Dynamic([(200, 1, *ROWS[4][2:])], "native", NARROW),
            Delete("i < 0 OR part = '5'"),
        ),
    ),
)
