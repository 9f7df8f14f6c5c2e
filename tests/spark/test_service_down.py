"""A service that is down: every way into the connector says so with the URL, goes on trying, and ends at its deadline.

The processes that Spark starts for the format write what is logged here to the driver's stderr.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from tarnlog import Unreachable
from tarnlog_spark import Table
from tarnlog_spark._format import TarnlogFormat
from tests.service_process import free_port
from tests.spark.test_arguments import NoSpark

DEADLINE = 6
IDS = StructType([StructField("id", LongType())])


def ways(port: int) -> dict[str, Callable[[], Any]]:
    """A host name for each, so that its notices can be told from the others'."""

    def url(host: int) -> str:
        return f"http://127.0.0.{host}:{port}"

    def table(host: int) -> Table:
        return Table.for_name(cast(Any, NoSpark()), "s.t", url=url(host), deadline=DEADLINE)

    def source(host: int, **more: str) -> TarnlogFormat:
        return TarnlogFormat({"path": "s.t", "url": url(host), "deadlineSeconds": str(DEADLINE), **more})

    return {
        url(2): lambda: table(2).version,
        url(3): lambda: table(3).restore(1),
        url(4): lambda: source(4).schema(),
        url(5): lambda: source(5).reader(IDS).partitions(),
        url(6): lambda: source(6).writer(IDS, overwrite=False),
        url(7): lambda: source(7).streamReader(IDS).initialOffset(),
        url(8): lambda: source(8, txnAppId="a").streamWriter(IDS, overwrite=False),
    }


def test_each_way_in_names_the_url_while_it_waits_and_in_its_error(caplog: pytest.LogCaptureFixture) -> None:
    called = ways(free_port())

    def outcome(call: Callable[[], Any]) -> BaseException | None:
        with contextlib.suppress(AssertionError):
            try:
                call()
            except Unreachable as error:
                return error
        return None

    with caplog.at_level(logging.WARNING, logger="tarnlog"), ThreadPoolExecutor(len(called)) as pool:
        errors = dict(zip(called, pool.map(outcome, called.values()), strict=True))
    for url, error in errors.items():
        assert isinstance(error, Unreachable), url
        assert url in str(error)
        assert "Check that the service runs there" in str(error)
        notices = [line for line in caplog.messages if url in line]
        assert notices, f"{url}: silence until the deadline"
        assert "Trying again for" in notices[0]
