"""MERGE against a merge of plain dictionaries."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)

from tarnlog import InvalidRequest
from tarnlog_spark import ConstraintError, Merge, Table
from tarnlog_spark._committing import removal
from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "id long, p string, n int, `a v` string"


@pytest.fixture
def table(spark: SparkSession, tarnlog_service: ServiceProcess, name: str) -> Table:
    """Ten rows in two partitions and several files."""
    made = Table.create(spark, name, COLUMNS, partition_by=["p"], url=tarnlog_service.url)
    rows = [(n, "even" if n % 2 == 0 else "o d", n * 10, f"old{n}") for n in range(10)]
    made.write(spark.createDataFrame(rows, COLUMNS).repartition(2))
    return made


def found(table: Table) -> dict[Any, Any]:
    rows = [tuple(row) for row in table.read().collect()]
    assert Counter(row[0] for row in rows).most_common(1)[0][1] == 1, rows
    return {row[0]: row[1:] for row in rows}


def test_every_kind_of_clause_at_once(spark: SparkSession, table: Table) -> None:
    before = found(table)
    source = {1: (None, 1), 2: ("drop", 2), 3: ("set", 3), 20: ("new", 20), 21: ("no", 21), 22: (None, 22)}
    given = spark.createDataFrame([(k, what, n) for k, (what, n) in source.items()], "id long, what string, n int")
    result = (
        table.merge(given, "t.id = s.id", target_alias="t", source_alias="s")
        .when_matched_delete("s.what = 'drop'")
        .when_matched_update({"`a v`": "concat(t.`a v`, '+', s.what)", "n": "t.n + s.n"}, "s.what IS NOT NULL")
        .when_matched_update({"p": "'moved'"})
        .when_not_matched_insert({"id": "s.id", "a v": "s.what"}, "s.what = 'new'")
        .when_not_matched_insert({"id": "s.id", "p": "'even'"}, "s.what IS NULL")
        .when_not_matched_by_source_delete("t.id = 9")
        .when_not_matched_by_source_update({"n": "-1"}, "t.n >= 70")
        .execute()
    )
    expected = dict(before)
    del expected[2], expected[9]
    expected[1] = ("moved", *before[1][1:])
    expected[3] = ("o d", 33, "old3+set")
    expected[7], expected[8] = ("o d", -1, "old7"), ("even", -1, "old8")
    expected[20], expected[22] = (None, None, "new"), ("even", None, None)
    assert found(table) == expected
    assert result.version == 2
    assert table.history(1).collect()[0].operation == "MERGE"


def test_update_all_and_insert_all_touch_only_the_files_they_must(spark: SparkSession, table: Table) -> None:
    before = {file.path for file in table._target.client.files(table.name)}
    source = spark.createDataFrame(
        [("x", 4, "even", 0), ("y", 40, "even", 0)], "`A V` string, id long, p string, n int"
    )
    table.merge(source, "target.id = source.id").when_matched_update_all().when_not_matched_insert_all().execute()
    now = found(table)
    assert (now[4], now[40], len(now)) == (("even", 0, "x"), ("even", 0, "y"), 11)
    kept = before & {file.path for file in table._target.client.files(table.name)}
    assert len(kept) == len(before) - 1


def test_nothing_to_do_is_no_commit(spark: SparkSession, table: Table) -> None:
    source = spark.createDataFrame([(77, 1)], "id long, n int")
    result = table.merge(source, "target.id = source.id").when_matched_delete().execute()
    assert (result.changed, table.version) == (False, 1)


def test_a_row_that_two_would_change_is_an_error(spark: SparkSession, table: Table) -> None:
    twice = spark.createDataFrame([(3, 1), (3, 2)], "id long, n int")
    merge = table.merge(twice, "target.id = source.id")
    with pytest.raises(ConstraintError, match="Several rows of the source match"):
        merge.when_matched_update({"n": "source.n"}).execute()
    assert table.version == 1
    # Where only one of them changes it, that one decides, and the row stays one row.
    table.merge(twice, "target.id = source.id").when_matched_update({"n": "source.n"}, "source.n = 2").execute()
    assert found(table)[3] == ("o d", 2, "old3")
    # To delete twice is to delete.
    table.merge(twice, "target.id = source.id").when_matched_delete().execute()
    assert 3 not in found(table)
    assert len(found(table)) == 9


def test_what_cannot_be_meant_is_refused(spark: SparkSession, table: Table) -> None:
    source = spark.createDataFrame([(1, 2)], "id long, other int")
    merge = table.merge(source, "target.id = source.id")
    with pytest.raises(InvalidRequest, match="at least one"):
        merge.execute()
    with pytest.raises(InvalidRequest, match="at least one column"):
        merge.when_matched_update({})
    with pytest.raises(InvalidRequest, match=r"columns that .* has not \(other\)"):
        merge.when_not_matched_insert_all().execute()
    with pytest.raises(InvalidRequest, match="no column 'nope'"):
        table.merge(source, "target.id = source.id").when_matched_update({"nope": "1"}).execute()


def counted(result: Any) -> tuple[int, ...]:
    """Rows inserted, updated, deleted and copied."""
    return (result.num_inserted_rows, result.num_updated_rows, result.num_deleted_rows, result.num_copied_rows)


def told(table: Table) -> tuple[int, ...]:
    """The same, and files added and removed, as history has them."""
    metrics = table.history(1).collect()[0].operationMetrics
    rows = [f"numTargetRows{what}" for what in ("Inserted", "Updated", "Deleted", "Copied")]
    return tuple(int(metrics[name]) for name in (*rows, "numTargetFilesAdded", "numTargetFilesRemoved"))


@pytest.mark.parametrize("counts", [True, False])
def test_a_merge_tells_what_it_did(spark: SparkSession, table: Table, counts: bool) -> None:
    client = table._target.client
    if not counts:
        without_counts(table)
    before = table._target.pin().matches(F.lit(True))
    rows = [(1, "set"), (2, "drop"), (3, "set"), (4, "leave"), (20, "new"), (21, "new"), (22, "new"), (23, "no")]
    source = spark.createDataFrame(rows, "id long, what string")
    result = (
        table.merge(source, "t.id = s.id", target_alias="t", source_alias="s")
        .when_matched_delete("s.what = 'drop'")
        .when_matched_update({"n": "t.n + 1"}, "s.what in ('set', 'drop')")
        .when_not_matched_insert({"id": "s.id"}, "s.what = 'new'")
        .when_not_matched_by_source_delete("t.id = 9")
        .execute()
    )
    gone = before.keys() - {file.path for file in client.files(table.name)}
    copied = sum(before[path] for path in gone) - 4
    assert copied > 0
    assert counted(result) == (3, 2, 2, copied)
    assert (result.num_rows, result.num_removed_files) == (7, len(gone))
    assert told(table) == (3, 2, 2, copied, result.num_added_files, len(gone))
    assert table.history(1).collect()[0].operationMetrics["numOutputRows"] == str(3 + 2 + copied)


def without_counts(table: Table) -> None:
    """The same files, as a writer leaves them that counts nothing."""
    client = table._target.client
    files = list(client.files(table.name))
    client.commit(table.name, [removal(file) for file in files], read_version=table.version)
    bare = {"stats": None, "num_records": None, "min_values": None, "max_values": None}
    client.commit(table.name, [msgspec.structs.replace(file, **bare) for file in files])
    assert all(file.num_records is None for file in client.files(table.name))


def test_what_only_some_clauses_do_is_counted_too(spark: SparkSession, table: Table) -> None:
    source = spark.createDataFrame([(3, 1), (3, 2), (40, 1)], "id long, n int")

    def merge() -> Merge:
        return table.merge(source, "target.id = source.id")

    assert counted(merge().when_not_matched_insert_all().execute()) == (1, 0, 0, 0)
    assert told(table)[:4] == (1, 0, 0, 0)
    assert counted(merge().when_not_matched_insert_all().execute()) == (0, 0, 0, 0)
    deleted = merge().when_matched_delete().execute()
    assert (deleted.num_rows, deleted.num_deleted_rows, deleted.num_inserted_rows) == (2, 2, 0)
    assert told(table)[2] == 2
    replaced = table.merge(source, "false").when_not_matched_by_source_delete().execute()
    assert counted(replaced) == (0, 0, 9, 0)
    assert (told(table)[2], table.read().count()) == (9, 0)
