"""A table's log read from raw bytes by the dumbest code that can: JSON, gzip, and a dict of files.

It shares nothing with the service. What the two disagree about, one of them has wrong.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from typing import Any

Json = dict[str, Any]
Objects = dict[str, tuple[bytes, int]]


class Broken(Exception):
    """The log cannot be what a log is."""


@dataclasses.dataclass(slots=True)
class State:
    """The table after a version."""

    metadata: Json | None = None
    files: dict[str, Json] = dataclasses.field(default_factory=dict)
    txns: dict[str, int] = dataclasses.field(default_factory=dict)
    skips: dict[str, int] = dataclasses.field(default_factory=dict)

    def copy(self) -> State:
        return State(self.metadata, dict(self.files), dict(self.txns), dict(self.skips))


@dataclasses.dataclass(slots=True)
class Sub:
    """One commit of a version, with what it changed. `record` is its entry in subCommits; None for outside writers."""

    version: int
    seq: int
    record: Json | None
    actions: list[tuple[str, Json]]
    metadata_before: Json | None = None
    metadata_after: Json | None = None
    removed: dict[str, Json | None] = dataclasses.field(default_factory=dict)
    faults: list[str] = dataclasses.field(default_factory=list)
    """What this commit did to the table that no commit may do."""

    @property
    def commit_id(self) -> str | None:
        return self.record.get("commitId") if self.record else None

    @property
    def operation(self) -> str:
        return str(self.record.get("operation", "UNKNOWN")) if self.record else "UNKNOWN"

    @property
    def blind(self) -> bool:
        return self.record is not None and self.record.get("isBlindAppend") is True

    @property
    def body_name(self) -> str | None:
        name = (self.record or {}).get("operationParameters", {}).get("body")
        return str(name) if name is not None else None

    def of(self, kind: str) -> list[Json]:
        return [body for name, body in self.actions if name == kind]


@dataclasses.dataclass(slots=True)
class Version:
    """One version file. `created` is when the store created it, in virtual seconds."""

    number: int
    created: float
    info: Json | None
    timestamp: int
    subs: list[Sub]
    after: State

    @property
    def ours(self) -> bool:
        return self.info is not None and "putId" in self.info


@dataclasses.dataclass(slots=True)
class Log:
    """One table's log, from its creation to its drop, if there was one. `named_at`: when its name led to it."""

    table: str
    id: str
    root: str
    named_at: float
    versions: list[Version]
    by_id: dict[str, Sub]
    floors: list[tuple[int, float]] = dataclasses.field(default_factory=list)
    """Each with the time at which it was published, ascending by version."""

    def floor_at(self, time: float) -> int:
        """The highest floor that was published at or before a time; 0 without one."""
        return max((version for version, published in self.floors if published <= time), default=0)

    def key(self, version: int) -> str:
        return f"{self.root}{version:020d}.json"

    @property
    def dropped_at(self) -> float | None:
        found = self._drop()
        return None if found is None else found[0].created

    @property
    def to_be_purged(self) -> bool:
        """Whether whoever dropped it asked for its files to go, too."""
        found = self._drop()
        return found is not None and bool((found[1].record or {}).get("operationParameters", {}).get("purge"))

    def _drop(self) -> tuple[Version, Sub] | None:
        drops = ((one, sub) for one in reversed(self.versions) for sub in one.subs if sub.operation == "DROP")
        return next(drops, None)

    def head_at(self, time: float, *, included: bool) -> int:
        """The highest version that existed before a time (`included`: or at it); -1 if there was none."""
        head = -1
        for version in self.versions:
            if version.created < time or (included and version.created == time):
                head = version.number
        return head


def read_tables(objects: Objects, created: dict[str, float]) -> dict[str, list[Log]]:
    """Every table that ever had a name, by name and in the order of the catalog. Broken says what is wrong."""
    tables: dict[str, list[Log]] = {}
    for key in sorted(objects):
        if key.startswith("_catalog/"):
            _, namespace, name, _ = key.split("/")
            entry = json.loads(objects[key][0])
            if not entry.get("dropped"):
                table = f"{namespace}.{name}"
                log = _read_log(table, entry, created[key], objects, created)
                tables.setdefault(table, []).append(log)
    return tables


