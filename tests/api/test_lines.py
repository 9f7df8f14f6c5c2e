"""Log lines: together in a turn, in order, never lost; urgent ones at once."""

from __future__ import annotations

import asyncio
import io
import threading

from tarnlog_server.telemetry.lines import TurnLines


class Stream(io.StringIO):
    """Remembers each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return len(text)


async def test_the_lines_of_a_turn_are_one_write() -> None:
    stream = Stream()
    lines = TurnLines(stream)
    lines.info("one")
    lines.info("two")
    assert stream.writes == []
    await asyncio.sleep(0)
    assert stream.writes == ["one\ntwo\n"]
    lines.info("three")
    await asyncio.sleep(0)
    assert stream.writes == ["one\ntwo\n", "three\n"]


async def test_what_is_urgent_does_not_wait_and_keeps_its_place() -> None:
    stream = Stream()
    lines = TurnLines(stream)
    lines.info("before")
    lines.error("it burns")
    assert stream.writes == ["before\nit burns\n"]


def test_without_a_loop_lines_are_written_at_once() -> None:
    stream = Stream()
    lines = TurnLines(stream)
    lines.info("one")
    lines.error("two")
    assert stream.writes == ["one\n", "two\n"]


async def test_another_thread_writes_for_itself() -> None:
    stream = Stream()
    lines = TurnLines(stream)
    lines.info("held by the loop")
    thread = threading.Thread(target=lambda: (lines.info("a"), lines.error("b")))
    thread.start()
    thread.join()
    assert stream.writes == ["a\n", "b\n"]
    await asyncio.sleep(0)
    assert stream.writes[2:] == ["held by the loop\n"]


def test_a_loop_that_ends_first_loses_nothing() -> None:
    stream = Stream()
    lines = TurnLines(stream)

    async def last_words() -> None:
        lines.info("stopped")
        asyncio.get_running_loop().stop()

    loop = asyncio.new_event_loop()
    task = loop.create_task(last_words())
    loop.run_forever()
    assert task.done()
    loop.close()
    asyncio.run(_said(lines, "a new loop"))
    lines.flush()
    assert "".join(stream.writes) == "stopped\na new loop\n"


async def _said(lines: TurnLines, line: str) -> None:
    lines.info(line)
