"""Which Postgres a test run takes, and that both kinds are asked the same way. Starting them is the others' work."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import postgres_container, postgres_server, servers
from tests.postgres_server import PROBE_SECONDS, PostgresServer, chosen, docker_answers


@pytest.mark.parametrize(
    "wanted, answers, packaged, expected",
    [
        (None, True, True, "docker"),
        (None, True, False, "docker"),
        (None, False, True, "package"),
        (None, False, False, None),
        ("", True, True, "docker"),
        ("docker", False, True, "docker"),
        ("package", True, True, "package"),
        ("package", True, False, None),
    ],
)
def test_the_choice(wanted: str | None, answers: bool, packaged: bool, expected: str | None) -> None:
    assert chosen(wanted, lambda: answers, packaged=packaged) == expected


@pytest.mark.parametrize("wanted", ["docker", "package"])
def test_nobody_asks_docker_when_the_setting_decides(wanted: str) -> None:
    def asked() -> bool:
        raise AssertionError("docker was asked")

    assert chosen(wanted, asked, packaged=True) == wanted


def test_a_setting_that_means_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="TARNLOG_TEST_POSTGRES is 'docker' or 'package', not 'podman'"):
        chosen("podman", lambda: True, packaged=True)


class Ran:
    def __init__(self, code: int, said: bytes) -> None:
        self.returncode = code
        self.stdout = said


@pytest.mark.parametrize(
    "installed, outcome, expected",
    [
        (False, Ran(0, b"28.1"), False),
        (True, Ran(0, b"28.1\n"), True),
        (True, Ran(0, b"\n"), False),
        (True, Ran(1, b""), False),
        (True, subprocess.TimeoutExpired("docker", PROBE_SECONDS), False),
        (True, PermissionError("docker"), False),
    ],
)
def test_the_probe(monkeypatch: pytest.MonkeyPatch, installed: bool, outcome: Any, expected: bool) -> None:
    """A program without an engine, an engine that hangs and one that may not be asked are all none."""

    def run(command: list[str], **options: Any) -> Ran:
        assert command[:2] == ["docker", "info"]
        assert options["timeout"] == PROBE_SECONDS
        if isinstance(outcome, BaseException):
            raise outcome
        assert isinstance(outcome, Ran)
        return outcome

    monkeypatch.setattr(shutil, "which", lambda name: "/bin/docker" if installed else None)
    monkeypatch.setattr(subprocess, "run", run)
    assert docker_answers() is expected


class FakeContainer:
    """What testcontainers gives, as far as it is used."""

    host = "localhost"

    def __init__(self, image: str) -> None:
        self.image = image
        self.said: dict[str, Any] = {}
        self.running = False
        FakeContainer.last = self

    last: FakeContainer

    def with_env(self, name: str, value: str) -> FakeContainer:
        self.said[name] = value
        return self

    def with_command(self, command: list[str]) -> FakeContainer:
        self.said["command"] = command
        return self

    def with_exposed_ports(self, *ports: int) -> FakeContainer:
        self.said["ports"] = ports
        return self

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False

    def get_container_host_ip(self) -> str:
        return self.host

    def get_exposed_port(self, port: int) -> int:
        return port + 10_000


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> type[FakeContainer]:
    """A Docker engine whose Postgres answers at the third try."""
    tries: list[str] = []

    async def execute(self: PostgresServer, statement: str, database: str = "postgres") -> list[Any]:
        tries.append(self.url(database))
        if len(tries) < 3:
            raise ConnectionRefusedError
        return []

    async def no_pause(seconds: float) -> None:
        return None

    monkeypatch.setattr(postgres_container, "DockerContainer", FakeContainer)
    monkeypatch.setattr(asyncio, "sleep", no_pause)
    monkeypatch.setattr(PostgresServer, "execute", execute)
    monkeypatch.setattr(servers, "docker_answers", lambda: True)
    monkeypatch.delenv(postgres_server.SETTING, raising=False)
    monkeypatch.setattr(FakeContainer, "host", "localhost")
    return FakeContainer


def test_where_docker_runs_it_is_a_container(docker: type[FakeContainer]) -> None:
    server = servers.started_postgres()
    assert isinstance(server, postgres_container.PostgresContainer)
    assert server.url("x") == "postgresql://postgres@127.0.0.1:15432/x"
    assert docker.last.said["POSTGRES_HOST_AUTH_METHOD"] == "trust"
    assert docker.last.running
    server.close()
    assert not docker.last.running


def test_a_container_elsewhere_is_given_up_for_a_process(
    docker: type[FakeContainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Process(PostgresServer):
        def __init__(self, *_: object) -> None:
            self.port = 1

        def start(self) -> Process:
            return self

    monkeypatch.setattr(docker, "host", "10.0.0.9")
    monkeypatch.setattr(servers, "binaries", lambda: "somewhere")
    monkeypatch.setattr(servers, "PostgresProcess", Process)
    assert isinstance(servers.started_postgres(), Process)
    assert not docker.last.running
    monkeypatch.setenv(postgres_server.SETTING, "docker")
    with pytest.raises(RuntimeError, match="tests need it on this machine"):
        servers.started_postgres()


def test_the_image_is_that_of_docker_compose() -> None:
    compose = Path(__file__).parent.parent / "docker-compose.yml"
    assert f"image: {postgres_container.IMAGE}" in compose.read_text()
