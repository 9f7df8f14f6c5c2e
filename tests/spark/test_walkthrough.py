"""The walkthrough tells the truth: its cells run in order, in one Python with a Spark, and show what they say."""

from __future__ import annotations

import ast
import contextlib
import io
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tarnlog import Client
from tests.docs.pages import LOCAL_URL, WALKTHROUGH, Block, blocks, run
from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHUFFLES = "spark.sql.shuffle.partitions"


def test_the_walkthrough(
    spark: SparkSession,
    start_service: Callable[..., ServiceProcess],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = start_service().url
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shuffles = spark.conf.get(SHUFFLES) or ""
    names: dict[str, Any] = {}
    try:
        for block in blocks(WALKTHROUGH):
            said = command(block, tmp_path, url) if block.kind == "bash" else cell(block, names, url)
            assert block.shows in said, f"{block.shows!r} is not in what {block} said:\n{said}"
    finally:
        spark.conf.set(SHUFFLES, shuffles)  # session() of the first cell is this session, with its own settings
    # Nothing that the page tells of was left out: it is the story of ./dev demo.
    with Client(url) as client:
        assert Counter(commit.operation for commit in client.history("demo.orders")) == {
            "CREATE TABLE": 1,
            "WRITE": 12,
            "STREAMING UPDATE": 5,
            "SKIP FILE": 1,
            "OPTIMIZE": 1,
            "MERGE": 1,
        }


def command(block: Block, folder: Path, url: str) -> str:
    done = run(block, folder, url)
    assert done.returncode == 0, f"{block} ended with {done.returncode}\n{done.stderr}"
    return done.stdout


def cell(block: Block, names: dict[str, Any], url: str) -> str:
    """Run a block as a notebook runs a cell: names stay, and the value of a last expression is shown."""
    tree = ast.parse(block.code.replace(LOCAL_URL, url))
    ast.increment_lineno(tree, block.line + 1)  # a traceback shows the line of the page
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(tree, str(block.page), "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), str(block.page), "eval"), names)
            if value is not None:
                print(repr(value))
    return said.getvalue()
