"""Commands against a real service, some in a real terminal: dropping and registering again, and a new key."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tarnlog import Client, Denied
from tests.client.scripted import SCHEMA
from tests.service_process import ServiceProcess, running_service, start_service

__all__ = ["start_service"]  # a fixture
MAIN = [sys.executable, "-c", "from tarnlog.cli.main import main; main()"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_service(tmp_path_factory.mktemp("live") / "ware house") as service:
        yield service.url


def tarnlog(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As a script runs it: stdin is no terminal."""
    env = {**os.environ, "TARNLOG_URL": url}
    return subprocess.run(
        [*MAIN, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, env=env
    )


def typing(url: str, answer: str, *arguments: str) -> tuple[int, str]:
    """As a person runs it, in a terminal of 80 columns; the exit code, and what the screen shows."""
    env = {**os.environ, "TARNLOG_URL": url, "COLUMNS": "80", "TERM": "dumb"}
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*MAIN, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    os.write(ours, answer.encode())
    shown = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        shown += part
    os.close(ours)
    return process.wait(60), shown.decode()


def test_a_dropped_table_comes_back_by_the_command_that_drop_prints(url: str) -> None:
    with Client(url) as client:
        client.create_table("live.orders", SCHEMA)
        with client.transaction("live.orders") as tx:
            tx.add("a", size=1)
        refused = tarnlog(url, "drop", "live.orders")
        assert refused.returncode == 2
        assert "--yes" in refused.stderr
        code, shown = typing(url, "n\n", "drop", "live.orders")
        assert code == 1
        assert "Drop live.orders?" in shown
        assert client.get_table("live.orders").version == 1, "a no is a no"
        code, shown = typing(url, "y\n", "drop", "live.orders")
        assert code == 0, shown
        command = next(line for line in shown.splitlines() if line.startswith("tarnlog register"))
        again = subprocess.run(
            ["bash", "-c", command.replace("tarnlog", '"$@"', 1), "-", *MAIN],
            env={**os.environ, "TARNLOG_URL": url},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert again.returncode == 0, again.stderr
        assert [file.path for file in client.files("live.orders")] == ["a"]
        with client.transaction("live.orders") as tx:
            tx.add("b", size=1)
        assert client.get_table("live.orders").num_files == 2, "and it can be written"


def test_a_purged_table_is_gone(url: str) -> None:
    with Client(url) as client:
        location = client.create_table("live.gone", SCHEMA).location
        done = tarnlog(url, "drop", "live.gone", "--purge", "--yes")
        assert done.returncode == 0, done.stderr
        assert "cannot be registered again" in done.stdout
        assert tarnlog(url, "register", "live.gone", location).returncode == 1


def test_a_new_key_opens_a_service_that_was_given_its_other_half(
    start_service: Callable[..., ServiceProcess], tmp_path: Path
) -> None:
    made = tarnlog("http://127.0.0.1:1", "key", "new", "--id", "etl", "--scope", "write", "--namespaces", "sales*")
    assert made.returncode == 0, made.stderr
    halves = dict(line.split("=", 1) for line in made.stdout.splitlines())
    entries = re.fullmatch(r"'(.*)'", halves["TARNLOG_API_KEYS"])
    assert entries is not None
    key = halves["TARNLOG_API_KEY"]
    assert key.split(".", 1)[1] not in entries[1], "the service is not told the secret"
    service = start_service(env={"TARNLOG_API_KEYS": entries[1]})
    with Client(service.url, api_key=key) as client:
        client.create_table("sales.orders", SCHEMA)
        with pytest.raises(Denied):
            client.create_table("other.orders", SCHEMA)
        with pytest.raises(Denied):
            client.drop_table("sales.orders")
    with Client(service.url) as client, pytest.raises(Denied, match="api_key="):
        client.get_table("sales.orders")
    without = tarnlog(service.url, "describe", "sales.orders")
    assert "--api-key" in without.stderr
    assert "Bearer" not in without.stderr


def test_keys_differ_and_are_json_for_machines() -> None:
    documents = [json.loads(tarnlog("", "key", "new", "--json").stdout) for _ in range(2)]
    assert documents[0]["key"] != documents[1]["key"]
    assert documents[0]["entry"]["scope"] == "read"
    assert documents[0]["key"].startswith(documents[0]["entry"]["id"] + ".")
    wrong = tarnlog("", "key", "new", "--id", "a b")
    assert wrong.returncode == 2
    assert "letters" in wrong.stderr
