"""A warehouse for each test, closed at its end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.usecases.replicas import Warehouse


@pytest_asyncio.fixture
async def warehouse() -> AsyncIterator[Warehouse]:
    made = Warehouse()
    yield made
    await made.close()
