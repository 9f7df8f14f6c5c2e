"""Storage that does not answer: an optimize ends with that, and no file is called broken for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tarnlog import Client, Unavailable
from tarnlog_spark import Table
from tests.servers import SHARED_BUCKET, S3Server
from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_nothing_happens(table: Table, client: Client, why: str) -> None:
    """Neither a commit nor a skip, by either kind of optimize."""
    before = client.snapshot(table.name)
    for columns in ((), ("id",)):
        asked = table.optimize()
        with pytest.raises(Unavailable, match=why) as error:
            asked.execute_zorder_by(*columns, target_bytes=100) if columns else asked.execute_compaction()
        assert "try again" in error.value.detail
        assert error.value.slug == "data-file-unreachable"
    assert client.snapshot(table.name) == before
    assert list(client.skips(table.name)) == []
    assert client.cooldowns(table.name) == {}


def test_a_disk_that_fails(spark: SparkSession, tarnlog_service: ServiceProcess, client: Client, name: str) -> None:
    table = Table.create(spark, name, "id long", url=tarnlog_service.url)
    for start in (0, 10, 20):
        table.write(spark.range(start, start + 10, 1, 1))
    folder = Path(client.get_table(name).location.removeprefix("file://"))
    file = folder / next(file.path for file in client.files(name))
    whole = file.rename(file.with_name("whole"))
    file.symlink_to(file.name)  # an error of the disk, for whoever may read everything
    check_nothing_happens(table, client, "symbolic links")
    whole.rename(file)
    assert table.optimize().execute_compaction().num_removed_files == 3
    assert sorted(row.id for row in table.read().collect()) == list(range(30))


def test_a_store_that_refuses(
    spark: SparkSession,
    s3_server: S3Server,
    start_service: Callable[..., ServiceProcess],
    name: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The key is wrong; `test_arrow_read` has a server that is not there, which takes longer to give up."""
    service = start_service(f"s3://{SHARED_BUCKET}/{tmp_path_factory.mktemp('s3').name}", s3_server.environment())
    keys = {
        "s3.endpoint": s3_server.endpoint,
        "s3.region": s3_server.region,
        "s3.accessKey": s3_server.access_key,
        "s3.secretKey": s3_server.secret_key,
    }
    table = Table.create(spark, name, "id long", url=service.url, options=keys)
    for start in (0, 10):
        table.write(spark.range(start, start + 10, 1, 1))
    with Client(service.url) as client:
        refused = Table.for_name(spark, name, url=service.url, options={**keys, "s3.secretKey": "another"})
        check_nothing_happens(refused, client, "403|ACCESS_DENIED|SIGNATURE")
    assert table.optimize().execute_compaction().num_removed_files == 2
