"""What a Spark Connect client does with the format, in a process of its own: `python -m tests.spark.connect_story`.

Takes the service's address and a folder, and prints what it saw as one line of JSON. SPARK_REMOTE says where Spark is.
The pipeline stops the session, so it comes last.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PIPELINE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
options = {options}

dp.create_sink("out", format="tarnlog", options={{**options, "table": "connect.out"}})


@dp.append_flow(target="out")
def flow():
    return spark.readStream.format("tarnlog").options(**options).load("connect.rows")


@dp.materialized_view
def counted():
    return spark.read.format("tarnlog").options(**options).load("connect.rows").groupBy().count()
"""


def main(url: str, home: Path) -> dict[str, Any]:
    """Everything, in order."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    seen: dict[str, Any] = {"kind": type(spark).__module__}
    seen |= _batch(spark, url)
    seen |= _stream(spark, url, home)
    _pipeline(url, home)
    return seen


def _batch(spark: SparkSession, url: str) -> dict[str, Any]:
    import tarnlog_spark

    form = {"url": url}
    spark.createDataFrame([(1, "a"), (2, "b")], "id long, day string").write.format("tarnlog").mode("append").options(
        **form
    ).save("connect.rows")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    rows = spark.read.format("tarnlog").options(**form).load("connect.rows")
    found = [row.id for row in rows.where("id > 1").collect()]
    tarnlog_spark.register(spark, url=url)
    history = spark.sql("SELECT operation FROM tarnlog_history('connect.rows') ORDER BY version").collect()
    try:
        rows.write.format("tarnlog").mode("append").options(**form, wrong="x").save("connect.rows")
        refused = ""
    except Exception as error:
        refused = str(error)
    return {"filtered": found, "history": [row.operation for row in history], "refused": "no option 'wrong'" in refused}


def _stream(spark: SparkSession, url: str, home: Path) -> dict[str, Any]:
    source = spark.readStream.format("tarnlog").option("url", url).load("connect.rows")
    writer = source.writeStream.format("tarnlog").options(url=url, checkpointLocation=str(home / "checkpoint"))
    query = writer.trigger(availableNow=True).start("connect.copy")
    query.awaitTermination(240)
    return {"copied": spark.read.format("tarnlog").option("url", url).load("connect.copy").count()}


def _pipeline(url: str, home: Path) -> None:
    from pyspark.pipelines import cli

    project = home / "project"
    (project / "transformations").mkdir(parents=True, exist_ok=True)
    (project / "transformations" / "flows.py").write_text(_PIPELINE.format(options={"url": url}))
    spec = {
        "name": "story",
        "storage": (home / "storage").as_uri(),
        "libraries": [{"glob": {"include": "transformations/**"}}],
    }
    (project / "spark-pipeline.yml").write_text(json.dumps(spec))
    cli.run(spec_path=project / "spark-pipeline.yml", full_refresh=[], full_refresh_all=False, refresh=[], dry=False)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
