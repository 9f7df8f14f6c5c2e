"""Other replicas over HTTP: kept-alive connections, short patience, and no second try."""

from __future__ import annotations

import asyncio

import httpx

from tarnlog_server.ports.leases import Owner
from tarnlog_server.ports.peers import PeerAnswer, PeerSilent

MAX_CONNECTIONS = 256
KEEP_ALIVE_SECONDS = 30.0
"""Below what the service keeps idle connections for, so that none is used while the other side closes it."""
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL)


class HttpPeers:
    """Sends commits by their ordinary route, addressed to one start of one replica.

    The address is the parameter `replica`: a service that is not that one, or nobody's replica, refuses the request and
    writes nothing, so a port that somebody else has now is harmless. It also ends the way: it is never sent on again.
    """

    def __init__(
        self, *, connect_seconds: float, answer_seconds: float, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._seconds = connect_seconds + answer_seconds
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(answer_seconds, connect=connect_seconds, pool=connect_seconds),
            limits=httpx.Limits(
                max_connections=MAX_CONNECTIONS,
                max_keepalive_connections=MAX_CONNECTIONS,
                keepalive_expiry=KEEP_ALIVE_SECONDS,
            ),
            transport=transport,
            trust_env=False,  # a proxy for the outside world is not on the way to a neighbour
            follow_redirects=False,
        )

    async def commit(self, owner: Owner, table: str, body: bytes, headers: dict[str, str]) -> PeerAnswer:
        url = f"{owner.url}/v1/tables/{table}/commits?replica={owner.id}"
        try:
            async with asyncio.timeout(self._seconds):  # in all: httpx counts the time between two pieces
                answer = await self._client.post(
                    url, content=body, headers={**headers, "content-type": "application/json"}
                )
        except _NOT_SENT as error:
            raise PeerSilent(f"{owner.url}: {type(error).__name__}", sent=False) from error
        except (httpx.HTTPError, TimeoutError) as error:
            raise PeerSilent(f"{owner.url}: {type(error).__name__}", sent=True) from error
        return PeerAnswer(
            answer.status_code,
            answer.content,
            answer.headers.get("content-type", ""),
            answer.headers.get("retry-after"),
        )

    async def close(self) -> None:
        await self._client.aclose()
