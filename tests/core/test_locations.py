"""Places of tables: one spelling each, compared by components."""

from __future__ import annotations

import pytest

from tarnlog_server.core.locations import LocationError, below, overlap, parse_location


@pytest.mark.parametrize(
    "text, spelled",
    [
        ("/data/t", "file:///data/t"),
        ("/data/t/", "file:///data/t"),
        ("/data/t///", "file:///data/t"),
        ("file:///data/t", "file:///data/t"),
        ("FILE:///data/T", "file:///data/T"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("S3://Bucket/a", "s3://Bucket/a"),
        ("s3://bucket", "s3://bucket"),
        ("memory://w/ä ö", "memory://w/ä ö"),
    ],
)
def test_one_spelling(text: str, spelled: str) -> None:
    assert parse_location(text) == spelled
    assert parse_location(spelled) == spelled


@pytest.mark.parametrize(
    "text",
    [
        *("", "data/t", "./t", "../t", "~", "t"),
        *("/data/../t", "/data/./t", "/data//t", "s3://b/../x", "s3://b//x", "s3://b/a/..", "s3:///x"),
        *("/data/%2e%2e/t", "/100%", "/a\\b", "/a?b", "/a#b", "s3://b/x?versionId=1"),
        *("/a\nb", "/a\x00", "/a\x7f", "/\ud800", "file://host/x", "/" + "x" * 2000),
    ],
)
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(LocationError):
        parse_location(text)


@pytest.mark.parametrize(
    "root, location, inside",
    [
        ("file:///d", "file:///d", ""),
        ("file:///d", "file:///d/t", "t"),
        ("file:///d", "file:///d/a/b", "a/b"),
        ("file:///d", "file:///d1", None),
        ("file:///d/t1", "file:///d/t10", None),
        ("file:///d/t", "file:///d", None),
        ("s3://b", "s3://b/x", "x"),
        ("s3://b", "s3://bb/x", None),
        ("s3://b", "gs://b/x", None),
        ("file:///", "file:///x/y", "x/y"),
    ],
)
def test_below(root: str, location: str, inside: str | None) -> None:
    assert below(root, location) == inside


@pytest.mark.parametrize(
    "one, other, expected",
    [
        ("s3://b/t1", "s3://b/t1", True),
        ("s3://b/t1", "s3://b/t1/x", True),
        ("s3://b", "s3://b/t1", True),
        ("s3://b/t1", "s3://b/t10", False),
        ("s3://b/t1", "s3://b/t2", False),
        ("s3://b/t1", "s3://c/t1", False),
    ],
)
def test_overlap_is_symmetric(one: str, other: str, expected: bool) -> None:
    assert overlap(one, other) is overlap(other, one) is expected
