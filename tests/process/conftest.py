"""Real processes: the fixtures that start them, and a seed that every failure shows."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service_process import ServiceProcess, start_service

__all__ = ["rng", "start_pair", "start_service"]

Env = dict[str, str]


@pytest.fixture
def start_pair(start_service: Callable[..., ServiceProcess]) -> Callable[..., list[ServiceProcess]]:
    """Starts two services on one warehouse at once: start_pair(warehouse=None, env=None, env_of_second=None)."""

    def start(
        warehouse: Path | str | None = None, env: Env | None = None, env_of_second: Env | None = None
    ) -> list[ServiceProcess]:
        envs = (env, env if env_of_second is None else env_of_second)
        pair = [start_service(warehouse, each, wait=False) for each in envs]
        for service in pair:
            service.wait_ready(60)
        return pair

    return start


@pytest.fixture
def rng() -> random.Random:
    """Chance for one test. TARNLOG_TEST_SEED repeats a choice of moments; what the machine does in them it cannot."""
    seed = int(os.environ.get("TARNLOG_TEST_SEED") or time.time_ns() % 2**32)
    print(f"TARNLOG_TEST_SEED={seed}")
    return random.Random(seed)
