"""Metrics for Prometheus, and the last minutes of each table for people who look at the dashboard."""

from __future__ import annotations

from collections.abc import Callable

from tarnlog_server.core.activity import Activity
from tarnlog_server.telemetry.metrics import PrometheusTelemetry


class RecordingTelemetry(PrometheusTelemetry):
    """Counts everything, and notes by table what a dashboard shows. A note is a few additions."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__()
        self.activity = Activity()
        self._monotonic = monotonic

    def commit_answered(self, table: str, outcome: str, seconds: float) -> None:
        super().commit_answered(table, outcome, seconds)
        self.activity.commit_answered(self._monotonic(), table, outcome, seconds)

    def conflict(self, table: str, rule: str) -> None:
        super().conflict(table, rule)
        self.activity.conflict(table, rule)

    def storage(self, op: str, code: str, seconds: float, size: int) -> None:
        super().storage(op, code, seconds, size)
        self.activity.storage(self._monotonic(), code, seconds)
