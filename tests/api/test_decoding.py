"""What a client is told about a value that is none of a few: which ones there are."""

from __future__ import annotations

import msgspec
import pytest

from tarnlog.protocol.problems import ProblemError
from tarnlog.protocol.tables import WriteCheckpoint
from tarnlog_server.api.decoding import body_as
from tests.api.conftest import Api


async def test_a_format_that_is_not_known_is_answered_with_those_that_are(api: Api, table: str) -> None:
    answer = await api.post(f"{table}/checkpoint", json={"format": "orc"})
    assert answer.status_code == 422
    assert answer.json()["detail"] == "/format: must be one of avro, json, parquet, not 'orc'"


def test_a_wrong_type_has_no_choices() -> None:
    with pytest.raises(ProblemError) as caught:
        body_as(msgspec.json.Decoder(WriteCheckpoint), b'{"format": 7}')
    assert caught.value.detail == "/format: must be a string or null, not a number"


async def test_a_retention_that_is_too_short_is_told_in_hours(api: Api, table: str) -> None:
    answer = await api.post(f"{table}/vacuum", json={"retentionHours": 1.5})
    assert answer.json()["detail"].startswith("/retentionHours: 1.5 hours are too short")
