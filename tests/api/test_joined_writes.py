"""Answers leave whole: what uvicorn writes in pieces is sent together, in order, and nothing is held back for long."""

from __future__ import annotations

import asyncio
from typing import cast

from tarnlog_server.api.joined_writes import JoinedWrites


class Wire:
    """A transport that remembers each call into the system."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.ended: list[str] = []

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        self.sent.append(b"".join(parts))

    def write_eof(self) -> None:
        self.ended.append("eof")

    def close(self) -> None:
        self.ended.append("close")

    def abort(self) -> None:
        self.ended.append("abort")

    def get_extra_info(self, name: str) -> str:
        return f"the wire's {name}"


def joined() -> tuple[Wire, JoinedWrites]:
    wire = Wire()
    return wire, JoinedWrites(cast(asyncio.Transport, wire), asyncio.get_running_loop())


async def test_the_head_waits_for_the_body() -> None:
    wire, transport = joined()
    transport.write(b"head ")
    assert wire.sent == []
    transport.write(b"body")
    assert wire.sent == [b"head body"]
    await asyncio.sleep(0)
    assert wire.sent == [b"head body"]


async def test_a_head_that_nothing_follows_is_sent_in_the_same_turn() -> None:
    wire, transport = joined()
    transport.write(b"head")
    await asyncio.sleep(0)
    assert wire.sent == [b"head"]


async def test_any_number_of_writes_keeps_its_order() -> None:
    wire, transport = joined()
    for number in range(7):
        transport.write(b"%d" % number)
        if number == 4:
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert b"".join(wire.sent) == b"0123456"


async def test_what_is_held_goes_out_before_the_end() -> None:
    for end in ("close", "write_eof"):
        wire, transport = joined()
        transport.write(b"last words")
        getattr(transport, end)()
        assert (wire.sent, len(wire.ended)) == ([b"last words"], 1)


async def test_an_abort_sends_nothing_more() -> None:
    wire, transport = joined()
    transport.write(b"too late")
    transport.abort()
    await asyncio.sleep(0)
    assert (wire.sent, wire.ended) == ([], ["abort"])


async def test_the_rest_is_the_transports_own() -> None:
    _, transport = joined()
    assert transport.get_extra_info("peername") == "the wire's peername"
