"""The documentation as the tests see it: pages, links, and the blocks that say they can be run.

A block runs when `<!-- run -->` stands on the line before it; `<!-- run, shows "text" -->` also says what it prints.
`<!-- run with Spark -->` marks a block that needs a Spark session: it runs where the test has one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tarnlog_server.settings import PREFIX

ROOT = Path(__file__).resolve().parents[2]
LOCAL_URL = "http://127.0.0.1:8420"
WALKTHROUGH = ROOT / "docs/walkthrough.md"
"""The page whose blocks are cells of one Python that has a Spark; tests/spark/test_walkthrough.py runs it."""

README = ROOT / "README.md"
"""The page that a newcomer follows from top to bottom; tests/spark/test_readme.py runs it, on a service of its own."""
GUIDE = ROOT / "docs/guide.md"

_BLOCK = re.compile(
    r'^<!-- run(?P<spark> with Spark)?(?:, shows "(?P<shows>[^\n]*)")? -->\n```(?P<kind>\w+)\n(?P<code>.*?)^```$',
    re.M | re.S,
)
_LINK = re.compile(r"!?\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*?)\s*$", re.M)
_FENCE = re.compile(r"^```.*?^```$", re.M | re.S)


class Block(msgspec.Struct, frozen=True):
    """A block to run; `line` is where it stands."""

    page: Path
    line: int
    kind: str
    code: str
    shows: str
    spark: bool = False

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Every page that people read."""
    own = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    packages = [ROOT / part / "README.md" for part in ("client", "service", "spark_connector", "migrations")]
    return [*own, *packages, *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The blocks of a page that run, in order."""
    text = page.read_text()
    return [
        Block(
            page,
            text.count("\n", 0, match.start()) + 1,
            match["kind"],
            match["code"],
            match["shows"] or "",
            match["spark"] is not None,
        )
        for match in _BLOCK.finditer(text)
    ]


def marked(page: Path) -> int:
    """How many blocks a page says it runs, counted in another way."""
    return sum(line.startswith("<!-- run") for line in page.read_text().splitlines())


def run(block: Block, folder: Path, url: str) -> subprocess.CompletedProcess[str]:
    """Run a block in a process of its own, in `folder`, as a reader of the service at `url` would."""
    code = block.code.replace(LOCAL_URL, url)
    commands = {"bash": ["bash", "-euo", "pipefail", "-c", code], "python": [sys.executable, "-c", code]}
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    local = {
        "TARNLOG_URL": url,
        "PATH": tools,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
    return subprocess.run(
        commands[block.kind], cwd=folder, env={**kept, **local}, capture_output=True, text=True, timeout=180
    )


def links(page: Path) -> Iterator[str]:
    """Where a page points to inside the repository."""
    for target in _LINK.findall(_FENCE.sub("", page.read_text())):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub names them."""
    text = _FENCE.sub("", page.read_text())
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(text)}
