"""The API docs in a real browser without internet: every operation is drawn."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.service_process import running_service

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium package")
def test_a_browser_shows_every_operation_of_the_docs(tmp_path: Path) -> None:
    assert CHROMIUM is not None
    with running_service(tmp_path / "warehouse") as service:
        described = httpx.get(f"{service.url}/openapi.json").json()["paths"]
        operations = set(described)
        page = subprocess.run(
            [
                CHROMIUM,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                f"--user-data-dir={tmp_path / 'profile'}",
                "--virtual-time-budget=10000",
                "--dump-dom",
                f"{service.url}/docs",
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout
    shown = set(re.findall(r'data-path="([^"]+)"', page))
    assert shown == operations
