"""Requests made from the API's own description, valid and not: none may break the service or surprise its description.

A failure prints the request as a curl command, and the seed: TARNLOG_TEST_SEED=<seed> runs the same requests again.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, seed, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from tarnlog_server.api.examples import SCHEMA
from tarnlog_server.openapi import document
from tests.conftest import LONG
from tests.service_process import running_service

SEED = int(os.environ.get("TARNLOG_TEST_SEED") or random.randrange(2**32))
EXAMPLES = 500 if LONG else 20
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
TABLE = "sales.orders"

# The live feed does not end by itself; tests/api/test_live.py has it.
_described = schemathesis.openapi.from_dict(msgspec.json.decode(msgspec.json.encode(document())))
described = _described.exclude(operation_id="streamEvents")
bounded = settings(
    max_examples=EXAMPLES,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    deadline=None,
    database=None,
)
pytestmark = pytest.mark.xdist_group("schemathesis")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_service(tmp_path_factory.mktemp("schemathesis") / "warehouse") as service:
        yield service.url
        assert service.returncode is None, service.logs
        assert "Traceback" not in service.logs, service.logs[-8000:]


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        yield session


@described.parametrize()
@seed(SEED)
@bounded
def test_any_request(case: Case[Any], url: str, session: requests.Session) -> None:
    print(f"TARNLOG_TEST_SEED={SEED}")
    case.call_and_validate(url, session, checks=[*CHECKS, negative_data_rejection], timeout=30)


def mend(body: Any) -> None:
    """Make the adds of a commit fit the table, where they are adds at all: more than the front door is tried."""
    actions = body.get("actions") if isinstance(body, dict) else None
    for action in actions if isinstance(actions, list) else []:
        add = action.get("add") if isinstance(action, dict) else None
        if isinstance(add, dict) and len(repr(add)) % 3:
            add.update(path=f"file-{uuid.uuid4()}", partitionValues={"day": "2024-01-01"})


@described.include(path_regex=r"\{table\}").parametrize()
@seed(SEED)
@bounded
def test_any_request_about_a_table_that_is_there(case: Case[Any], url: str, session: requests.Session) -> None:
    print(f"TARNLOG_TEST_SEED={SEED}")
    table: dict[str, Any] = {"name": TABLE, "schema": SCHEMA, "partitionColumns": ["day"]}
    made = session.post(f"{url}/v1/tables", json=table, timeout=30)
    assert made.status_code in (201, 409), made.text
    case.path_parameters = {**(case.path_parameters or {}), "table": TABLE}
    mend(case.body)
    case.call_and_validate(url, session, checks=CHECKS, timeout=30)
