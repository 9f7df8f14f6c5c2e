"""What reads and feeds showed, compared with a replay of the log: not too old, not of the future, nothing left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.journal import Followed, Journal, Read
from tests.simulation.log_model import Log, Sub, Version
from tests.simulation.times import missing_allowed, version_faults

Json = dict[str, Any]
Tables = dict[str, list[Log]]

PASSING = (
    "lost",
    "storage-unavailable",
    "storage-refused",
    "shutting-down",
    "commit-id-out-of-window",
)
FLOOR_CACHED_SECONDS = 302.0
"""For so long a replica may not know of a floor that another one published: nothing is deleted for a day."""

PAGED = ("files", "changes", "history")


def check_reads(journal: Journal, tables: Tables) -> list[str]:
    """Faults of every read."""
    found = []
    for read in journal.reads:
        damage = journal.damaged_before(read.table, read.ended)
        if damage is not None and read.slug == "log-corrupt":
            continue
        faults = _check_read(read, tables.get(read.table, []))
        if read.started >= journal.calm_since and read.slug in PASSING:
            faults.append(f"storage is well, and a reader is told {read.slug}")
        found += [f"{read.what} {read.asked} at {read.started:.3f} on {read.replica}: {fault}" for fault in faults]
    return found


def _check_read(read: Read, logs: list[Log]) -> list[str]:
    if read.answer is None:
        if read.slug == "table-not-found":
            allowed = missing_allowed(logs, read.started - read.staleness, read.ended)
            return [] if allowed else ["the table was there all the time"]
        if read.slug == "version-not-found":
            return _check_not_found(read, logs)
        if read.slug == "request-invalid" and read.what in PAGED and len(logs) > 1:
            return []  # the next page of a listing, whose table was created anew in between
        if read.slug == "version-expired":
            return [] if any(_is_expired(read, log) for log in logs) else ["the version is kept"]
        return [] if read.slug in PASSING else [f"a reader is never told {read.slug} here"]
    faults = ["there is no such table"]
    for log in logs:
        faults = CHECKS[read.what](read, read.answer, log)
        if not faults:
            return []
    return faults


def _check_not_found(read: Read, logs: list[Log]) -> list[str]:
    """A version may be missing if it was not there when the read began."""
    asked = read.asked.get("version", read.asked.get("first"))
    if asked is None:
        # The next page of a listing, whose table was replaced by a shorter one in between.
        return [] if len(logs) > 1 else ["no version was asked for"]
    first = read.started if "version" in read.asked else read.started - read.staleness
    return [] if any(log.head_at(first, included=False) < asked for log in logs) else ["it is there"]


def _is_expired(read: Read, log: Log) -> bool:
    """Whether what was asked for lies below a floor. The next page of a listing asks for nothing by itself."""
    floor = log.floor_at(read.ended)
    if "timestamp" in read.asked:
        return bool(read.asked["timestamp"] < log.versions[floor].timestamp)
    asked = read.asked.get("version", read.asked.get("first"))
    return floor > 0 if asked is None else bool(asked < floor)


def _start_faults(log: Log, first: int, read: Read) -> list[str]:
    """A listing without a beginning starts with version 0 or a floor, and not with one that was passed long ago."""
    if first and first not in [version for version, published in log.floors if published <= read.ended]:
        return [f"it starts with version {first}, which is no floor"]
    return _passed(log, first, read)


def _passed(log: Log, version: int, read: Read) -> list[str]:
    floor = log.floor_at(read.started - FLOOR_CACHED_SECONDS)
    return [f"version {version} is below the floor {floor}"] if version < floor else []


def _snapshot(read: Read, answer: Json, log: Log) -> list[str]:
    version = answer["version"]
    if answer["metaData"]["id"] != log.id or version >= len(log.versions):
        return [f"it is not table {log.id}"]
    found = _compare(answer, log.versions[version])
    first = read.started - read.staleness
    found += _passed(log, version, read)
    if "version" in read.asked:
        return found if version == read.asked["version"] else [*found, f"it is version {version}"]
    if "timestamp" in read.asked:
        wanted = read.asked["timestamp"]
        following = log.versions[version + 1] if version + 1 < len(log.versions) else None
        if log.versions[version].timestamp > wanted:
            found.append(f"version {version} is newer than {wanted}")
        if following is not None and following.timestamp <= wanted and following.created < first:
            found.append(f"version {following.number} is older than {wanted} too")
        return found
    return found + version_faults(log, version, first, read.ended)


def _compare(answer: Json, version: Version) -> list[str]:
    files = version.after.files.values()
    counts = [file.get("numRecords") for file in files]
    expected = {
        "timestamp": version.timestamp,
        "numFiles": len(files),
        "totalBytes": sum(file["size"] for file in files),
        "numRecords": None if None in counts else sum(count or 0 for count in counts),
        "txns": version.after.txns,
    }
    found = [f"{key} is {answer[key]} instead of {value}" for key, value in expected.items() if answer[key] != value]
    metadata = {key: value for key, value in answer["metaData"].items() if value is not None}
    return found if metadata == version.after.metadata else [*found, f"metaData is {metadata}"]


def _files(read: Read, answer: Json, log: Log) -> list[str]:
    version = answer["version"]
    if answer["versions"] != [version] or version >= len(log.versions):
        return [f"pages of versions {answer['versions']}"]
    shown = {file["path"]: {k: v for k, v in file.items() if v is not None} for file in answer["files"]}
    found = version_faults(log, version, read.started - read.staleness, read.ended)
    if len(shown) != len(answer["files"]):
        found.append("a file is shown twice")
    # `dataChange` speaks of the commit, not of the file: no listing tells it.
    kept = {path: {**file, "dataChange": False} for path, file in log.versions[version].after.files.items()}
    if shown != kept:
        found.append(f"version {version} has other files: {sorted(shown.keys() ^ log.versions[version].after.files)}")
    return found


def _changes(read: Read, answer: Json, log: Log) -> list[str]:
    first = read.asked.get("first", 0)
    if "first" not in read.asked and answer["changes"]:
        # Without a beginning they start at the floor, and a drop that purges puts that at its own version.
        first = answer["changes"][0]["version"]
    found = _start_faults(log, first, read) if "first" not in read.asked else _passed(log, first, read)
    found += _sequence(answer["changes"], first, log)
    last = first + len(answer["changes"]) - 1
    # With `first` above the head there is nothing to show, which is right while that version is young enough.
    return found or version_faults(log, last, read.started - read.staleness, read.ended)


def _sequence(changes: list[Json], first: int, log: Log) -> list[str]:
    numbers = [change["version"] for change in changes]
    if numbers != list(range(first, first + len(numbers))) or (numbers and numbers[-1] >= len(log.versions)):
        return [f"versions {numbers} instead of all from {first}"]
    for change in changes:
        version = log.versions[change["version"]]
        actions = [action for sub in version.subs for action in sub.actions]
        for name, kind in (("adds", "add"), ("removes", "remove")):
            shown = [{k: v for k, v in action.items() if v is not None} for action in change[name]]
            if shown != [body for found, body in actions if found == kind]:
                return [f"version {version.number} shows other {name}"]
        if change["timestamp"] != version.timestamp or not _same_commits(change["commits"], version.subs):
            return [f"version {version.number} shows other commits or another time"]
    return []


def _same_commits(shown: list[Json], subs: list[Sub]) -> bool:
    told = [(commit["version"], commit["seq"], commit["commitId"], commit["operation"]) for commit in shown]
    return told == [(sub.version, sub.seq, sub.commit_id, sub.operation) for sub in subs]


def _history(read: Read, answer: Json, log: Log) -> list[str]:
    commits = answer["commits"]
    newest = commits[0]["version"] if commits else -1
    oldest = commits[-1]["version"] if commits else 0
    subs = [sub for version in log.versions[oldest : newest + 1] for sub in version.subs]
    if not _same_commits(commits[::-1], subs):
        return [f"it is not the history from version {oldest} to {newest}"]
    return _start_faults(log, oldest, read) or version_faults(log, newest, read.started - read.staleness, read.ended)


def _status(read: Read, answer: Json, log: Log) -> list[str]:
    sub = log.by_id.get(read.asked["commitId"])
    if answer["outcome"] == "committed":
        told = (answer["version"], answer["seq"])
        return [] if sub is not None and told == (sub.version, sub.seq) else ["it is not there"]
    if answer["outcome"] == "not-found":
        found = version_faults(log, answer["asOfVersion"], read.started, read.ended)
        return [*found, f"it is in version {sub.version}"] if sub and sub.version <= answer["asOfVersion"] else found
    return []


CHECKS: dict[str, Callable[[Read, Json, Log], list[str]]] = {
    "snapshot": _snapshot,
    "files": _files,
    "changes": _changes,
    "history": _history,
    "status": _status,
}


def check_feeds(journal: Journal, tables: Tables) -> list[str]:
    """Every feed shows each version once, in order; the last one is complete once storage is well."""
    found = []
    for feed in journal.followed:
        logs = tables.get(feed.table, [])
        faults = [_sequence(feed.changes, feed.after + 1, log) for log in logs]
        if feed.changes and all(faults):
            found.append(f"feed after {feed.after} on {feed.replica}: {faults[-1]}")
    if journal.feed_is_complete and journal.followed:
        found += _check_complete(journal.followed, tables.get(journal.followed[0].table, []))
    return found


def _check_complete(feeds: list[Followed], logs: list[Log]) -> list[str]:
    if len(logs) != 1 or logs[0].dropped_at is not None:
        return []  # by its name nobody can follow a dropped table to its end
    shown = max((feed.changes[-1]["version"] for feed in feeds if feed.changes), default=-1)
    last = logs[0].versions[-1].number
    return [] if shown == last else [f"the feeds end at version {shown} of {last}"]
