"""`api`: the interface over everything that implements it, so that the fake never says what the service would not."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarnlog import Client, TableApi
from tarnlog.testing import FakeTarnlog


@pytest.fixture(scope="module")
def live_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real service in a process of its own, with an empty warehouse."""
    if importlib.util.find_spec("tests.service_process") is None:
        pytest.skip("needs tests/service_process.py, which starts the service")
    running = importlib.import_module("tests.service_process").running_service
    warehouse: Path = tmp_path_factory.mktemp("warehouse")
    with running(warehouse) as service:
        yield service.url


@pytest.fixture(params=["fake", "live"])
def api(request: pytest.FixtureRequest) -> Iterator[TableApi]:
    if request.param == "fake":
        yield FakeTarnlog()
        return
    with Client(request.getfixturevalue("live_url")) as client:
        yield client


@pytest.fixture
def table(api: TableApi, request: pytest.FixtureRequest) -> str:
    """A fresh table, named for the test."""
    from tests.client.scripted import SCHEMA

    name = "behaviour." + str(request.node.originalname).removeprefix("test_")[:100]
    api.create_table(name, SCHEMA, properties={"owner": "tests"}, description="a table")
    return name
