"""The way to another replica on real sockets: what was certainly not sent, and what may have arrived."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from tarnlog_server.adapters.http_peers import HttpPeers
from tarnlog_server.ports.leases import Owner
from tarnlog_server.ports.peers import PeerSilent
from tests.adapters.scripted_http import ScriptedServer, scripted_server
from tests.service_process import free_port


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as script:
        yield script


@pytest.fixture
async def peers() -> AsyncIterator[HttpPeers]:
    made = HttpPeers(connect_seconds=5, answer_seconds=30)
    yield made
    await made.close()


async def test_the_request_is_an_ordinary_commit_with_an_address(server: ScriptedServer, peers: HttpPeers) -> None:
    server.says(409, b"{}", headers="Content-Type: application/problem+json\r\nRetry-After: 7\r\n")
    answer = await peers.commit(
        Owner("id-1", server.endpoint), "s.t", b'{"actions": []}', {"authorization": "Bearer k"}
    )
    assert (answer.status, answer.body, answer.retry_after) == (409, b"{}", "7")
    assert answer.media_type == "application/problem+json"
    (head,) = server.requests
    assert head.startswith(b"POST /v1/tables/s.t/commits?replica=id-1 HTTP/1.1\r\n")
    assert b"authorization: bearer k\r\n" in head.lower()
    assert b"content-type: application/json\r\n" in head.lower()


async def test_where_nobody_listens_nothing_was_sent(peers: HttpPeers) -> None:
    for url in (f"http://127.0.0.1:{free_port()}", "http://no-such-host.invalid", "http://", "what://ever"):
        with pytest.raises(PeerSilent) as silence:
            await peers.commit(Owner("id-1", url), "s.t", b"{}", {})
        assert not silence.value.sent, url


async def test_whoever_took_the_request_may_have_written_it(server: ScriptedServer, peers: HttpPeers) -> None:
    server.says(201, b"{", length=100)
    for _ in ("an answer that breaks off", "a connection that ends"):
        with pytest.raises(PeerSilent) as silence:
            await peers.commit(Owner("id-1", server.endpoint), "s.t", b"{}", {})
        assert silence.value.sent
        server.answer = None
    assert len(server.requests) == 2, "nothing is sent twice"


async def test_an_answer_that_does_not_come_is_not_waited_for(server: ScriptedServer) -> None:
    server.hangs = True
    hasty = HttpPeers(connect_seconds=5, answer_seconds=0.05)
    with pytest.raises(PeerSilent) as silence:
        await hasty.commit(Owner("id-1", server.endpoint), "s.t", b"{}", {})
    assert silence.value.sent
    await hasty.close()


async def test_redirects_and_proxies_are_not_followed(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "HTTP_PROXY", "http://127.0.0.1:1")
    server.says(307, headers="Location: http://127.0.0.1:1/\r\n")
    peers = HttpPeers(connect_seconds=5, answer_seconds=30)
    answer = await peers.commit(Owner("id-1", server.endpoint), "s.t", b"{}", {})
    assert answer.status == 307
    await peers.close()
