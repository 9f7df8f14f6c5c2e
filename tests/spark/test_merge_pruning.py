"""Files of a merge's target that cannot hold a key of the source are not read, and the rows are the same."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as T  # noqa: N812 (Spark's own convention)

from tarnlog.protocol.predicates import And, Compare, In, Predicate
from tarnlog_spark import Table, _merging
from tarnlog_spark._merge_pruning import FEW, Values, _as_values, predicate_of
from tarnlog_spark._target import write_files
from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = "x" * 300
NOTHING = In("c", (None,))


@pytest.mark.parametrize(
    "kind, values, expected",
    [
        (T.LongType(), Values(1, 9, (1, 5, 9)), In("c", (1, 5, 9))),
        (T.LongType(), Values(1, 9), And((Compare("ge", "c", 1), Compare("le", "c", 9)))),
        (T.LongType(), Values(7, 7, (7,)), Compare("eq", "c", 7)),
        (T.LongType(), Values(None, None), NOTHING),
        (T.LongType(), None, None),
        (T.ByteType(), Values(-200, 5, (-200, 5)), Compare("eq", "c", 5)),
        (T.ByteType(), Values(-200, 500), And((Compare("ge", "c", -128), Compare("le", "c", 127)))),
        (T.ByteType(), Values(200, 500), NOTHING),
        (T.ByteType(), Values(-200, 500, (-200, 500)), NOTHING),
        (T.StringType(), Values("a", LONG, ("a", LONG)), Compare("ge", "c", "a")),
        (T.StringType(), Values(LONG, LONG, (LONG,)), Compare("ge", "c", LONG[:256])),
    ],
)
def test_the_predicate_of_a_key(kind: T.DataType, values: Values | None, expected: Predicate | None) -> None:
    assert predicate_of([(T.StructField("c", kind), values)]) == expected


@pytest.mark.parametrize(
    "kind, found, expected",
    [
        (T.LongType(), (None, None, None), Values(None, None)),
        (T.LongType(), (1, 3, [3, 1]), Values(1, 3, (1, 3))),
        (T.LongType(), (1, 2 * FEW, list(range(2 * FEW))), Values(1, 2 * FEW)),
        (T.DateType(), ("2024-01-01", "2024-01-01", None), Values("2024-01-01", "2024-01-01", ("2024-01-01",))),
        (T.DateType(), ("2024-01-01", "+10000-01-01", None), None),
        (T.TimestampType(), (0, 1, None), Values("1970-01-01T00:00:00+00:00", "1970-01-01T00:00:00.000001+00:00")),
        (T.TimestampType(), (0, 2**62, None), None),
        (T.DecimalType(38, 0), (Decimal("1E+20"), Decimal("1E+21"), None), Values("1" + "0" * 20, "1" + "0" * 21)),
        (T.StringType(), ("a", "b\ufffd", None), None),
        (T.StringType(), ("a", "c", ["a", "b\ufffd", "c"]), Values("a", "c")),
    ],
)
def test_the_values_of_a_key(kind: T.DataType, found: tuple[Any, Any, Any], expected: Values | None) -> None:
    assert _as_values(*found, kind) == expected


@pytest.fixture
def table(spark: SparkSession, tarnlog_service: ServiceProcess, name: str) -> Table:
    """Forty rows, ten to each file, and a row of nulls."""
    ddl = "i int, l long, d date, t timestamp, s string, p decimal(12, 3), f double, v string"
    made = Table.create(spark, name, ddl, url=tarnlog_service.url)
    values = [
        "int(id) i",
        "id l",
        "date_add(date'2024-01-01', int(id)) d",
        "timestamp_seconds(id) t",
        "concat('k', lpad(id, 4, '0')) s",
        "cast(id / 8 AS decimal(12, 3)) p",
        "double(id) f",
        "'old' v",
    ]
    made.write(spark.range(0, 40, 1, 4).selectExpr(*values))
    return made


def updated(table: Table) -> list[int | None]:
    return sorted(row.l for row in table.read("v = 'new'").collect())


def test_only_files_that_may_match_are_read(spark: SparkSession, table: Table) -> None:
    source = table.read("l IN (12, 14)").union(table.read("l = 1").selectExpr(*["null"] * 8)).localCheckpoint()
    cases = {
        "source.l = target.i": 1,  # compared as long
        "target.l = source.i + 1 AND target.v != 'x'": 1,
        "target.d = source.d": 1,
        "target.t = source.t": 1,
        "target.s = source.s": 1,
        "target.p = source.p": 1,
        "target.s = upper(source.s) AND target.l = source.l": 0,
        "target.f = source.f": 4,
        "target.l <=> source.l": 4,
        "target.l = source.l OR target.i = source.i": 4,
    }
    for condition, candidates in cases.items():
        merge = table.merge(source, condition).when_matched_update({"v": "'new'"}).when_matched_delete("false")
        result = merge.execute()
        matched = {0: [], 1: [12, 14], 4: [12, 14]}[candidates]
        shift = 1 if "+ 1 AND" in condition else 0
        assert updated(table) == [number + shift for number in matched], condition
        assert (result.num_files_before_skipping, result.num_files_after_skipping) == (4, candidates), condition
        if result.changed:
            table.restore(1)
    empty = table.merge(source.limit(0), "target.l = source.l").when_matched_delete().execute()
    assert (empty.changed, empty.num_files_after_skipping) == (False, 0)
    told = table.history().where("operation = 'MERGE'").collect()[-1].operationMetrics  # of the first one
    names = ("numTargetFilesBeforeSkipping", "numTargetFilesAfterSkipping", "numTargetFilesRemoved")
    assert [told[name] for name in names] == ["4", "1", "1"]


def test_a_number_that_is_narrowed_prunes_nothing(
    spark: SparkSession, tarnlog_service: ServiceProcess, name: str
) -> None:
    """Without ANSI mode a cast wraps around: 4294967297 is 1. What is the time of day is another value in each job."""
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", "false")
    table = Table.for_name(session, name, url=tarnlog_service.url)
    table.write(session.createDataFrame([(2**32 + 1, "old")], "l long, v string"))
    source = session.createDataFrame([(1,)], "i int")
    for condition, found in {"int(target.l) = source.i": 1, "target.l = unix_date(current_date())": 0}.items():
        result = table.merge(source, condition).when_matched_update({"v": "'new'"}).execute()
        assert (result.num_updated_rows, result.num_files_after_skipping) == (found, 1), condition


def test_inserts_and_rows_without_a_match(spark: SparkSession, table: Table) -> None:
    rows = spark.range(8, 44, 4).selectExpr("id l", "'new' v").where("l > 30")
    merge = table.merge(rows, "target.l = source.l").when_matched_update_all().when_not_matched_insert_all()
    result = merge.execute()
    assert (result.num_inserted_rows, result.num_updated_rows, result.num_files_after_skipping) == (1, 2, 1)
    assert updated(table) == [32, 36, 40]
    assert table.read().count() == 41
    result = table.merge(rows, "target.l = source.l").when_not_matched_by_source_delete("target.l < 5").execute()
    assert (result.num_deleted_rows, result.num_files_after_skipping) == (5, result.num_files_before_skipping)
    assert table.merge(rows.where("false"), "target.l = source.l").when_matched_delete().execute().changed is False


def test_a_merge_loses_only_to_rows_that_it_decided_upon(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = spark.sql("select 12L l, 'new' v")
    meanwhile: list[dict[str, str]] = [{"f": "0"}, {"l": "12"}]
    attempts: list[int] = []

    def delayed(*arguments: Any) -> Any:
        attempts.append(1)
        if meanwhile:
            table.update(meanwhile.pop(0), "i = 35")
        return write_files(*arguments)

    monkeypatch.setattr(_merging, "write_files", delayed)
    table.merge(source, "target.l = source.l").when_matched_update({"v": "source.v"}).execute()
    assert (len(attempts), updated(table)) == (1, [12])
    table.merge(source, "target.l = source.l").when_matched_update({"v": "source.v"}).execute()
    assert (len(attempts), updated(table)) == (3, [12, 12])
