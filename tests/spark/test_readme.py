"""The README works when it is followed: its blocks run in order on one service, and the rows are those it speaks of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tarnlog import Client
from tests.docs.data_files import live_rows
from tests.docs.pages import README, blocks, run
from tests.service_process import ServiceProcess
from tests.spark.test_walkthrough import SHUFFLES, cell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_readme(
    spark: SparkSession, start_service: Callable[..., ServiceProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = start_service().url
    monkeypatch.setenv("TARNLOG_URL", url)  # for the block that shares the Spark of this process
    folder = tmp_path / "reader"
    folder.mkdir()
    names: dict[str, Any] = {}
    shuffles = spark.conf.get(SHUFFLES) or ""
    try:
        for block in blocks(README):
            if block.spark:
                said = cell(block, names, url)
            else:
                done = run(block, folder, url)
                assert done.returncode == 0, f"{block} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
                said = done.stdout
            assert block.shows in said, f"{block.shows!r} is not in what {block} said:\n{said}"
    finally:
        spark.conf.set(SHUFFLES, shuffles)
    with Client(url) as client:
        orders = live_rows(client, "sales.orders")
        assert sorted((row["id"], row["amount"], row["day"]) for row in orders) == [
            (1, 9.5, "2024-01-01"),
            (2, 25.0, "2024-01-01"),
            (3, 30.0, "2024-01-01"),
            (4, 40.0, "2024-01-01"),
            (5, 50.0, "2024-01-02"),
            (6, 60.0, "2024-01-02"),
            (7, 70.0, "2024-01-02"),
        ]
        assert live_rows(client, "sales.returns") == [{"id": 2, "reason": "too large"}]
        for table in ("sales.orders", "sales.returns"):
            assert [check.name for check in client.verify(table).checks if not check.ok] == []
