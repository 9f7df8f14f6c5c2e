"""Logs to stderr, one line an event: JSON for machines or coloured for people. Libraries' logs go the same way."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

_ENCODE = msgspec.json.Encoder(enc_hook=str).encode


def configure_logs(level: str, style: Literal["json", "console"]) -> None:
    """Set up structlog and the standard library's logging. Call once, at the start of the process."""
    number = getattr(logging, level.upper())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    tail: list[Processor] = (
        [structlog.processors.format_exc_info, _json] if style == "json" else [structlog.dev.ConsoleRenderer()]
    )
    structlog.configure(
        processors=[*shared, *tail],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *tail],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(number, logging.INFO))
    # Their start and stop lines say what ours already say.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio", "botocore", "urllib3"):
        logging.getLogger(name).setLevel(max(number, logging.WARNING))


def _json(_logger: WrappedLogger, _name: str, event: EventDict) -> str:
    # A lone surrogate in a client's text must not cost the log line.
    try:
        return _ENCODE(event).decode()
    except (UnicodeEncodeError, OverflowError, msgspec.EncodeError):
        return _ENCODE({key: repr(value) for key, value in event.items()}).decode()
