"""What every system plans on: files over a year of dates, and a column whose ranges are spread over all of them.

No file is written: only its entry in the table, with statistics. The ranges of `x` do not overlap, and neighbours in
`x` lie far apart in every other order, so no system can answer the range from the order of its files. Standard library
alone: the peers import it in their own environments.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import NamedTuple

DAYS = 365
FIRST = date(2024, 1, 1)
ROWS = 1000
CHOSEN_DAY = "2024-07-01"
RANGE_START = 1_000_000
SAME_FILES = 20
"""How many files the filter selects that is asked of small and large tables alike."""


class Entry(NamedTuple):
    """One file."""

    number: int
    day: str
    low: int
    high: int


def entries(files: int) -> Iterator[Entry]:
    """All files, dates in order of arrival."""
    days = [str(FIRST + timedelta(day)) for day in range(DAYS)]
    for number in range(files):
        low = number * 7919 % files * ROWS
        yield Entry(number, days[number * DAYS // files], low, low + ROWS - 1)


def path_of(entry: Entry) -> str:
    """Where the file would be."""
    return f"d={entry.day}/part-{entry.number:08d}-4f1c2d7e-9a60-4a51.parquet"


def filters(files: int) -> dict[str, str | None]:
    """The plans that are asked for, as SQL."""
    span = max(1, files // 1000) * ROWS
    return {
        "partition": f"d = '{CHOSEN_DAY}'",
        "range 0.1 %": f"x >= {RANGE_START} AND x <= {RANGE_START + span - 1}",
        "everything": None,
    }


def same_selection() -> str:
    """A filter that selects as many files of every table that is large enough."""
    return f"x >= {RANGE_START} AND x <= {RANGE_START + SAME_FILES * ROWS - 1}"


def expected(files: int, name: str) -> int:
    """How many files a plan must name: more would be pruning left undone, fewer a lost file."""
    if name == "partition":
        return sum(entry.day == CHOSEN_DAY for entry in entries(files))
    if name == "everything":
        return files
    return SAME_FILES if name == "same" else max(1, files // 1000)