def _read_log(table: str, entry: Json, named_at: float, objects: Objects, created: dict[str, float]) -> Log:
    root = f"{entry['location']}/_transaction_log/"
    numbered = (key[len(root) :] for key in objects if key.startswith(root) and key[len(root)].isdigit())
    names = sorted(name for name in numbered if ".checkpoint." not in name)
    log = Log(table, entry["id"], root, named_at, [], {})
    floors = sorted(key for key in objects if key.startswith(f"{root}_floor/"))
    log.floors = [(int(key.rsplit("/", 1)[1]), created[key]) for key in floors]
    state, timestamp = State(), -1
    for number, name in enumerate(names):
        if name != f"{number:020d}.json":
            raise Broken(f"{root}: version {number} is missing, there is {name}")
        data, modified = objects[root + name]
        version = _read_version(number, data, modified, created[root + name], timestamp)
        _check_chain(version, log.versions[-1] if log.versions else None)
        state = state.copy()
        for sub in version.subs:
            _apply(sub, state)
            if sub.commit_id:
                if sub.commit_id in log.by_id:
                    raise Broken(
                        f"{root}: commit {sub.commit_id} is in versions {log.by_id[sub.commit_id].version} and {number}"
                    )
                log.by_id[sub.commit_id] = sub
        version.after = state
        timestamp = version.timestamp
        log.versions.append(version)
    return log


def _check_chain(version: Version, before: Version | None) -> None:
    """Every version of the service's own names its number and the version before."""
    if version.ours and version.info is not None:
        put_id = before.info.get("putId") if before is not None and before.info is not None else None
        told = (version.info.get("version"), version.info.get("previousPutId"))
        if told != (version.number, put_id):
            raise Broken(f"version {version.number} says that it is {told[0]} after {told[1]}, and follows {put_id}")


def _read_version(number: int, data: bytes, modified: int, created: float, previous: int) -> Version:
    if data[:2] == b"\x01\x01":
        data = data[2:]
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    lines = [json.loads(line) for line in data.split(b"\n") if line.strip()]
    actions = [next(iter(line.items())) for line in lines]
    info = next((body for name, body in actions if name == "commitInfo"), None)
    actions = [(name, body) for name, body in actions if name != "commitInfo"]
    records = info.get("subCommits", []) if info else []
    subs: list[Sub] = []
    if records:
        if lines[0].keys() != {"commitInfo"}:
            raise Broken(f"version {number}: commitInfo is not the first line")
        counts = [record.get("actionCount", 0) for record in records]
        if sum(counts) != len(actions):
            raise Broken(f"version {number}: the counts {counts} do not sum to its {len(actions)} actions")
        if [record["seq"] for record in records] != list(range(len(records))):
            raise Broken(f"version {number}: seqs are {[record['seq'] for record in records]}")
        start = 0
        for record, count in zip(records, counts, strict=True):
            subs.append(Sub(number, record["seq"], record, actions[start : start + count]))
            start += count
    else:
        subs.append(Sub(number, 0, None, actions))
    timestamp = info.get("timestamp") if info else None
    if info is not None and "putId" in info:
        if timestamp is None or timestamp <= previous:
            raise Broken(f"version {number}: its timestamp {timestamp} does not follow {previous}")
    else:
        timestamp = max(modified if timestamp is None else timestamp, previous + 1)
    return Version(number, created, info, timestamp, subs, State())


def _apply(sub: Sub, state: State) -> None:
    sub.metadata_before = state.metadata
    for kind, body in sub.actions:
        if kind == "add":
            if body["path"] in state.files:
                sub.faults.append(f"adds {body['path']}, which is live")
            state.files[body["path"]] = body
        elif kind == "remove":
            path = body["path"]
            if path not in state.files:
                sub.faults.append(f"removes {path}, which is not live")
            sub.removed[path] = state.files.pop(path, None)
            state.skips.pop(path, None)
        elif kind == "txn":
            if body["version"] <= state.txns.get(body["appId"], -1):
                sub.faults.append(f"takes {body['appId']} from {state.txns[body['appId']]} to {body['version']}")
            state.txns[body["appId"]] = body["version"]
        elif kind == "mergeskip":
            count = state.skips.get(body["path"], 0) + 1
            if body["path"] not in state.files or body.get("skipCount", 1) != count:
                sub.faults.append(f"counts skip {body.get('skipCount', 1)} of {body['path']} instead of {count}")
            state.skips[body["path"]] = count
        elif kind == "metaData":
            state.metadata = body
    sub.metadata_after = state.metadata
