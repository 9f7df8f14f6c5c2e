"""The read-only functions of SQL, against what the client says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import tarnlog_spark
from tarnlog import Client, InvalidRequest, Txn
from tarnlog_spark._functions import FUNCTIONS
from tests.service_process import ServiceProcess
from tests.spark.hand_made import HandMade

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_every_function(spark: SparkSession, client: Client, name: str, tarnlog_service: ServiceProcess) -> None:
    table = HandMade(client, name)
    one, two = table.file([1, 2]), table.file([100])
    table.commit(one, two)
    table.commit(Txn(app_id="app", version=7), table.file([3]))
    table.remove(one)
    client.record_skip(name, two.path, reason="torn", operation="OPTIMIZE", cooldown_hours=2)
    tarnlog_spark.register(spark, url=tarnlog_service.url)

    def rows(call: str) -> list[Any]:
        return spark.sql(f"SELECT * FROM {call}").collect()

    history = list(client.history(name))
    found = rows(f"tarnlog_history('{name}')")
    assert [(row.version, row.commitId, row.operation) for row in found] == [
        (record.version, record.commit_id, record.operation) for record in history
    ]
    assert found[-2].operationMetrics == {}
    assert int(found[0].timestamp.timestamp() * 1000) == history[0].timestamp

    assert rows(f"tarnlog_state('{name}')")[0].numFiles == 2
    assert {row.path for row in rows(f"tarnlog_files('{name}')")} == {file.path for file in client.files(name)}
    at_one = rows(f"tarnlog_files('{name}', version => 1)")
    assert {row.path for row in at_one} == {one.path, two.path}
    assert [row.minValues for row in at_one if row.path == two.path] == [{"id": "100"}]
    assert [row.path for row in rows(f"tarnlog_plan('{name}', 'id > 50')")] == [two.path]
    assert {row.path for row in rows(f"tarnlog_plan('{name}', 'id > 50', 1)")} == {two.path}

    log = rows(f"tarnlog_log('{name}')")
    assert [row.action for row in log] == [
        "protocol", "metaData", "add", "add", "txn", "add", "remove", "mergeskip"
    ]  # fmt: skip
    assert [(row.version, row.appId, row.txnVersion) for row in log if row.action == "txn"] == [(2, "app", 7)]
    assert [row.path for row in log if row.action == "remove"] == [one.path]
    assert {row.version for row in rows(f"tarnlog_log('{name}', 2, 3)")} == {2, 3}

    skip = rows(f"tarnlog_skips('{name}')")[0]
    assert (skip.path, skip.reason, skip.operation, skip.skipCount) == (two.path, "torn", "OPTIMIZE", 1)
    cooldown = rows(f"tarnlog_cooldowns('{name}')")[0]
    assert (cooldown.path, cooldown.retryAfter) == (two.path, skip.retryAfter)

    with pytest.raises(Exception, match=r"there is no table no\.where"):
        rows("tarnlog_history('no.where')")
    assert set(FUNCTIONS) >= {"tarnlog_history", "tarnlog_state", "tarnlog_files", "tarnlog_log", "tarnlog_plan"}


def test_a_plan_of_a_filter_that_is_not_understood_is_refused(
    spark: SparkSession, client: Client, name: str, tarnlog_service: ServiceProcess
) -> None:
    """It would list every file, as if a scan with this filter read them all."""
    HandMade(client, name).add([1], [2])
    tarnlog_spark.register(spark, url=tarnlog_service.url)
    with pytest.raises(InvalidRequest) as told:
        client.plan(name, "nope = 1")
    with pytest.raises(Exception, match="nope") as error:
        spark.sql(f"SELECT * FROM tarnlog_plan('{name}', 'nope = 1')").collect()
    assert told.value.detail in str(error.value)


def test_a_log_that_was_cleaned_begins_at_its_oldest_version(
    spark: SparkSession, client: Client, name: str, tarnlog_service: ServiceProcess
) -> None:
    table = HandMade(client, name)
    for value in (1, 2, 3):
        table.add([value])
    assert table.cleaned(4) == 3
    tarnlog_spark.register(spark, url=tarnlog_service.url)

    def versions(call: str) -> list[int]:
        return sorted({row.version for row in spark.sql(f"SELECT version FROM {call}").collect()})

    kept = versions(f"tarnlog_history('{name}')")
    assert kept[-1] == 4
    assert 0 not in kept
    assert versions(f"tarnlog_log('{name}')") == kept
    assert versions(f"tarnlog_log('{name}', last => 3)") == [version for version in kept if version <= 3]
    with pytest.raises(Exception, match="oldest version kept is 3"):
        versions(f"tarnlog_log('{name}', 0)")
