"""The demonstration tells the truth: its steps hold on a real service, and a wrong count would end it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from tarnlog import Client, Unreachable
from tarnlog_spark.demo import story as demo
from tarnlog_spark.demo.__main__ import Steps
from tarnlog_spark.demo.service import running_service
from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_story(
    spark: SparkSession, tarnlog_service: ServiceProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "BATCHES", 2)
    monkeypatch.setattr(demo, "ROWS", 400)
    monkeypatch.setattr(demo, "STREAMED_FILES", 2)
    said = io.StringIO()
    steps = Steps(Console(file=said, width=200))
    story = demo.Story(spark, tarnlog_service.url, tmp_path)
    try:
        for step in ("create", "write_together", "optimize", "merge", "travel", "plan", "vacuum", "history"):
            steps.run(step, getattr(story, step))
        monkeypatch.setattr(demo, "MERGED_ROWS", demo.MERGED_ROWS + 4)
        with pytest.raises(demo.WrongCount, match="rows before the merge"):
            story.travel()
    finally:
        story.close()
    assert "6 commits, 2,400 rows" in said.getvalue()
    assert "1 unreadable file skipped" in said.getvalue()
    assert "left by statistics" in said.getvalue()


def test_the_service_of_the_demonstration_ends_with_it(tmp_path: Path) -> None:
    with running_service(tmp_path) as url, Client(url) as client:
        assert client.health().ready
    with Client(url, timeout=1.0, deadline=0.1) as client, pytest.raises(Unreachable):
        client.health()
