"""The identity of data-file paths, and the paths that a commit may not add."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog.protocol.paths import MAX_PATH_BYTES, check_new_path, path_key


@pytest.mark.parametrize(
    "path, key",
    [
        ("part-1.parquet", "part-1.parquet"),
        ("date=2024-01-01/part-1.parquet", "date=2024-01-01/part-1.parquet"),
        ("a%20b/c.parquet", "a b/c.parquet"),
        ("a%2Fb.parquet", "a/b.parquet"),
        ("a//b", "a/b"),
        ("a%2F%2Fb", "a/b"),
        ("a/./b", "a/b"),
        ("./a", "a"),
        ("a/.", "a"),
        ("a/%2E/b", "a/b"),
        ("a./b", "a./b"),
        ("a/.hidden/b", "a/.hidden/b"),
        ("a/../b", "a/../b"),
        ("a%252Fb", "a%2Fb"),
        ("100%25", "100%"),
        ("gr%C3%BCn", "grün"),
        ("bad%FFescape", "bad%FFescape"),
        ("s3://bucket/a//b%20c", "s3://bucket/a//b c"),
        ("file:/tmp//x", "file:/tmp//x"),
        ("/abs//x", "/abs/x"),
        ("time=10:00//x", "time=10:00/x"),
    ],
)
def test_path_key(path: str, key: str) -> None:
    assert path_key(path) == key


component = st.text(min_size=1, max_size=12).filter(lambda text: "/" not in text and text != ".")


@given(st.lists(component, min_size=1, max_size=4))
def test_encoding_a_name_does_not_change_its_key(parts: list[str]) -> None:
    name = "/".join(parts)
    assert path_key(quote(name, safe="/")) == name
    assert path_key(quote(name, safe="")) == name
    assert path_key(quote("//".join(parts) + "/.", safe="/")) == name


@given(st.text(alphabet="ab./%25EeFf:", max_size=20))
def test_the_fast_path_agrees_with_the_full_rule(path: str) -> None:
    # A doubled slash inside a relative path forces the slow way and must not change the key.
    if "/" in path and ":" not in path:
        assert path_key(path.replace("/", "//")) == path_key(path.replace("/", "/./")) == path_key(path + "/.")


@pytest.mark.parametrize(
    "path",
    [
        "part-1.parquet",
        "date=2024-01-01/part-00000-4f.snappy.parquet",
        "ts=2024-01-01 10%3A00%3A00/part.parquet",
        "country=D%C3%BCrer/part.parquet",
        "größe=1/x",
        "a..b/..c/d..",
        "a/_transaction_log/x",
        "a/_catalog/x",
        "_transaction_logs",
        "_delta_log/x",
        "%252e%252e/x",
        "a%252f..%252fb",
        "...",
        ".hidden",
        "x" * MAX_PATH_BYTES,
        "col=__HIVE_DEFAULT_PARTITION__/x",
    ],
)
def test_paths_that_may_be_added(path: str) -> None:
    assert check_new_path(path) is None


@pytest.mark.parametrize(
    "path, reason",
    [
        ("", "empty"),
        ("x" * (MAX_PATH_BYTES + 1), "1025 bytes"),
        ("ü" * 513, "1026 bytes"),
        ("/x", "absolute"),
        ("%2Fx", "absolute"),
        ("s3://bucket/x", "absolute"),
        ("s3%3A//bucket/x", "absolute"),
        ("s3:x", "absolute"),
        ("file:x", "absolute"),
        ("FILE:///x", "absolute"),
        ("C:x", "absolute"),
        ("C:/x", "absolute"),
        ("..", "'..'"),
        ("../x", "'..'"),
        ("a/../../x", "'..'"),
        ("a/..", "'..'"),
        ("%2e%2e/x", "'..'"),
        ("%2E./x", "'..'"),
        ("..%2fx", "'..'"),
        ("a%2f..%2fx", "'..'"),
        ("a\\b", "backslash"),
        ("..\\x", "backslash"),
        ("a%5Cb", "backslash"),
        ("a\x00b", "control"),
        ("a%00b", "control"),
        ("a\nb", "control"),
        ("x\n", "control"),
        ("a%7F", "control"),
        ("a\x85", "control"),
        ("a\ud800", "surrogate"),
        ("a%ED%A0%80", "not UTF-8"),
        ("a%FF", "not UTF-8"),
        ("100%", "%25"),
        ("a%zz", "%25"),
        ("_transaction_log/0.json", "_transaction_log"),
        ("_transaction_log", "_transaction_log"),
        ("_Transaction_Log/0.json", "_transaction_log"),
        ("./_transaction_log/x", "_transaction_log"),
        ("%5Ftransaction_log/x", "_transaction_log"),
        ("_transaction_log%2Fx", "_transaction_log"),
        ("_catalog/x", "_catalog"),
        ("_catalog2/x", "_catalog"),
        ("a/", "folder"),
        ("a%2F", "folder"),
        ("a/.", "folder"),
        (".", "folder"),
        ("./", "folder"),
    ],
)
def test_paths_that_are_refused(path: str, reason: str) -> None:
    message = check_new_path(path)
    assert message is not None
    assert reason in message
    assert len(message) < 200


@given(st.text(max_size=30) | st.text(alphabet="a./%2eEfF\\_:", max_size=20))
def test_an_accepted_path_stays_inside_the_table(path: str) -> None:
    if check_new_path(path) is None:
        parts = path_key(path).split("/")
        assert ".." not in parts
        assert parts[0] not in ("", "_transaction_log")
        assert "\\" not in path_key(path)
