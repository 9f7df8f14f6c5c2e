"""What a start waits for: libraries that the default set-up does not need are not loaded before it is ready."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sqlalchemy import URL

from tarnlog_server.adapters.open_index import EMBEDDED
from tarnlog_server.adapters.sql_engine import Database

HEAVY = ("alembic", "asyncpg", "boto3", "botocore", "datafusion", "httpx", "obstore", "pandas", "sqlglot")
PROGRAM = f"""
import asyncio, sys
import tarnlog_server.cli
from tarnlog_server.bootstrap import Service
from tarnlog_server.settings import load_settings

service = Service(load_settings(warehouse=sys.argv[1], port=0))

async def main():
    async with service.lifespan(service.app):
        assert service.readiness.reasons == [], service.readiness.reasons
        assert service.coordinator.ingest.guard.state == "ready", service.coordinator.ingest.guard.reason
        print(*[name for name in {HEAVY!r} if name in sys.modules])

asyncio.run(main())
"""


async def test_a_default_start_loads_nothing_heavy_before_it_is_ready(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    index = Database(URL.create("sqlite+aiosqlite", database=str(warehouse / EMBEDDED)))
    await index.prepare()  # as an earlier start left it: the schema is up to date
    await index.close()
    command = [sys.executable, "-c", PROGRAM, str(warehouse)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)  # noqa: ASYNC221
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == []


SERVING = """
import gc
import tarnlog_server.cli
from tarnlog_server.__main__ import main

tarnlog_server.cli._run = lambda *_: print("collecting", gc.isenabled())
main()
"""


def test_the_collector_is_off_while_modules_load_and_on_while_requests_are_served(tmp_path: Path) -> None:
    environment = {**os.environ, "TARNLOG_WAREHOUSE": str(tmp_path / "warehouse"), "TARNLOG_PORT": "0"}
    command = [sys.executable, "-c", SERVING]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["collecting", "True"], done.stderr
    loading = "import gc, sys; sys.modules['tarnlog_server.cli'] = None; import tarnlog_server.__main__ as m\n"
    loading += "try: m.main()\nexcept ImportError: print('collecting', gc.isenabled())"
    done = subprocess.run([sys.executable, "-c", loading], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["collecting", "False"], done.stderr
