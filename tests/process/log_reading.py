"""A table's log read from the bytes in storage, by code that shares nothing with the service.

Reading is judging: a gap, a timestamp that does not grow, a commit id that is there twice, a count that does not fit, a
file added while live or removed while not, or a version after the drop is an AssertionError that says where.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.servers import S3Server

Json = dict[str, Any]
Objects = dict[str, bytes]
_VERSION = re.compile(r"([0-9]{20})\.json\Z")


class Place(NamedTuple):
    """Where a commit is in the log."""

    version: int
    seq: int
    timestamp: int


@dataclasses.dataclass(frozen=True, slots=True)
class Logged:
    """One commit as the log holds it; `actions` are (kind, body) pairs in order."""

    place: Place
    operation: str
    read_version: int | None
    actions: list[tuple[str, Json]]


@dataclasses.dataclass(slots=True)
class Log:
    """Everything a table's log says. `head` is the highest version."""

    location: str
    head: int = -1
    commits: dict[str, Logged] = dataclasses.field(default_factory=dict)
    live: set[str] = dataclasses.field(default_factory=set)
    dropped: bool = False
    put_id: str | None = None
    """Of the newest version that was read."""

    def key(self, version: int) -> str:
        """The name of a version's object below the warehouse."""
        return f"{self.location}/_transaction_log/{version:020d}.json"


def objects_in_folder(warehouse: Path) -> Objects:
    """Every file of a local warehouse, by its key. Read it while nobody writes."""
    own = warehouse / ".tarnlog"  # the index, which is no part of the data and may be written at any time
    return {
        str(path.relative_to(warehouse)): path.read_bytes()
        for path in warehouse.rglob("*")
        if own not in path.parents and path.is_file()
    }


def objects_in_bucket(server: S3Server, bucket: str, prefix: str = "") -> Objects:
    """Every object of a bucket below a prefix, by its key without the prefix."""
    client = server.client()
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
    return {key[len(prefix) :]: client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}


def locations(objects: Objects, table: str) -> list[str]:
    """Where a name led to, oldest first; a name that was dropped and made again has several."""
    folder = "_catalog/" + table.replace(".", "/") + "/"
    entries = [json.loads(data) for key, data in sorted(objects.items()) if key.startswith(folder)]
    return [entry["location"] for entry in entries if not entry.get("dropped")]


def read_log(objects: Objects, table: str) -> Log:
    """The log of the table that has the name now."""
    return read_log_at(objects, locations(objects, table)[-1])


def read_log_at(objects: Objects, location: str) -> Log:
    """The log of the table in a folder."""
    log = Log(location)
    root = f"{location}/_transaction_log/"
    names = sorted(key[len(root) :] for key in objects if key.startswith(root))
    numbers = [int(match[1]) for name in names if (match := _VERSION.match(name))]
    assert numbers == list(range(len(numbers))), f"{root}: the versions are {numbers}"
    timestamp = -1
    for number in numbers:
        key = log.key(number)
        assert not log.dropped, f"{key} follows the drop"
        timestamp = _read_version(log, number, timestamp, objects[key])
    return log


def _read_version(log: Log, number: int, previous: int, data: bytes) -> int:
    where = log.key(number)
    info, *lines = [next(iter(line.items())) for line in _lines(data)]
    assert info[0] == "commitInfo", f"{where} starts with {info[0]}"
    timestamp = int(info[1]["timestamp"])
    assert timestamp > previous, f"{where}: timestamp {timestamp} does not follow {previous}"
    told = (info[1]["version"], info[1].get("previousPutId"))
    assert told == (number, log.put_id), f"{where} says that it is {told[0]} after {told[1]}, and follows {log.put_id}"
    log.put_id = info[1]["putId"]
    subs = info[1]["subCommits"]
    assert [sub["seq"] for sub in subs] == list(range(len(subs))), f"{where}: odd seqs"
    assert sum(sub.get("actionCount", 0) for sub in subs) == len(lines), f"{where}: counts do not sum up"
    rest = iter(lines)
    for sub in subs:
        commit_id, operation = sub["commitId"], sub["operation"]
        assert commit_id not in log.commits, f"{where}: commit {commit_id} is also at {log.commits[commit_id].place}"
        actions = [next(rest) for _ in range(sub.get("actionCount", 0))]
        place = Place(number, sub["seq"], timestamp)
        log.commits[commit_id] = Logged(place, operation, sub.get("readVersion"), actions)
        for kind, body in actions:
            _apply(log, kind, body, where)
        log.dropped = log.dropped or operation == "DROP"
    log.head = number
    return timestamp


def _apply(log: Log, kind: str, body: Json, where: str) -> None:
    if kind == "add":
        assert body["path"] not in log.live, f"{where} adds {body['path']}, which is live"
        log.live.add(body["path"])
    elif kind == "remove":
        assert body["path"] in log.live, f"{where} removes {body['path']}, which is not live"
        log.live.remove(body["path"])


def _lines(data: bytes) -> Iterator[Json]:
    data = data.removeprefix(b"\x01\x01")
    text = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    assert text.endswith(b"\n"), "a version file ends with a line feed"
    return (json.loads(line) for line in text.splitlines())
