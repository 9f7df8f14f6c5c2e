"""The live feed: the event format, resuming, and no gap whatever the connection does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog import Expired, Unreachable
from tarnlog._feed import EventParser, ServerEvent
from tests.client.scripted import Scripted, answer, problem


def parsed(*chunks: bytes) -> list[ServerEvent]:
    parser = EventParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


@pytest.mark.parametrize(
    "text, expected",
    [
        (b"data: a\n\n", [ServerEvent(data="a")]),
        (b"data:a\ndata: b\n\n", [ServerEvent(data="a\nb")]),
        (b"id: 7\nevent: change\ndata: a\n\n", [ServerEvent(data="a", id="7", event="change")]),
        (b"id: 7\ndata: a\n\ndata: b\n\n", [ServerEvent(data="a", id="7"), ServerEvent(data="b", id="7")]),
        (b": heartbeat\n\n", []),
        (b"event: ping\n\ndata: a\n\n", [ServerEvent(data="a")]),
        (
            b"data: a\r\n\r\ndata: b\r\rdata: c\n\n",
            [ServerEvent(data="a"), ServerEvent(data="b"), ServerEvent(data="c")],
        ),
        (b"\xef\xbb\xbfdata: a\n\n", [ServerEvent(data="a")]),
        (b"retry: 10\nwhatever: x\ndata\n\n", [ServerEvent(data="")]),
        (b"id: a\0b\ndata: x\n\n", [ServerEvent(data="x")]),
        ("data: zwölf\n\n".encode(), [ServerEvent(data="zwölf")]),
        (b"data: unfinished", []),
    ],
)
def test_events_are_parsed_however_they_are_cut(text: bytes, expected: list[ServerEvent]) -> None:
    assert parsed(text) == expected
    assert parsed(*(text[index : index + 1] for index in range(len(text)))) == expected


@given(st.lists(st.integers(1, 40), max_size=30))
def test_cutting_never_matters(cuts: list[int]) -> None:
    text = b"id: 1\r\ndata: {\r\ndata: }\r\n\r\n: beat\r\rid: 2\rdata: x\r\rdata: \xc3\xb6\n\n"
    chunks, rest = [], text
    for cut in cuts:
        chunks.append(rest[:cut])
        rest = rest[cut:]
    assert parsed(*chunks, rest) == parsed(text)


def event(version: int, **fields: Any) -> bytes:
    document = {"version": version, "timestamp": version, "commits": [], "adds": [], "removes": [], **fields}
    return f"id: {version}\ndata: {json.dumps(document)}\n\n".encode()


class Stream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Chunks, then a break."""

    def __init__(self, *chunks: bytes, then: Exception | None = None) -> None:
        self.chunks = chunks
        self.then = then

    def __iter__(self) -> Iterator[bytes]:
        yield from self.chunks
        if self.then is not None:
            raise self.then

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self:
            yield chunk


def live(*chunks: bytes, then: Exception | None = None) -> httpx.Response:
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Stream(*chunks, then=then))


def resumed_at(script: Scripted) -> list[str | None]:
    return [each.headers.get("last-event-id") for each in script.requests if each.url.path.endswith("/events")]


def script_with_trouble() -> Scripted:
    half = event(8)[:20]
    return Scripted(
        live(b": hi\n\n", event(6), event(7) + half, then=httpx.ReadError("reset")),
        httpx.ConnectError("refused"),
        problem(503, "not-ready", retry_after="2"),
        live(event(7), event(8)),
        live(event(11)),
        answer(200, {"changes": [{"version": 9, "timestamp": 9}, {"version": 10, "timestamp": 10}]}),
        live(b'id: 12\ndata: {"version": 12, "timestamp": 12, "link": "/v1/..."}\n\n'),
        answer(200, {"changes": [{"version": 12, "timestamp": 12, "commits": [], "adds": [], "removes": []}]}),
        problem(410, "version-expired"),
    )


def test_every_version_comes_once_and_in_order_over_breaks_repeats_gaps_and_summaries() -> None:
    script = script_with_trouble()
    seen: list[int] = []
    with pytest.raises(Expired):
        seen.extend(change.version for change in script.client().events("s.t", after=5))
    assert seen == [6, 7, 8, 9, 10, 11, 12]
    assert resumed_at(script) == ["5", "7", "7", "7", "8", "11", "12"]
    fetched = [dict(each.url.params) for each in script.requests if each.url.path.endswith("/changes")]
    assert fetched == [{"from": "9", "to": "10"}, {"from": "12", "to": "12"}]
    assert any(seconds >= 2 for seconds in script.slept)


async def test_the_asyncio_feed_does_the_same() -> None:
    script = script_with_trouble()
    seen = []
    async with script.async_client() as client:
        with pytest.raises(Expired):
            async for change in client.events("s.t", after=5):
                seen.append(change.version)  # noqa: PERF401 (what came before the exception counts)
    assert seen == [6, 7, 8, 9, 10, 11, 12]
    assert resumed_at(script) == ["5", "7", "7", "7", "8", "11", "12"]


def test_without_a_start_it_begins_at_the_newest_version() -> None:
    meta = {"id": "i", "format": {"provider": "parquet"}, "schemaString": "{}", "partitionColumns": []}
    script = Scripted(answer(200, {"version": 41, "timestamp": 1, "metaData": meta}), live(event(42)))
    feed = script.client().events("s.t")
    assert next(feed).version == 42
    assert resumed_at(script) == ["41"]


def test_a_service_that_stays_away_ends_the_feed() -> None:
    script = Scripted(live(event(1)), httpx.ConnectError("refused"))
    seen: list[int] = []
    with pytest.raises(Unreachable):
        seen.extend(change.version for change in script.client(deadline=30).events("s.t", after=0))
    assert seen == [1]
    assert 20 < sum(script.slept) <= 30
