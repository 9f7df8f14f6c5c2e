"""The dashboard in a real browser: it draws, follows the service, fits a phone, and can be read in light and dark."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.api.conftest import add
from tests.browser import CHROMIUM, WHY_SKIPPED, Browser, browser
from tests.service_process import ServiceProcess, running_service

pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason=WHY_SKIPPED), pytest.mark.xdist_group("browser")]
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "day", "type": "string", "nullable": True, "metadata": {}},
    ],
}
BEARER = {"authorization": "Bearer eyes.secret"}
LONG = "x" * 200
PAGES = [
    "/",
    "/dashboard/tables/db.t",
    "/dashboard/tables/db.t/history",
    "/dashboard/tables/db.t/schema",
    "/dashboard/tables/db.t/files",
    "/dashboard/tables/db.t/skips",
    "/dashboard/tables/db.t/plan?filter=day+%3D+%27d1%27&show=why",
    "/dashboard/tables/db.none",
]
CONTRAST = """
(() => {
  const light = (text) => {
    const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((value) => {
      const part = value / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const poor = [];
  for (const element of document.querySelectorAll("body *:not(svg *)")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.getClientRects().length) continue;
    let behind = element;
    while (behind && getComputedStyle(behind).backgroundColor.match(/, 0\\)$/)) behind = behind.parentElement;
    const back = light(getComputedStyle(behind || document.body).backgroundColor);
    const front = light(getComputedStyle(element).color);
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    if (ratio < 4.5) poor.push(element.tagName + " " + element.textContent.trim().slice(0, 40) + " " + ratio);
  }
  return poor;
})()
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service that needs keys, with a table in which there is something to see on every page."""
    key = {"id": "eyes", "sha256": hashlib.sha256(b"secret").hexdigest(), "scope": "admin"}
    place = tmp_path_factory.mktemp("dashboard") / "warehouse"
    with running_service(place, {"TARNLOG_API_KEYS": json.dumps([key])}) as running:
        client = httpx.Client(base_url=running.url, headers=BEARER)
        body = {"name": "db.t", "schema": SCHEMA, "partitionColumns": ["day"], "description": f"Orders {LONG}"}
        assert client.post("/v1/tables", json=body).status_code == 201
        for number in range(12):
            action = add(
                f"day=d{number % 3}/{LONG}-{number}", partitionValues={"day": f"d{number % 3}"}, size=10**number
            )
            commit = {"actions": [action], "operationParameters": {"query": LONG}}
            assert client.post("/v1/tables/db.t/commits", json=commit).status_code == 201
        skip = {"path": f"day=d0/{LONG}-0", "reason": LONG, "operation": "MERGE"}
        assert client.post("/v1/tables/db.t/skips", json=skip).status_code == 201
        yield running


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory, service: ServiceProcess) -> Iterator[Browser]:
    """A browser that was given the key."""
    with browser(tmp_path_factory.mktemp("browser") / "profile") as opened:
        opened.open(f"http://eyes:secret@127.0.0.1:{service.port}/")
        yield opened


@pytest.mark.parametrize("width, dark", [(1280, False), (1280, True), (390, False), (390, True)])
def test_every_page_can_be_read(tab: Browser, service: ServiceProcess, tmp_path: Path, width: int, dark: bool) -> None:
    tab.look(width, 900, dark=dark)
    for number, path in enumerate(PAGES):
        tab.events.clear()
        tab.open(service.url + path)
        wide = tab.ask("document.documentElement.scrollWidth")
        assert wide <= width, f"{path} is {wide} wide"
        assert tab.ask(CONTRAST) == [], path
        assert tab.ask("getComputedStyle(document.body).backgroundColor") == (
            "rgb(15, 23, 22)" if dark else "rgb(246, 248, 248)"
        ), "the style sheet was loaded"
        assert len(tab.picture(tmp_path / f"{number}.png")) > 10_000
        # By host and port: the page before, which was opened with a key in its address, may still have asked for news.
        asked = [urlsplit(event["request"]["url"]) for event in tab.of_kind("Network.requestWillBeSent")]
        assert {(one.hostname, one.port) for one in asked} == {("127.0.0.1", service.port)}
        said = [event["entry"]["text"] for event in tab.of_kind("Log.entryAdded")]
        assert [text for text in said if "404" not in text] == [], path
        assert tab.of_kind("Runtime.exceptionThrown") == []


def test_a_page_follows_what_happens(tab: Browser, service: ServiceProcess) -> None:
    tab.look(1280, 900)
    tab.open(f"{service.url}/dashboard/tables/db.t")
    tab.ask("window.same = true")
    tab.wait("document.getElementById('live-status').textContent.includes('Live')")
    client = httpx.Client(base_url=service.url, headers=BEARER)
    commit = {"actions": [add("day=d9/new", partitionValues={"day": "d9"})], "operation": "SEEN LIVE"}
    assert client.post("/v1/tables/db.t/commits", json=commit).status_code == 201
    tab.wait("document.getElementById('live-latest').textContent.includes('SEEN LIVE')")
    assert tab.ask("window.same"), "without a reload"
    tab.ask("document.querySelector('#live-status button').click()")
    assert "Paused" in tab.ask("document.getElementById('live-status').textContent")


def test_without_scripts_everything_is_there(tab: Browser, service: ServiceProcess) -> None:
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.open(f"{service.url}/")
        assert "db.t" in tab.ask("document.getElementById('live-tables').textContent")
        assert tab.ask("document.getElementById('live-status').textContent") == ""
    finally:
        tab.call("Emulation.setScriptExecutionDisabled", value=False)


def test_a_lost_service_is_told_and_found_again(tab: Browser, service: ServiceProcess) -> None:
    tab.open(f"{service.url}/")
    still = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    tab.call("Network.emulateNetworkConditions", offline=True, **still)
    tab.wait("document.getElementById('live-status').textContent.includes('Connection lost')")
    tab.call("Network.emulateNetworkConditions", offline=False, **still)
    tab.wait("document.getElementById('live-status').textContent.includes('Live')")


def test_a_key_opens_the_pages_and_the_docs_and_keeps_them_live(tab: Browser, service: ServiceProcess) -> None:
    tab.open(f"{service.url}/")
    assert "signed in as eyes" in tab.ask("document.body.textContent")
    tab.ask("document.getElementById('live-health').append('stale')")
    tab.wait("!document.getElementById('live-health').textContent.includes('stale')")
    tab.open(f"{service.url}/docs")
    tab.wait("document.querySelectorAll('.opblock').length > 0")
    answer = tab.ask("fetch('/v1/tables', {credentials: 'include'}).then((answer) => answer.status)")
    assert answer == 401, "what the browser adds by itself opens no call"
