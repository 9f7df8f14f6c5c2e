"""The plan command, through the fake."""

from __future__ import annotations

from typing import Any

import pytest

from tarnlog import Ledger, PlanExplanation
from tarnlog.protocol.plans import ExplainedFile, ExplainedManifest, Reason
from tarnlog.testing import FakeTarnlog
from tests.cli.test_commands import Shell, fake, orders, run

__all__ = ["fake", "orders", "run"]  # fixtures
TOLD = PlanExplanation(
    version=3,
    ledger=Ledger(
        manifests_total=2,
        manifests_pruned=1,
        files_total=1000,
        files_after_partition_pruning=100,
        files_after_data_skipping=10,
        files_after_cooldowns=9,
    ),
    files=(
        ExplainedFile(path="[bold]a", kept=False, because=(Reason(by="partition", column="day", pointer="/args/0"),)),
        ExplainedFile(path="b", kept=False, because=(Reason(by="bounds", column="id", least="5", greatest="9"),)),
        ExplainedFile(path="c", kept=False, because=(Reason(by="cooldown", until=0),)),
        ExplainedFile(path="d", kept=False, because=(Reason(by="never", column="id"),)),
        ExplainedFile(path="e", kept=True, because=(Reason(by="nothing", column="name"),)),
    ),
    manifests=(ExplainedManifest(path="manifests/m", kept=True, num_entries=500),),
    complete=False,
)


def test_a_plan(run: Shell, orders: str) -> None:
    result = run("plan", orders, "--filter", "id > 5")
    assert "day=1/c" in result.stdout
    assert "after statistics" in result.stdout
    assert "2 files" in result.stderr
    document = run.document("plan", orders, "--version", "1")
    assert ([file["path"] for file in document["files"]], document["version"]) == (["day=1/a", "day=1/b"], 1)
    assert document["ledger"]["filesTotal"] == 2
    assert "--limit shows more" in run("plan", orders, "--limit", "1").stderr


def test_explanations(run: Shell, orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def answer(self: FakeTarnlog, table: str, *arguments: Any, **more: Any) -> PlanExplanation:
        asked.append((arguments, more))
        return TOLD

    monkeypatch.setattr(FakeTarnlog, "explain_plan", answer)
    result = run("plan", orders, "--explain", "-f", "id > 5", "--exclude-cooldowns", "--limit", "5")
    for part in (
        "[bold]a",
        "day is null (/args/0)",
        "id from 5 to 9",
        "left alone until 1970-01-01",
        "no row satisfies id",
        "the log does not tell of name",
        "manifests/m",
        "1,000",
    ):
        assert part in result.stdout, part
    assert "1 of 2 manifests" in result.stderr
    assert "--limit shows more" in result.stderr
    assert asked[0][0] == ("id > 5",)
    assert (asked[0][1]["exclude_cooldowns"], asked[0][1]["max_files"]) == (True, 5)
    assert run.document("plan", orders, "--explain")["complete"] is False


def test_wrong_usage(run: Shell, orders: str) -> None:
    run("plan", orders, "--version", "1", "--timestamp", "2024-01-01", code=2)
    assert "table-not-found" in run("plan", "no.table", code=1).stderr
