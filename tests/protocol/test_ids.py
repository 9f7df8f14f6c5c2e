"""Names and ids: what is accepted, and that an id carries its time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog.protocol.ids import TableName, commit_id_time_ms, parse_commit_id, uuid7


@pytest.mark.parametrize(
    "text, parts",
    [
        ("sales.orders", ("sales", "orders")),
        ("a.b", ("a", "b")),
        ("A9_-.0_-z", ("A9_-", "0_-z")),
        ("_x._y", ("_x", "_y")),
        ("a" * 128 + "." + "b" * 128, ("a" * 128, "b" * 128)),
    ],
)
def test_good_table_names(text: str, parts: tuple[str, str]) -> None:
    name = TableName.parse(text)
    assert (name.namespace, name.name) == parts
    assert str(name) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "..", "...", "*", "*.*", "a", "a.", ".b", "a.b.c", "a..b", "a.*", "a...", "../etc.passwd", "a/b.c"),
        *("a.b\n", "a\n.b", "a.b ", " a.b", "a.b\x00", "a.b\r", "a.b\u2028", "a\t.b"),
        *("-a.b", "a.-b", "a.b%2e", "a.b\\c", "a.b:c", "a.b?c", "a.b#c", "ä.b", "a.日本", "a.b\u0661", "\ud800.b"),
        *("a" * 129 + ".b", "a." + "b" * 129, "a." + "b" * 1024, "x" * 1024),
    ],
)
def test_bad_table_names(text: str) -> None:
    with pytest.raises(ValueError, match="is not a table name: write namespace") as caught:
        TableName.parse(text)
    assert len(str(caught.value)) < 400, "the message stays readable for a long name"


@given(st.text(max_size=12))
def test_a_name_is_its_own_text_or_an_error(text: str) -> None:
    try:
        assert str(TableName.parse(text)) == text
    except ValueError:
        return
    assert text.isascii()
    assert not set(text) & set("/\\*%\n\x00")


@given(st.integers(0, 2**48 - 1), st.integers())
def test_an_id_carries_its_time(now_ms: int, seed: int) -> None:
    made = uuid7(now_ms, random.Random(seed))
    assert made.version == 7
    assert made.variant == "specified in RFC 4122"
    assert parse_commit_id(str(made)) == str(made)
    assert parse_commit_id(str(made).upper()) == str(made)
    assert commit_id_time_ms(str(made)) == now_ms


@given(st.integers(0, 2**48 - 2), st.integers())
def test_ids_sort_by_time(now_ms: int, seed: int) -> None:
    rng = random.Random(seed)
    assert str(uuid7(now_ms, rng)) < str(uuid7(now_ms + 1, rng))


def test_the_example_of_the_standard() -> None:
    assert commit_id_time_ms(parse_commit_id("017F22E2-79B0-7CC3-98C4-DC0C0C07398F")) == 0x017F22E279B0


SOME = "018cc251-f400-7000-8000-000000000000"


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "0", SOME[:-1], SOME + "0", SOME + "\n", " " + SOME, "{" + SOME + "}", "urn:uuid:" + SOME),
        SOME.replace("-", ""),
        "c9ca7248-a873-41de-8c92-1f54916706c1",
        "018cc251-f400-6000-8000-000000000000",
        "018cc251-f400-7000-0000-000000000000",
        "018cc251-f400-7000-8000-00000000000g",
        "\ud800" * 36,
        "x" * 100_000,
    ],
)
def test_other_commit_ids_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="commitId must be a UUID version 7"):
        parse_commit_id(text)
