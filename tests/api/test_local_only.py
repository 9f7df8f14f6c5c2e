"""A service without keys answers programs on its machine, and no page of another site."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.api.app import ApiSettings
from tarnlog_server.api.auth import ApiKey
from tarnlog_server.api.local_only import LocalOnly
from tests.api.conftest import Api, slug
from tests.service_process import ServiceProcess

Headers = dict[str, str]
OURS: list[Headers] = [
    {"host": "localhost"},
    {"host": "LOCALHOST:8420"},
    {"host": "localhost.:1"},
    {"host": "127.0.0.1:8420"},
    {"host": "127.9.8.7"},
    {"host": "[::1]:8420"},
    {"host": "[::1]"},
    {"host": "lake.internal:80"},
    {"host": "localhost:8420", "origin": "http://localhost:8420"},
    {"host": "[::1]:8420", "origin": "http://[::1]:8420"},
    {"host": "localhost", "origin": "http://localhost:80"},
    {"host": "localhost", "origin": "https://localhost"},
    {"host": "localhost:8420", "origin": "https://lake.internal"},
    {"host": "localhost:8420", "sec-fetch-site": "same-origin"},
    {"host": "localhost:8420", "sec-fetch-site": "none"},
    {},
]
FOREIGN: list[Headers] = [
    {"host": "evil.example"},
    {"host": "evil.example:8420"},
    {"host": "127.0.0.1.evil.example"},
    {"host": "localhost.evil.example"},
    {"host": "localhost@evil.example"},
    {"host": "10.0.0.7"},
    {"host": "0.0.0.0:8420"},
    {"host": "[fe80::1]"},
    {"host": "128.0.0.1"},
    {"host": "127.0.0.1:8420:1"},
    {"host": ""},
    {"host": "localhost\xe9"},
    {"host": "localhost:8420", "origin": "http://localhost:3000"},
    {"host": "localhost:8420", "origin": "http://evil.example"},
    {"host": "localhost:8420", "origin": "http://127.0.0.1:8420"},
    {"host": "localhost:8420", "origin": "null"},
    {"host": "localhost:8420", "origin": ""},
    {"host": "localhost:8420", "origin": "http://localhost:99999"},
    {"host": "localhost:8420", "origin": "file://localhost:8420"},
    {"host": "localhost:8420", "sec-fetch-site": "cross-site"},
    {"host": "localhost:8420", "origin": "http://localhost:8420", "sec-fetch-site": "Cross-Site"},
]


def checked(headers: Headers) -> None:
    LocalOnly(["Lake.internal"]).check(
        [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
    )


@pytest.mark.parametrize("headers", OURS, ids=str)
def test_requests_of_this_machine_pass(headers: Headers) -> None:
    checked(headers)


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_requests_of_foreign_pages_do_not(headers: Headers) -> None:
    with pytest.raises(ProblemError) as refused:
        checked(headers)
    assert refused.value.slug == "host-not-allowed"
    assert "TARNLOG_ALLOWED_HOSTS" in refused.value.detail


def test_two_hosts_are_one_too_many() -> None:
    with pytest.raises(ProblemError):
        LocalOnly().check([(b"host", b"localhost"), (b"host", b"localhost")])


async def test_every_path_and_method_is_closed_to_foreign_pages(api: Api, table: str) -> None:
    paths = [(operation.method, operation.path.replace("{table}", "db.t")) for operation in api.app.operations]
    paths += [("GET", path) for path in ("/", "/docs", "/openapi.json", "/docs/assets/start.js", "/nowhere")]
    paths += [("OPTIONS", "/v1/tables"), ("HEAD", "/"), ("POST", "/tables/db.t")]
    for method, path in paths:
        if path == "/v1/health/live":
            continue
        for headers in ({"host": "evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "http://evil.example"}):
            answer = await api.request(method, path, headers=headers)
            assert answer.status_code == 403, (method, path, headers, answer.text)
    assert (await api.get("/v1/tables/db.t")).json()["version"] == 0
    refused = await api.post("/v1/tables/db.t/checkpoint", headers={"host": "evil.example"})
    assert slug(refused) == "host-not-allowed"
    live = await api.get("/v1/health/live", headers={"host": "evil.example"})
    assert live.status_code == 200


async def test_with_keys_any_name_will_do() -> None:
    digest = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8"
    keys = (ApiKey(id="a", sha256=digest, scope="admin"),)
    async with Api(ApiSettings(keys=keys), headers={"authorization": "Bearer a.password"}) as api:
        answer = await api.get("/v1/tables", headers={"host": "lake.example", "origin": "http://other.example"})
        assert answer.status_code == 200, answer.text


def test_a_running_service_answers_its_own_names_alone(start_service: Callable[..., ServiceProcess]) -> None:
    service = start_service(env={"TARNLOG_ALLOWED_HOSTS": '["lake.internal"]'})
    for host, status in (
        ("localhost", 200),
        (f"127.0.0.1:{service.port}", 200),
        ("lake.internal:443", 200),
        ("rebound.example", 403),
    ):
        answer = httpx.get(f"{service.url}/v1/tables", headers={"host": host})
        assert answer.status_code == status, (host, answer.text)
    page = httpx.get(f"{service.url}/", headers={"host": "rebound.example"})
    assert page.status_code == 403
    assert "TARNLOG_ALLOWED_HOSTS" in page.text
