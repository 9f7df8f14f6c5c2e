"""What both clients need of httpx and of the process around them: the URL, the key, the errors, ids and chance."""

from __future__ import annotations

import logging
import os
import random
import ssl
import time
from functools import lru_cache

import httpx
from msgspec import Struct

from tarnlog._errors import InvalidRequest
from tarnlog._exchange import Answer, NoAnswer
from tarnlog.protocol.ids import uuid7

DEFAULT_URL = "http://127.0.0.1:8420"
STREAM_SILENCE_SECONDS = 60.0
"""How long the live feed may say nothing, not even a heartbeat, before it counts as broken."""

CONNECT_SECONDS = 4.0
"""How long to wait for a connection: a host that is away is reported within five seconds."""
LOG = logging.getLogger("tarnlog")
"""Notices of the clients. Where the process has no logging set up, Python writes warnings to stderr."""
RNG = random.SystemRandom()
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


def new_commit_id() -> str:
    """A commit id: a UUID version 7. Make it before the first send, and keep it for every resend."""
    return str(uuid7(time.time_ns() // 1_000_000, RNG))


class Endpoint(Struct, frozen=True):
    """Where the service is and how to ask it."""

    url: httpx.URL
    headers: dict[str, str]
    trust_env: bool

    def tls(self) -> ssl.SSLContext:
        """Which authorities are trusted: shared by all clients of the process, until what the environment names is
        changed or replaced."""
        places = [os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")]
        return _tls(self.trust_env, *((place, _changed(place)) for place in places))


def endpoint(url: str | None, api_key: str | None) -> Endpoint:
    """The arguments, else TARNLOG_URL and TARNLOG_API_KEY, else the local service without a key."""
    text = url or os.environ.get("TARNLOG_URL") or DEFAULT_URL
    try:
        parsed = httpx.URL(text)
    except httpx.InvalidURL:
        parsed = httpx.URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidRequest(f"{text!r} is not a service URL: write for example {DEFAULT_URL}")
    key = api_key or os.environ.get("TARNLOG_API_KEY")
    headers = {"user-agent": "tarnlog-python", "accept": "application/json"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    # A proxy that the environment names cannot see this machine's own loopback.
    trust_env = parsed.host not in ("127.0.0.1", "localhost", "::1")
    return Endpoint(parsed, headers, trust_env=trust_env)


@lru_cache(maxsize=8)
def _tls(trust_env: bool, *_certificates: tuple[str | None, int]) -> ssl.SSLContext:
    """What httpx would make for each client anew: reading all known authorities takes tens of milliseconds.

    What httpx looks at are arguments, so that a change of it is heard.
    """
    return httpx.create_ssl_context(trust_env=trust_env)


def _changed(place: str | None) -> int:
    """When a file or folder changed last; 0 where there is none, which is for httpx to tell."""
    try:
        return os.stat(place).st_mtime_ns if place else 0
    except OSError:
        return 0


def timeouts(seconds: float, *, silence: float | None = None) -> httpx.Timeout:
    """Limits of one try. Connecting is quick or hopeless; `silence` is how long a stream may pause."""
    return httpx.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS), read=silence or seconds)


def no_answer(error: httpx.RequestError) -> NoAnswer:
    """What a transport error says about the request."""
    reason = str(error) or type(error).__name__
    return NoAnswer(reason=reason, sent=not isinstance(error, _NEVER_SENT))


def answer_of(response: httpx.Response) -> Answer:
    """A response that was read, as the wire code sees it."""
    return Answer(status=response.status_code, headers=dict(response.headers), body=response.content)
