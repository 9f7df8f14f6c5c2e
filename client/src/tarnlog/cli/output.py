"""Where words go: data to stdout, as tables or as JSON; messages and progress to stderr.

Text is never wrapped here: a terminal does that without line breaks, so that ids, paths and commands can be copied.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from tarnlog._long import Progress as ToldProgress
from tarnlog.cli.grids import Grid


def console(stream: Any) -> Console:
    """A console on a stream, which breaks no lines."""
    return Console(file=stream, highlight=False, soft_wrap=True)


class Output:
    """One command's output. With `json`, stdout carries nothing but JSON: one document, or one to a line."""

    def __init__(self, json: bool) -> None:
        self.json = json
        self.now_ms = time.time_ns() // 1_000_000
        self._out = console(sys.stdout)
        self._err = console(sys.stderr)

    def document(self, value: object) -> None:
        """One JSON document on a line of its own."""
        sys.stdout.write(msgspec.json.encode(value).decode() + "\n")

    def flush(self) -> None:
        """Let whoever reads along see what there is."""
        sys.stdout.flush()

    def lines(self, values: Iterable[object]) -> None:
        """A document to a line."""
        for value in values:
            self.document(value)

    def show(self, *items: Any) -> None:
        """Something to look at; text from outside comes in as Text, so that it cannot carry markup."""
        width = self._out.width if self._out.is_terminal else None
        for item in items:
            if isinstance(item, Grid):
                for line in item.lines(width):
                    self._out.print(line)
            else:
                self._out.print(Text(item) if isinstance(item, str) else item)

    def note(self, text: str) -> None:
        """A message about the data, not part of it."""
        self._err.print(Text(text, style="dim"))

    @contextmanager
    def working(self, text: str, total: int | None = None, *, long: bool = False) -> Iterator[Work]:
        """Progress while something takes its time; only where somebody looks at stderr, and gone afterwards.

        `long` is for what tells its own progress: give the `Work` as `on_progress`.
        """
        columns = [SpinnerColumn(), TextColumn("{task.description}")]
        if total or long:
            columns += [BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[unit]}")]
        columns.append(TimeElapsedColumn())
        with Progress(*columns, console=self._err, transient=True, disable=not self._err.is_terminal) as progress:
            yield Work(progress, text, total)


class Work:
    """A piece of work under way."""

    def __init__(self, progress: Progress, text: str, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task(text, total=total or None, unit="")

    def __call__(self, told: ToldProgress) -> None:
        """What a long call tells of itself."""
        self._progress.update(self._task, completed=told.done, total=told.total, unit=told.unit)

    def counted(self, items: Iterable[Any]) -> Iterator[Any]:
        """The items, counted as they pass."""
        for item in items:
            self._progress.advance(self._task)
            yield item


def grid(*headings: str, right: tuple[str, ...] = (), prose: tuple[str, ...] = ()) -> Grid:
    """A plain table; the headings in `right` hold numbers, those in `prose` sentences."""
    return Grid(headings, right, prose)


def row(table: Grid, *cells: object) -> None:
    """A row of a table, taken literally."""
    table.add(*cells)
