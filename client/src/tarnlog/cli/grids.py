"""Tables of text whose values can be copied: none is cut or broken over lines, however narrow the terminal is.

Rows that fit stand in columns. Where they do not, the widest columns move below their row, as `heading value`; the row
keeps those that are left. A value wider than the terminal is one line all the same: the terminal wraps it without a
line break. Columns of prose are wrapped between words.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

GAP = "  "
INDENT = "    "
LEAST_PROSE = 24
"""Columns of prose are not made narrower than this: then they move below their row."""


class Grid:
    """Rows of cells below headings. `right`: columns of numbers; `prose`: columns of sentences."""

    def __init__(self, headings: tuple[str, ...], right: tuple[str, ...] = (), prose: tuple[str, ...] = ()) -> None:
        self.headings = headings
        self.right = right
        self.prose = prose
        self.show_header = True
        self._rows: list[tuple[Text, ...]] = []

    def add(self, *cells: object) -> None:
        """A row, taken literally."""
        self._rows.append(tuple(cell if isinstance(cell, Text) else Text(str(cell)) for cell in cells))

    def lines(self, width: int | None) -> Iterator[Text]:
        """The lines of the table for a terminal of that width; None where lines may be as long as they need to be."""
        columns = range(len(self.headings))
        widths = {at: max([self._heading_len(at), *(cell_len(row[at].plain) for row in self._rows)]) for at in columns}
        below: set[int] = set()
        if width is not None and self.show_header:  # of a label and its value, both stay on one line
            self._make_room(width, widths, below)
        beside = [at for at in columns if at not in below]
        if self.show_header:
            yield self._line([Text(self.headings[at], style="bold") for at in beside], beside, widths)
        for row in self._rows:
            yield from self._row(row, beside, widths)
            yield from self._below([(self.headings[at], row[at]) for at in sorted(below)], width)

    def _heading_len(self, at: int) -> int:
        return cell_len(self.headings[at]) if self.show_header else 0

    def _make_room(self, width: int, widths: dict[int, int], below: set[int]) -> None:
        """Make prose narrower, else move columns below their rows, the widest first, until the rest fits."""

        def too_wide() -> int:
            beside = [size for at, size in widths.items() if at not in below]
            return sum(beside) + len(GAP) * (len(beside) - 1) - width

        for at in reversed(range(len(self.headings))):
            if self.headings[at] in self.prose and too_wide() > 0 and widths[at] - too_wide() >= LEAST_PROSE:
                widths[at] -= too_wide()
        while too_wide() > 0 and (movable := [at for at in widths if at > 0 and at not in below]):
            below.add(max(movable, key=lambda at: widths[at]))

    def _row(self, row: tuple[Text, ...], beside: list[int], widths: dict[int, int]) -> Iterator[Text]:
        parts = [self._wrapped(at, row[at], widths[at]) for at in beside]
        for number in range(max(map(len, parts))):
            yield self._line([part[number] if number < len(part) else Text("") for part in parts], beside, widths)

    def _wrapped(self, at: int, cell: Text, width: int) -> list[Text]:
        if self.headings[at] not in self.prose or cell_len(cell.plain) <= width:
            return [cell]
        words = textwrap.wrap(cell.plain, width, break_long_words=False, break_on_hyphens=False)
        return [Text(line, style=cell.style) for line in words] or [cell]

    def _line(self, cells: list[Text], beside: list[int], widths: dict[int, int]) -> Text:
        line = Text()
        for place, (at, cell) in enumerate(zip(beside, cells, strict=True)):
            room = " " * (widths[at] - cell_len(cell.plain))
            line.append(GAP if place else "")
            line.append(room if self.headings[at] in self.right else "")
            line.append_text(cell)
            line.append("" if self.headings[at] in self.right or place == len(cells) - 1 else room)
        line.rstrip()
        return line

    def _below(self, pairs: list[tuple[str, Text]], width: int | None) -> Iterator[Text]:
        """What did not fit, several to a line where they do."""
        line = Text()
        for heading, cell in pairs:
            if not cell.plain:
                continue
            pair = Text(heading + " " if heading else "", style="dim")
            pair.append_text(Text(cell.plain, style=cell.style or "not dim"))
            if line and width is not None and cell_len(INDENT + line.plain + GAP + pair.plain) > width:
                yield Text(INDENT) + line
                line = Text()
            line = line + GAP + pair if line else pair
        if line:
            yield Text(INDENT) + line
