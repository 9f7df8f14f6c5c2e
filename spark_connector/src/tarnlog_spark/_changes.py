"""The files that versions added and removed, as change feeds and streams take them.

Commits that only move rows about (dataChange false, such as an optimize) change nothing for either. Several commits may
share a version, so what a commit did is judged by its own actions, never by the version's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from tarnlog import Add, Expired, InvalidRequest, Remove, VersionChange, VersionInfo
from tarnlog.protocol.actions import Action
from tarnlog_spark._files import DataFile, added, removed
from tarnlog_spark._options import Feed, StreamOptions, option_error

if TYPE_CHECKING:
    from tarnlog import Client


class VersionFiles(Struct, frozen=True):
    """What one version brings, in the order of the log; it may be nothing."""

    version: int
    files: tuple[DataFile, ...]


def feed_range(client: Client, table: str, feed: Feed) -> tuple[int, int]:
    """The first and last version of a batch feed, both inclusive. An end beyond the newest version is that one."""
    head = client.snapshot(table).version
    if feed.starting_timestamp is not None:
        first = version_from(client, table, feed.starting_timestamp)
    else:
        first = feed.starting_version or 0
    if first > head:
        raise option_error(f"startingVersion {first} is not there yet: the newest version of {table} is {head}.")
    last = head
    if feed.ending_version is not None:
        last = min(feed.ending_version, head)
    elif feed.ending_timestamp is not None:
        last = client.snapshot(table, timestamp=feed.ending_timestamp).version
    if last < first:
        raise option_error(f"The change feed would start at version {first} and end before it, at {last}.")
    return first, last


def version_from(client: Client, table: str, timestamp: int) -> int:
    """The first version that is not older than a time."""
    try:
        found = client.snapshot(table, timestamp=timestamp)
    except Expired:
        client.version(table, 0)  # before the first version everything is wanted; a cleaned log says so here
        return 0
    if found.timestamp == timestamp:
        return found.version
    if client.snapshot(table).version == found.version:
        raise option_error(
            f"startingTimestamp lies after the newest version of {table} ({found.version}): use startingVersion "
            "latest to read what comes from now on."
        )
    return found.version + 1


def feed_files(client: Client, table: str, first: int, last: int) -> Iterator[VersionFiles]:
    """Every file whose rows versions `first` to `last` added or removed."""
    for change in _changes(client, table, first, last):
        version, timestamp = change.version, change.timestamp
        gone = [removed(file, version=version, timestamp=timestamp) for file in change.removes if file.data_change]
        new = [added(file, version=version, timestamp=timestamp) for file in change.adds if file.data_change]
        yield VersionFiles(version, (*gone, *new))


def new_files(client: Client, table: str, first: int, last: int, options: StreamOptions) -> Iterator[VersionFiles]:
    """The files whose rows a stream of new rows takes. A commit that takes rows away is an error unless allowed."""
    for change in _changes(client, table, first, last):
        adds = tuple(file for file in change.adds if file.data_change)
        if any(file.data_change for file in change.removes):
            adds = tuple(_judged(client.version(table, change.version), table, options))
        yield VersionFiles(
            change.version, tuple(added(file, version=change.version, timestamp=change.timestamp) for file in adds)
        )


def _changes(client: Client, table: str, first: int, last: int) -> Iterator[VersionChange]:
    if first > last:
        return
    try:
        yield from client.changes(table, first, last)
    except Expired as error:
        raise cleaned(table, first, error) from None


def cleaned(table: str, version: int, error: Expired) -> Expired:
    """The log does not reach back to where a reader stands."""
    return Expired(
        f"Version {version} of {table} is no longer in the log: it was cleaned before it was read, so changes may be "
        f"missed. Start anew, with a new checkpoint or a later startingVersion. {error.detail}",
        slug=error.slug or "version-expired",
        status=410,
    )


def _judged(version: VersionInfo, table: str, options: StreamOptions) -> Iterator[Add]:
    """The adds that a stream takes of a version in which a commit removed rows."""
    for commit in _by_commit(version):
        adds = [action for action in commit if isinstance(action, Add) and action.data_change]
        if any(isinstance(action, Remove) and action.data_change for action in commit):
            _check_allowed(version.version, table, options, rewrote=bool(adds))
            if options.skip_change_commits:
                continue
        yield from adds


def _check_allowed(version: int, table: str, options: StreamOptions, *, rewrote: bool) -> None:
    if options.skip_change_commits or options.ignore_changes or (options.ignore_deletes and not rewrote):
        return
    what = "rewrote" if rewrote else "deleted"
    least = "" if rewrote else "ignoreDeletes takes no notice of deletes; "
    raise InvalidRequest(
        f"Version {version} of {table} {what} rows that a stream of new rows cannot take back. {least}"
        "skipChangeCommits leaves out such commits; ignoreChanges takes rewritten files whole, so rows may come "
        "twice; readChangeFeed tells inserts from deletes.",
        slug="stream-source-changed",
    )


def _by_commit(version: VersionInfo) -> list[list[Action]]:
    """The actions of each commit of a version; where it is not said whose they are, they count as one commit's."""
    actions = [action for action in version.actions if isinstance(action, Action)]
    if sum(version.action_counts) != len(actions):
        return [actions]
    rest = iter(actions)
    return [list(itertools.islice(rest, count)) for count in version.action_counts]
