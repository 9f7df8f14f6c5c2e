"""Numbers, times, trees and pictures as the dashboard shows them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog_server.api.dashboard import pictures, words
from tarnlog_server.api.dashboard.schema_rows import MOST_ROWS, schema_rows


@pytest.mark.parametrize(
    "shown, text",
    [
        (words.size(None), "–"),
        (words.size(0), "0 B"),
        (words.size(1023), "1023 B"),
        (words.size(1024), "1.0 KiB"),
        (words.size(5 * 2**30), "5.0 GiB"),
        (words.size(2**75), "32,768.0 EiB"),
        (words.number(1234567), "1,234,567"),
        (words.counted(1, "file"), "1 file"),
        (words.counted(2000, "file"), "2,000 files"),
        (words.rate(0), "0/s"),
        (words.rate(0.05), "3.0/min"),
        (words.rate(12.34), "12.3/s"),
        (words.rate(1234.5), "1,234/s"),
        (words.duration(None), "–"),
        (words.duration(0.00005), "50 µs"),
        (words.duration(0.0123), "12.3 ms"),
        (words.duration(0.250), "250 ms"),
        (words.duration(3.21), "3.2 s"),
        (words.percentiles([None, None, None]), "–"),
        (words.percentiles([0.001, 0.0123, 0.5]), "1.0 / 12 / 500 ms"),
        (words.percentiles([0.5, 2.0, 30.0]), "0.5 / 2.0 / 30 s"),
        (words.age(None), "–"),
        (words.age(-5), "0 s"),
        (words.age(59.9), "59 s"),
        (words.age(61), "1 min 1 s"),
        (words.age(3600), "1 h"),
        (words.age(90_061), "1 d 1 h"),
        (words.moment(1704067200000), "2024-01-01 00:00:00"),
        (words.moment(None), "–"),
        (words.moment(2**63 - 1), "–"),
        (words.moment(-(2**63)), "–"),
        (words.iso(2**63 - 1), ""),
        (words.share(0.125), "12.5 %"),
        (words.compact({}), ""),
        (words.compact({"a": [1]}), '{"a":[1]}'),
        (words.short("x" * 301), "x" * 299 + "…"),
    ],
)
def test_words(shown: str, text: str) -> None:
    assert shown == text


SERIES = st.lists(st.integers(0, 2**40), max_size=60)


@given(SERIES)
def test_pictures_stay_inside_their_frame(series: list[int]) -> None:
    line = pictures.sparkline(series)
    for point in line.area.split():
        x, y = map(float, point.split(","))
        assert 0 <= x <= pictures.WIDTH
        assert 0 <= y <= pictures.HEIGHT
    bars = pictures.bars(series)
    assert [bar.value for bar in bars] == series
    for bar in bars:
        assert 0 <= bar.x < bar.x + bar.width <= pictures.CHART_WIDTH + 0.01
        assert 0 <= bar.y <= pictures.CHART_HEIGHT
        assert (bar.height > 0) is (bar.value > 0), "what is not nothing is drawn"
    for width, value in zip(pictures.widths(series), series, strict=True):
        assert 0 <= width <= 100
        assert (width > 0) is (value > 0)


def _field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}, **more}


def test_a_schema_is_a_tree() -> None:
    item = {"type": "struct", "fields": [_field("sku", "string"), _field("price", "decimal(10,2)", nullable=False)]}
    schema = {
        "type": "struct",
        "fields": [
            _field("id", "long", metadata={"comment": "the key"}),
            _field("tags", {"type": "array", "elementType": "string", "containsNull": True}),
            _field("items", {"type": "array", "elementType": item, "containsNull": False}),
            _field("by", {"type": "map", "keyType": "string", "valueType": item, "valueContainsNull": True}),
            _field("day", "date"),
        ],
    }
    rows = schema_rows(schema, ("day",))
    assert [(row.depth, row.name, row.type, row.nullable) for row in rows] == [
        (0, "id", "long", True),
        (0, "tags", "array<string>", True),
        (0, "items", "array<struct>", True),
        (1, "element", "struct", False),
        (2, "sku", "string", True),
        (2, "price", "decimal(10,2)", False),
        (0, "by", "map<string, struct>", True),
        (1, "value", "struct", True),
        (2, "sku", "string", True),
        (2, "price", "decimal(10,2)", False),
        (0, "day", "date", True),
    ]
    assert (rows[0].comment, rows[0].partition, rows[-1].partition) == ("the key", None, 1)


def test_a_schema_may_be_huge_or_broken() -> None:
    huge = {"type": "struct", "fields": [_field(f"c{number}", "long") for number in range(MOST_ROWS + 5)]}
    assert len(schema_rows(huge, ())) == MOST_ROWS
    assert schema_rows({"type": "no such"}, ()) == []
