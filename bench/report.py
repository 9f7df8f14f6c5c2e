"""Tables once, shown twice: on the terminal and in docs/benchmarks.md; and the facts that belong beside numbers."""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table


class Grid(msgspec.Struct, frozen=True):
    """A table of text: a title, column heads, rows, and a sentence below it."""

    title: str
    heads: list[str]
    rows: list[list[str]]
    note: str = ""


def show(grids: Iterable[Grid], console: Console) -> None:
    """The tables on a terminal."""
    for grid in grids:
        table = Table(title=grid.title, title_justify="left", title_style="bold", caption=grid.note or None)
        table.caption_justify = "left"
        for index, head in enumerate(grid.heads):
            table.add_column(head, justify="left" if index == 0 else "right", overflow="fold")
        for row in grid.rows:
            table.add_row(*row)
        console.print(table, "")


def markdown(grid: Grid) -> str:
    """The table as Markdown."""
    lines = [f"### {grid.title}", "", "| " + " | ".join(grid.heads) + " |"]
    lines.append("|---" + "|---:" * (len(grid.heads) - 1) + "|")
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in grid.rows]
    if grid.note:
        lines += ["", grid.note]
    return "\n".join(lines) + "\n"


def facts(more: dict[str, str]) -> dict[str, str]:
    """Size of the machine, versions, date; never its name."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    found = {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d"),
        "machine": f"{cores} cores, {memory:.0f} GiB memory, local disk",
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
    }
    for name in ("tarnlog-server", "fastapi", "uvicorn", "uvloop", "httptools"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found | more


def write_section(path: Path, name: str, text: str) -> None:
    """Replace the part of the page between this benchmark's marks; the rest of the page is not touched."""
    start, end = f"<!-- {name}: written by the benchmark -->", f"<!-- end of {name} -->"
    page = path.read_text() if path.exists() else "# Benchmarks\n"
    section = f"{start}\n{text.rstrip()}\n{end}"
    head, found, rest = page.partition(start)
    page = head + section + rest.partition(end)[2] if found else page.rstrip() + f"\n\n{section}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page)
