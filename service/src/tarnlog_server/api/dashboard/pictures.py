"""The geometry of pictures; templates draw them as SVG, so that text in them is escaped like all other text."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

WIDTH, HEIGHT = 120, 28
CHART_WIDTH, CHART_HEIGHT, GAP = 600, 120, 2


class Sparkline(Struct, frozen=True):
    """A line over the last minutes, and the area below it. `peak` is the highest value."""

    line: str
    area: str
    peak: int


class Bar(Struct, frozen=True):
    """One bar of a chart."""

    x: float
    y: float
    width: float
    height: float
    value: int


def sparkline(series: Sequence[int]) -> Sparkline:
    """A line through all values, scaled to its own peak."""
    peak = max(series, default=0)
    step = WIDTH / max(1, len(series) - 1)
    top = HEIGHT - 2
    points = [f"{at * step:.1f},{1 + top - top * value / (peak or 1):.1f}" for at, value in enumerate(series)]
    line = " ".join(points)
    return Sparkline(line, f"0,{HEIGHT} {line} {WIDTH},{HEIGHT}", peak)


def bars(series: Sequence[int]) -> list[Bar]:
    """A bar for each value; a value that is not nothing is never drawn as nothing."""
    peak = max(series, default=0) or 1
    room = CHART_WIDTH / max(1, len(series))
    found = []
    for at, value in enumerate(series):
        height = max(1.5, CHART_HEIGHT * value / peak) if value else 0.0
        found.append(Bar(round(at * room, 2), round(CHART_HEIGHT - height, 2), room - GAP, round(height, 2), value))
    return found


def widths(values: Sequence[int], whole: int | None = None) -> list[float]:
    """How far bars reach, in percent of the largest or of a whole."""
    most = (max(values, default=0) if whole is None else whole) or 1
    return [round(max(0.5, 100 * value / most), 2) if value else 0.0 for value in values]
