"""The documentation as the tests see it: pages, links, and the blocks that say they can be run.

A block runs when `<!-- run -->` stands on the line before it; `<!-- run, shows "text" -->` also says what it prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
LOCAL_URL = "http://127.0.0.1:8420"

_BLOCK = re.compile(r'^<!-- run(?:, shows "(?P<shows>[^\n]*)")? -->\n```(?P<kind>\w+)\n(?P<code>.*?)^```$', re.M | re.S)
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
        Block(page, text.count("\n", 0, match.start()) + 1, match["kind"], match["code"], match["shows"] or "")
        for match in _BLOCK.finditer(text)
    ]


def marked(page: Path) -> int:
    """How many blocks a page says it runs, counted in another way."""
    return sum(line.startswith("<!-- run") for line in page.read_text().splitlines())


def links(page: Path) -> Iterator[str]:
    """Where a page points to inside the repository."""
    for target in _LINK.findall(_FENCE.sub("", page.read_text())):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub names them."""
    text = _FENCE.sub("", page.read_text())
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(text)}
