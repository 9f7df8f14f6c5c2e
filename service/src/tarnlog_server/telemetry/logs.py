"""Logs to stderr, one line an event: JSON for machines or coloured for people. Libraries' logs go the same way."""

from __future__ import annotations

import logging
import sys
import time
from typing import Literal

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from tarnlog_server.ports.telemetry import REQUEST_ID
from tarnlog_server.telemetry.lines import TurnLinesFactory

_ENCODE = msgspec.json.Encoder(enc_hook=str).encode


def configure_logs(level: str, style: Literal["json", "console"]) -> None:
    """Set up structlog and the standard library's logging. Call once, at the start of the process."""
    number = getattr(logging, level.upper())
    head = LineHead()
    tail: list[Processor] = (
        [structlog.processors.format_exc_info, _json] if style == "json" else [structlog.dev.ConsoleRenderer()]
    )
    structlog.configure(
        processors=[head, *tail],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=TurnLinesFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[head, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *tail],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(number, logging.INFO))
    # Their start and stop lines say what ours already say.
    for name in (
        "uvicorn",
        "uvicorn.error",
        "uvicorn.access",
        "asyncio",
        "botocore",
        "urllib3",
        "httpx",
        "httpcore",
        "alembic",
    ):
        logging.getLogger(name).setLevel(max(number, logging.WARNING))


class LineHead:
    """What every line says: when, how urgent, and for which request. One step, because every commit writes a line."""

    def __init__(self) -> None:
        self._second = -1
        self._prefix = ""

    def __call__(self, _logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
        second, micro = divmod(time.time_ns() // 1000, 1_000_000)
        if second != self._second:
            self._prefix = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._second = second
        event["level"] = "warning" if name == "warn" else "error" if name == "exception" else name
        event["timestamp"] = f"{self._prefix}.{micro:06d}Z"
        request_id = REQUEST_ID.get()
        if request_id:
            event["request_id"] = request_id
        return event


def _json(_logger: WrappedLogger, _name: str, event: EventDict) -> str:
    # A lone surrogate in a client's text must not cost the log line.
    try:
        return _ENCODE(event).decode()
    except (UnicodeEncodeError, OverflowError, msgspec.EncodeError):
        return _ENCODE({key: repr(value) for key, value in event.items()}).decode()
