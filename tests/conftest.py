"""What every test shares: the long switch, hypothesis profiles, and the real servers of tests/servers.py."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

LONG = os.environ.get("TARNLOG_TEST_LONG", "") not in ("", "0")
"""True under `./dev test --long`: many seeds instead of enough seeds."""
LONGEST_ID = 40
FIRST = ("spark", "process")
"""Folders whose tests wait for processes as often as they compute: they begin first, beside each other, and the others
fill the time (`tests/scheduling.py`)."""

pytest_plugins = ["tests.servers"] if importlib.util.find_spec("tests.servers") else []

# No deadline: a busy machine is not a bug. The blob in a failure replays it with @reproduce_failure.
_shared = settings(
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("default", parent=_shared)
settings.register_profile("long", parent=_shared, max_examples=2000)
settings.load_profile("long" if LONG else "default")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folders = {Path(__file__).parent / name: place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: next((at for folder, at in folders.items() if folder in item.path.parents), len(FIRST)))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Whole files as parameters go by the argument's name: some hold a time or a random mark, and all workers must find
    the same tests."""
    return argname if isinstance(val, bytes) and len(val) > LONGEST_ID else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.scheduling import SparkOnTwoWorkers  # late: a run without workers needs no xdist

    return SparkOnTwoWorkers(config, log)


@pytest.fixture(scope="session")
def long_run() -> bool:
    """LONG as a fixture, for tests that scale themselves."""
    return LONG
