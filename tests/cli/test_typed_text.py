"""What people type and read: schemas, times, sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarnlog.cli import humane
from tarnlog.cli.schema_text import parse_columns, read_schema


@pytest.mark.parametrize(
    "text, expected",
    [
        ("id long", "struct<id:long>"),
        ("id BIGINT NOT NULL, d Date", "struct<id:long,d:date>"),
        ("a int,b:smallint , c tinyint,f real, ok bool", "struct<a:integer,b:short,c:byte,f:float,ok:boolean>"),
        ("p decimal(10, 2), q numeric, v varchar(20)", "struct<p:decimal(10,2),q:decimal(10,0),v:varchar(20)>"),
        ("t array<string>, m map<string, array<int>>", "struct<t:array<string>,m:map<string,array<integer>>>"),
        ("s struct<x: int not null, y struct<z:date>>", "struct<s:struct<x:integer,y:struct<z:date>>>"),
        ("`odd name` string, `tick``s` long", "struct<odd name:string,tick`s:long>"),
    ],
)
def test_columns(text: str, expected: str) -> None:
    assert str(parse_columns(text)) == expected


def test_columns_keep_nullability_and_comments() -> None:
    first, second = parse_columns(r"id long not null comment 'it\'s the key', x string").fields
    assert (first.nullable, first.metadata) == (False, {"comment": "it's the key"})
    assert (second.nullable, second.metadata) == (True, {})


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "ends too early"),
        ("id", "ends too early"),
        ("id nonsense", "is no type"),
        ("id long x", "comma"),
        ("id long,", "ends too early"),
        ("t array<string", "needs '>'"),
        ("m map<string>", "needs ','"),
        ("id long; drop", "cannot read"),
        ("a long, A int", "twice"),
        ("x " + "array<" * 200 + "int" + ">" * 200, "nested deeper"),
    ],
)
def test_columns_that_make_no_sense(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_columns(text)


def test_a_schema_comes_from_json_or_a_file_of_either(tmp_path: Path) -> None:
    wanted = parse_columns("id long")
    assert read_schema(wanted.to_schema_string()) == wanted
    for content in (wanted.to_schema_string(), " id long\n"):
        file = tmp_path / "schema.txt"
        file.write_text(content)
        assert read_schema(str(file)) == wanted
    with pytest.raises(ValueError, match="there is no file"):
        read_schema(str(tmp_path / "none.json"))
    with pytest.raises(ValueError, match="does not decode"):
        read_schema("{")
    with pytest.raises(ValueError, match="1 to 1024 characters"):
        read_schema("x" * 5000 + " y")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("1704067200000", 1704067200000),
        ("2024-01-01T00:00:00Z", 1704067200000),
        ("2024-01-01", 1704067200000),
        ("20240101", 1704067200000),
        ("2024-01-01 01:30:00+01:00", 1704069000000),
        ("2024-01-01T00:00:00.123", 1704067200123),
        ("0", 0),
    ],
)
def test_times_as_typed(text: str, expected: int) -> None:
    assert humane.parse_moment(text) == expected


def test_a_time_that_is_none() -> None:
    with pytest.raises(ValueError, match="ISO 8601"):
        humane.parse_moment("yesterday")


def test_for_people() -> None:
    sizes = [humane.size(count) for count in (0, 1023, 1024, 1536, 5 * 1024**3, 3 * 1024**6, None)]
    assert sizes == ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 GiB", "3072.0 PiB", "?"]
    assert humane.moment(1704067200123) == "2024-01-01 00:00:00Z"
    assert humane.moment(10**18) == str(10**18)
    ages = [humane.age(0, now) for now in (999, 59_000, 60_000, 7_200_000, 90_000_000, -5000)]
    assert ages == ["0 s ago", "59 s ago", "1 min ago", "2 h ago", "1 d ago", "in the future"]
    assert [humane.plural(count, "file") for count in (0, 1, 2000)] == ["0 files", "1 file", "2,000 files"]
    assert humane.pairs({"d": None, "n": "1"}) == "d=null, n=1"
