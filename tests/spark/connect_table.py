"""What a Spark Connect client does with the Table API: `python -m tests.spark.connect_table URL TABLE`.

Prints what it saw as one line of JSON. SPARK_REMOTE says where Spark is.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main(url: str, name: str) -> dict[str, Any]:
    """Every verb once."""
    from pyspark.sql import SparkSession

    from tarnlog_spark import ConstraintError, SchemaMismatch, Table

    spark = SparkSession.builder.getOrCreate()
    columns = "id long, p int, v string"
    table = Table.for_name(spark, name, url=url)
    rows = [(n, n % 2, f"v{n}") for n in range(6)]
    table.write(spark.createDataFrame(rows, columns), partition_by=["p"])
    table.delete("id = 3")
    table.update({"v": "'u'"}, "id = 5")
    source = spark.createDataFrame([(1, 1, "m"), (7, 1, "n")], columns)
    table.merge(source, "target.id = source.id").when_matched_update_all().when_not_matched_insert_all().execute()
    table.write(spark.createDataFrame([(0, 0, "r")], columns), "overwrite", replace_where="id = 0")
    refused = []
    for bad, options in (
        (spark.createDataFrame([(1, 1, "x")], columns), {"replace_where": "p = 0"}),
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
        "kind": type(spark).__module__,
        "refused": refused,
        "rows": sorted(tuple(row) for row in table.read().collect()),
        "kept": sorted(row.id for row in kept.collect()),
        "ordered": (ordered.num_removed_files, ordered.num_added_files),
        "changes": table.changes(2, 2).count(),
        "operations": [row.operation for row in table.history().collect()],
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2])))
