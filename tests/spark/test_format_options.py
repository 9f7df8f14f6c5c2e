"""Options of the format: each direction takes its own, and says what it would have taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tarnlog import InvalidRequest
from tarnlog_spark import _options
from tarnlog_spark._options import LATEST, Feed

T = {"path": "a.t"}


def write(options: dict[str, str]) -> object:
    return _options.write_options(options, overwrite=True)


@pytest.mark.parametrize(
    "parse, options, sentence",
    [
        (_options.read_options, {}, "Name the table"),
        (_options.read_options, {"path": "orders"}, "namespace.name"),
        (_options.read_options, {"path": "a.t", "table": "a.t"}, "exclude each other"),
        (_options.read_options, {**T, "versionasoff": "1"}, "did you mean versionAsOf"),
        (_options.read_options, {**T, "quux": "1"}, "it takes allowOverwrite, apiKey, columns"),
        (_options.read_options, {**T, "columns": "a, `b"}, "names between commas"),
        (_options.read_options, {**T, "columns": "`a` b"}, "names between commas"),
        (_options.read_options, {**T, "versionasof": "new"}, "versionAsOf is a number"),
        (_options.read_options, {**T, "versionasof": "-1"}, "versionAsOf is a number"),
        (_options.read_options, {**T, "versionasof": "1", "timestampasof": "2024-01-01"}, "exclude each other"),
        (_options.read_options, {**T, "timestampasof": "yesterday"}, "timestampAsOf is a time such as"),
        (_options.read_options, {**T, "startingversion": "1"}, "need readChangeFeed"),
        (_options.read_options, {**T, "readchangefeed": "true"}, "needs startingVersion"),
        (_options.read_options, {**T, "readchangefeed": "yes"}, "true or false"),
        (_options.read_options, {**T, "readchangefeed": "true", "startingversion": "latest"}, "for streams"),
        (_options.read_options, {**T, "readchangefeed": "true", "versionasof": "3"}, "reads a range"),
        (_options.read_options, {**T, "maxfilespertrigger": "3"}, "no option 'maxfilespertrigger'"),
        (_options.stream_options, {**T, "versionasof": "3"}, "no option 'versionasof'"),
        (_options.stream_options, {**T, "maxfilespertrigger": "0"}, "number from 1"),
        (_options.stream_options, {**T, "maxbytespertrigger": "10 elephants"}, "64m or 1g"),
        (_options.stream_options, {**T, "startingversion": "1", "startingtimestamp": "2024"}, "exclude each other"),
        (write, {**T, "txnappid": "x"}, "give both or neither"),
        (write, {**T, "txnversion": "1"}, "give both or neither"),
        (write, {**T, "partitionoverwritemode": "sometimes"}, "static or dynamic"),
        (write, {**T, "replacewhere": "x = 1", "overwriteschema": "true"}, "exclude each other"),
        (write, {**T, "checkpointlocation": "/c"}, "no option"),
        (_options.sink_options, {**T, "replacewhere": "x = 1"}, "no option"),
        (_options.read_options, {}, "CREATE TABLE ... USING tarnlog, saveAsTable. names none"),
        (
            _options.schema_options,
            {"owner": "me", "provider": "tarnlog", "table": "a.t"},
            "CREATE TABLE ... USING tarnlog",
        ),
        (write, {"table": "a.t"}, "would replace every row of a.t; nothing was written.*allowOverwrite"),
        (write, {"table": "a.t", "allowoverwrite": "false"}, "would replace every row"),
        (_options.read_options, {**T, "deadlineseconds": "0"}, "deadlineSeconds is a number from 1"),
    ],
)
def test_a_bad_option_says_what_to_write(
    parse: Callable[[dict[str, str]], Any], options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        parse(options)


@pytest.mark.parametrize(
    "option", [{"overwriteschema": "true"}, {"replacewhere": "x"}, {"partitionoverwritemode": "dynamic"}]
)
def test_overwrite_options_do_not_go_with_append(option: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="this write appends"):
        _options.write_options({**T, **option}, overwrite=False)


def test_values_are_read_as_people_write_them() -> None:
    found = _options.read_options(
        {**T, "TimestampAsOf": "2024-01-31 10:00:00", "columns": "id, day", "url": "http://x"}
    )
    assert found.timestamp == 1_706_695_200_000
    assert found.columns == ("id", "day")
    assert found.place.url == "http://x"
    assert _options.read_options({**T, "timestampasof": "2024-01-31T11:00:00+01:00"}).timestamp == found.timestamp
    assert _options.read_options({**T, "timestampasof": "1706695200000"}).timestamp == found.timestamp
    stream = _options.stream_options({**T, "maxbytespertrigger": "64m", "startingversion": "latest"})
    assert (stream.max_bytes, stream.max_files) == (64 * 1024 * 1024, None)
    assert stream.feed == Feed(starting_version=LATEST)
    assert _options.stream_options(T).max_files == 1000
    assert _options.write_options({**T, "txnappid": "a", "txnversion": "4"}, overwrite=False).txn == ("a", 4)
    assert _options.sink_options({**T, "checkpointlocation": "/c", "queryname": "q"}).checkpoint == "/c"


@pytest.mark.parametrize(
    "text, names",
    [
        ("", ()),
        (" id ,day,", ("id", "day")),
        ("`a,b`, c", ("a,b", "c")),
        ("c,`a``b` ", ("c", "a`b")),
        ("a`b,` c `", ("a`b", " c ")),
        (",, ,", ()),
    ],
)
def test_names_between_commas(text: str, names: tuple[str, ...]) -> None:
    assert _options.read_options({**T, "columns": text}).columns == names


def test_a_table_that_the_option_names_is_replaced_only_where_an_option_says_what_goes() -> None:
    named = {"table": "a.t"}
    assert _options.write_options(named, overwrite=False).place.table == "a.t"
    for option in (
        {"allowoverwrite": "true"},
        {"replacewhere": "day = 1"},
        {"partitionoverwritemode": "dynamic"},
        {"overwriteschema": "true"},
    ):
        assert _options.write_options({**named, **option}, overwrite=True).place.table == "a.t"
    assert _options.write_options(T, overwrite=True).place.table == "a.t"
    # A view hands the same options to its reads.
    assert _options.read_options({**named, "allowoverwrite": "true"}).place.table == "a.t"
