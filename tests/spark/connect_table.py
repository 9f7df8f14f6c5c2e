"""What a Spark Connect client does with the Table API: `python -m tests.spark.connect_table URL TABLE OTHER THIRD`.

Prints what it saw as one line of JSON. SPARK_REMOTE says where Spark is.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "id long, p int, v string"


def main(url: str, name: str, other: str, third: str) -> dict[str, Any]:
    """Every verb once."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    return {
        "kind": type(spark).__module__,
        "changing": _changing(spark, url, name),
        "writing": _writing(spark, url, other),
        "conditions": _conditions(spark, url, third),
    }


def _changing(spark: SparkSession, url: str, name: str) -> dict[str, Any]:
    """Rows that change, and the files that are put in order."""
    from tarnlog_spark import ConstraintError, SchemaMismatch, Table

    table = Table.for_name(spark, name, url=url)
    rows = [(n, n % 2, f"v{n}") for n in range(6)]
    table.write(spark.createDataFrame(rows, COLUMNS), partition_by=["p"])
    table.delete("id = 3")
    table.update({"v": "'u'"}, "id = 5")
    source = spark.createDataFrame([(1, 1, "m"), (7, 1, "n")], COLUMNS)
    table.merge(source, "target.id = source.id").when_matched_update_all().when_not_matched_insert_all().execute()
    table.write(spark.createDataFrame([(0, 0, "r")], COLUMNS), "overwrite", replace_where="id = 0")
    refused = []
    for bad, options in (
        (spark.createDataFrame([(1, 1, "x")], COLUMNS), {"replace_where": "p = 0"}),
        (spark.createDataFrame([("x",)], "p string"), {}),
    ):
        try:
            table.write(bad, "overwrite", **options)  # type: ignore[arg-type]
        except (ConstraintError, SchemaMismatch) as error:
            refused.append(error.slug)
    kept = table.read("p = 1")
    table.optimize().execute_compaction()
    ordered = table.optimize().where("p = 1").execute_zorder_by("id", "v", target_bytes=100)
    return {
        "refused": refused,
        "rows": sorted(tuple(row) for row in table.read().collect()),
        "kept": sorted(row.id for row in kept.collect()),
        "ordered": (ordered.num_removed_files, ordered.num_added_files),
        "changes": table.changes(2, 2).count(),
        "operations": [row.operation for row in table.history().collect()],
    }


def _writing(spark: SparkSession, url: str, name: str) -> dict[str, Any]:
    """A table that is made first, every way to write to it, and the way back."""
    from tarnlog_spark import Table

    table = Table.create(spark, name, COLUMNS, partition_by=["p"], description="made by Connect", url=url)
    made = table.detail().collect()[0]

    def rows(*ids: int) -> Any:
        return spark.createDataFrame([(n, n % 2, f"v{n}") for n in ids], COLUMNS)

    def ids() -> list[int]:
        return sorted(row.id for row in table.read().collect())

    first = table.write(rows(1, 2, 3), txn_app_id="job", txn_version=1)
    again = table.write(rows(1, 2, 3), txn_app_id="job", txn_version=1)
    table.write(rows(5), "overwrite", partition_overwrite_mode="dynamic")
    dynamic = ids()
    table.write(spark.sql("SELECT 6L id, 0 p, 'v6' v, 1.5D more"), merge_schema=True)
    merged = sorted((row.id, row.more) for row in table.read().collect())
    table.write(spark.sql("SELECT 'x' id, 7 p"), "overwrite", overwrite_schema=True)
    replaced = [tuple(row) for row in table.read().collect()]
    schema = table.schema.simpleString()
    table.write(spark.sql("SELECT 'y' id, 8 p"))
    back = table.restore(4)
    found = table.vacuum(dry_run=True)
    detail = table.detail().collect()[0]
    return {
        "made": (made.version, made.partitionColumns, made.numFiles, made.description),
        "txn": (first.num_rows, again.version, bool(again.skipped)),
        "dynamic": dynamic,
        "merged": merged,
        "replaced": (schema, replaced),
        "restored": (back.num_restored_files, back.num_removed_files, [row.id for row in table.read().collect()]),
        "vacuum": (found.dry_run, found.orphaned_files_deleted),
        "detail": (detail.version, detail.numRecords, detail.numFiles),
        "travelled": sorted(row.id for row in table.read(version=2).collect()),
        "operations": [row.operation for row in table.history().collect()],
    }


def _conditions(spark: SparkSession, url: str, name: str) -> dict[str, Any]:
    """Conditions under settings that change their meaning, and those that are not deterministic."""
    from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)

    from tarnlog import InvalidRequest
    from tarnlog_spark import Table

    table = Table.for_name(spark, name, url=url)
    source = spark.createDataFrame([(1, 1, "a"), (2, 0, "p")], COLUMNS)
    table.write(source, partition_by=["v"])

    def chosen(condition: Any) -> int:
        return len(table._target.pin(filter=condition).files)

    plain = [chosen(one) for one in ("v = 'a'", 'v = "a"', "v = 'a' 'b'", "v = 'today'", F.col("v") == "a")]
    spark.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "true")
    spark.conf.set("spark.sql.ansi.enabled", "true")
    everything = chosen("v = 'p'")
    quoted = [row.id for row in table.read("\"v\" = 'a'").collect()]
    changed = table.update({"p": "p + 5"}, "\"v\" = 'a'").num_rows
    deleted = table.delete("\"v\" = 'a'").num_rows
    spark.conf.unset("spark.sql.ansi.doubleQuotedIdentifiers")
    spark.conf.unset("spark.sql.ansi.enabled")
    refused = []
    on = "target.id = source.id"
    for attempt in (
        lambda: table.delete("rand() < 2"),
        lambda: table.delete(F.udf(lambda: True, "boolean").asNondeterministic()()),
        lambda: table.update({"p": "1"}, F.rand() < 2),
        lambda: table.write(source, "overwrite", replace_where="rand() < 2"),
        lambda: table.merge(source, f"{on} AND rand() < 2").when_matched_delete().execute(),
        lambda: table.merge(source, on).when_not_matched_insert_all("rand() < 2").execute(),
        lambda: table.optimize().where('v = "p"').execute_compaction(),
    ):
        try:
            attempt()
        except InvalidRequest as error:
            refused.append(error.slug)
    return {
        "plain": plain,
        "quoted": (quoted, changed, deleted, everything),
        "refused": refused,
        "left": [tuple(row) for row in table.read().collect()],
        "version": table.version,
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:5])))
