"""A real browser without a window, driven over a pipe by its own debugging protocol: no driver, no extra package."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WHY_SKIPPED = "needs Debian's chromium package"
SECONDS = 60.0
_QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)


class Browser:
    """One tab. Everything that the page says or asks for is kept in `events`."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to = to_browser
        self._from = from_browser
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session: str | None = None
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol, and its result."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if getattr(self, "_session", None) is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == number:
                assert "error" not in found, (method, found["error"])
                return dict(found["result"])
            self.events.append(found)

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """The size of the window, and which colours its user prefers."""
        mobile = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        """Go there, and wait until everything is loaded."""
        self.call("Runtime.evaluate", expression="window.leaving = true")
        self.call("Page.navigate", url=url)
        self.wait("!window.leaving && document.readyState === 'complete'")

    def ask(self, expression: str) -> Any:
        """What a script says inside the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, expression: str) -> None:
        """Until a script says true."""
        deadline = time.monotonic() + SECONDS
        while not self.ask(expression):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.05)

    def picture(self, path: Path) -> bytes:
        """The whole page as PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        data = base64.b64decode(shot["data"])
        path.write_bytes(data)
        return data

    def of_kind(self, method: str) -> list[dict[str, Any]]:
        """The events of a kind so far."""
        return [event["params"] for event in self.events if event.get("method") == method]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], SECONDS)
            assert ready, "the browser does not answer"
            data = os.read(self._from, 1 << 20)
            assert data, "the browser ended"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser for the block. It reads commands from its descriptor 3 and writes answers to 4."""
    assert CHROMIUM is not None
    commands, to_browser = os.pipe()
    from_browser, answers = os.pipe()
    flags = [*_QUIET, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$0" "$@" 3<&{commands} 4>&{answers}', CHROMIUM, *flags],
        pass_fds=(commands, answers),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands)
    os.close(answers)
    try:
        yield Browser(to_browser, from_browser)
    finally:
        os.close(to_browser)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
        os.close(from_browser)
