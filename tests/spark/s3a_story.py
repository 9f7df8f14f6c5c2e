"""Spark with the hadoop-aws jar in a process of its own: the jar must be there when its Java starts.

`python -m tests.spark.s3a_story TABLE`, with the service and the S3 server in the environment; prints JSON.
"""

from __future__ import annotations

import json
import os
import sys

import tarnlog_spark

JAR = "org.apache.hadoop:hadoop-aws:3.5.0"


def main(name: str) -> None:
    conf = {
        "spark.jars.packages": JAR,
        "spark.hadoop.fs.s3a.endpoint": os.environ["TARNLOG_S3_ENDPOINT"],
        "spark.hadoop.fs.s3a.endpoint.region": os.environ["AWS_REGION"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": os.environ["AWS_ACCESS_KEY_ID"],
        "spark.hadoop.fs.s3a.secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "spark.tarnlog.scan": "native",
        "spark.log.level": "ERROR",
    }
    spark = tarnlog_spark.session("s3a", master="local[2]", conf=conf)
    table = tarnlog_spark.Table.create(spark, name, "id long, p string", partition_by=["p"])
    rows = [(n, "a b" if n % 2 else "ü%") for n in range(10)]
    table.write(spark.createDataFrame(rows, "id long, p string"))
    table.delete("id = 3")

    def ids() -> list[int]:
        return sorted(row.id for row in table.read("p = 'a b'").collect())

    native, files = ids(), table.read().inputFiles()
    spark.conf.set("spark.tarnlog.scan", "arrow")
    print(json.dumps({"native": native, "arrow": ids(), "files": files}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
