"""Which files of a version a stream or a feed takes: each kind of commit, alone and sharing a version with others."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tarnlog import Add, Client, Expired, InvalidRequest, Remove, VersionChange, VersionInfo
from tarnlog.protocol.actions import Action
from tarnlog_spark._changes import feed_files, new_files
from tarnlog_spark._options import StreamOptions, stream_options


def add(path: str, data_change: bool = True) -> Add:
    return Add(path=path, partition_values={}, size=1, modification_time=0, data_change=data_change)


def gone(path: str, data_change: bool = True) -> Remove:
    return Remove(path=path, data_change=data_change)


class OneVersion:
    """A client of a table whose version 1 holds these commits."""

    def __init__(self, *commits: list[Action]) -> None:
        self.counts = tuple(len(commit) for commit in commits)
        self.actions = tuple(action for commit in commits for action in commit)

    def changes(self, table: str, first: int, last: int) -> list[VersionChange]:
        if first == 0:
            raise Expired("versions below 1 are no longer kept")
        adds = tuple(action for action in self.actions if isinstance(action, Add))
        removes = tuple(action for action in self.actions if isinstance(action, Remove))
        return [VersionChange(version=1, timestamp=10, adds=adds, removes=removes)]

    def version(self, table: str, number: int) -> VersionInfo:
        return VersionInfo(version=1, timestamp=10, action_counts=self.counts, actions=self.actions)


def taken(client: OneVersion, **options: str) -> list[str]:
    found = new_files(cast(Client, client), "a.t", 1, 1, _options(**options))
    return [file.path for version in found for file in version.files]


def _options(**options: str) -> StreamOptions:
    return stream_options({"path": "a.t", **options})


APPEND: list[Action] = [add("a")]
OPTIMIZE: list[Action] = [gone("x", False), gone("y", False), add("xy", False)]
DELETE: list[Action] = [gone("d")]
UPDATE: list[Action] = [gone("u"), add("u2")]
ERROR: Any = InvalidRequest


@pytest.mark.parametrize(
    "commits, plain, ignore_deletes, skip_commits, ignore_changes",
    [
        ([APPEND], ["a"], ["a"], ["a"], ["a"]),
        ([OPTIMIZE], [], [], [], []),
        ([OPTIMIZE, APPEND], ["a"], ["a"], ["a"], ["a"]),
        ([DELETE], ERROR, [], [], []),
        ([UPDATE], ERROR, ERROR, [], ["u2"]),
        ([APPEND, DELETE], ERROR, ["a"], ["a"], ["a"]),
        ([DELETE, APPEND, OPTIMIZE], ERROR, ["a"], ["a"], ["a"]),
        ([UPDATE, APPEND], ERROR, ERROR, ["a"], ["u2", "a"]),
        ([APPEND, UPDATE, DELETE], ERROR, ERROR, ["a"], ["a", "u2"]),
    ],
)
def test_a_commit_is_judged_by_its_own_actions(
    commits: list[list[Action]], plain: Any, ignore_deletes: Any, skip_commits: Any, ignore_changes: Any
) -> None:
    client = OneVersion(*commits)
    for expected, option in (
        (plain, None),
        (ignore_deletes, "ignoredeletes"),
        (skip_commits, "skipchangecommits"),
        (ignore_changes, "ignorechanges"),
    ):
        options = {} if option is None else {option: "true"}
        if expected is ERROR:
            with pytest.raises(InvalidRequest, match="skipChangeCommits"):
                taken(client, **options)
        else:
            assert taken(client, **options) == expected, option


def test_where_it_is_not_said_whose_actions_are_whose_they_are_one_commit() -> None:
    client = OneVersion(APPEND, UPDATE)
    client.counts = ()
    assert taken(client, skipchangecommits="true") == []
    assert taken(client, ignorechanges="true") == ["a", "u2"]


def test_a_feed_has_both_sides_and_no_moves() -> None:
    client = cast(Client, OneVersion(UPDATE, OPTIMIZE, APPEND, DELETE))
    (version,) = feed_files(client, "a.t", 1, 1)
    assert [(file.path, file.change, file.version, file.timestamp) for file in version.files] == [
        ("u", "delete", 1, 10),
        ("d", "delete", 1, 10),
        ("u2", "insert", 1, 10),
        ("a", "insert", 1, 10),
    ]


def test_a_cleaned_log_is_said() -> None:
    client = cast(Client, OneVersion(APPEND))
    for found in (feed_files(client, "a.t", 0, 1), new_files(client, "a.t", 0, 1, _options())):
        with pytest.raises(Expired, match=r"Version 0 of a\.t is no longer in the log"):
            list(found)
