"""The Table API on a real S3 server, without a jar: tasks read and write through pyarrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tarnlog import Client, InvalidRequest
from tarnlog_spark import Table
from tests.servers import SHARED_BUCKET, S3Server
from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_everything_without_a_jar(
    spark: SparkSession,
    s3_server: S3Server,
    start_service: Callable[..., ServiceProcess],
    name: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Keys are given with the table, so neither Spark nor its workers need any in their environment."""
    prefix = tmp_path_factory.mktemp("s3").name
    service = start_service(f"s3://{SHARED_BUCKET}/{prefix}", s3_server.environment())
    keys = {
        "s3.endpoint": s3_server.endpoint,
        "s3.region": s3_server.region,
        "s3.accessKey": s3_server.access_key,
        "s3.secretKey": s3_server.secret_key,
    }
    table = Table.create(spark, name, "id long, p string", partition_by=["p"], url=service.url, options=keys)
    for start in (0, 10):
        rows = [(n, "a b" if n % 2 else "ü%") for n in range(start, start + 6)]
        table.write(spark.createDataFrame(rows, "id long, p string").repartition(1))
    with pytest.raises(InvalidRequest, match="this Spark cannot reach s3://"):
        table.write(spark.createDataFrame([(1, "a")], "id long, p string"), writer="native")
    assert table.delete("id = 3").num_rows == 1
    merged = table.optimize().execute_compaction()
    assert (merged.num_removed_files, merged.num_added_files) == (4, 2)
    ordered = table.optimize().where("p = 'ü%'").execute_zorder_by("id", target_bytes=100)
    assert (ordered.num_removed_files, ordered.skipped) == (1, {})
    assert ordered.num_added_files > 1
    expected = Counter({0, 1, 2, 4, 5, *range(10, 16)})
    assert Counter(row.id for row in table.read().collect()) == expected
    assert Counter(row.id for row in table.read("p = 'a b' AND id > 10").collect()) == Counter({11, 13, 15})
    assert Counter(row.id for row in table.read(version=1).collect()) == Counter(range(6))
    with Client(service.url) as client:
        assert client.sessions(table.name) == ()

    form = {"url": service.url, **keys}
    more = spark.createDataFrame([(99, "z")], "id long, p string")
    more.write.format("tarnlog").mode("append").options(**form).save(name)
    found = spark.read.format("tarnlog").options(**form, filter="p = 'z' OR id = 11").load(name)
    assert sorted(row.id for row in found.collect()) == [11, 99]
