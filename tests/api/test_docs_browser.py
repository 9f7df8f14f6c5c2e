"""The API docs in a real browser without internet: every operation is drawn."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.browser import CHROMIUM, browser
from tests.service_process import running_service


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


@pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium package")
def test_a_request_can_be_tried_out_under_the_security_policy(tmp_path: Path) -> None:
    block = "#operations-service-ready"
    with running_service(tmp_path / "warehouse") as service, browser(tmp_path / "profile") as tab:
        policy = httpx.get(f"{service.url}/docs").headers["content-security-policy"]
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        tab.open(f"{service.url}/docs")
        tab.wait(f"document.querySelector('{block}') !== null")
        for button in (f"{block} .opblock-summary-control", f"{block} .try-out__btn", f"{block} .execute"):
            tab.wait(f"document.querySelector('{button}') !== null")
            tab.ask(f"document.querySelector('{button}').click()")
        tab.wait(f"document.querySelector('{block} .live-responses-table .response-col_status') !== null")
        answer = tab.ask(f"document.querySelector('{block} .live-responses-table').textContent")
        said = [event["entry"]["text"] for event in tab.of_kind("Log.entryAdded")]
        assert not [text for text in said if "Content Security Policy" in text]
        assert tab.of_kind("Runtime.exceptionThrown") == []
    assert "200" in answer
    assert '"ready"' in answer
