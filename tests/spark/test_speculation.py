"""Both writers on a Spark with `spark.speculation`: an attempt that is overtaken adds no row, and none is lost.

`test_attempts` tells what may become of such attempts one by one; here Spark itself decides.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tarnlog import Client
from tests.service_process import ServiceProcess

ROOT = Path(__file__).parents[2]


def test_overtaken_attempts_add_no_rows(
    tarnlog_service: ServiceProcess, client: Client, name: str, tmp_path: Path, long_run: bool
) -> None:
    if not long_run:
        pytest.skip("starts a small cluster: TARNLOG_TEST_LONG=1 runs it")
    command = [sys.executable, "-m", "tests.spark.speculation_story", tarnlog_service.url, name, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    for writer, found in told.items():
        assert {"0-0", "0-1"} <= set(found["attempts"]), f"{writer}: nothing was overtaken"
        assert not found["waited"]
        assert found["written"] == [1000, 4]
        assert found["read"] == list(range(1000)), writer
    # Nothing of an overtaken attempt is where files of the table are, but for those that pyarrow's tasks had begun.
    table = client.get_table(f"{name}_native")
    folder = Path(table.location.removeprefix("file://"))
    lying = {path.relative_to(folder).as_posix() for path in folder.glob("write-*/*") if path.is_file()}
    assert lying == {file.path for file in client.files(table.name)}
