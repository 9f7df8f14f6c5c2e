"""Reads a table's log from disk without the service's code: what it finds there is what everybody else would find."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from tarnlog_server.demo.writers import Acknowledged

_FRAME = b"\x01\x01"
_NAME = re.compile(r"(\d{20})\.json\Z")


class LogCheck(Struct, frozen=True):
    """What is in the log, and in which ways it disagrees with what writers were told."""

    versions: int
    batches: list[int]
    missing: list[str]
    repeated: list[str]
    misplaced: list[str]
    gaps: list[int]

    @property
    def sound(self) -> bool:
        """Whether every acknowledged commit is there, once, where its writer was told."""
        return not (self.missing or self.repeated or self.misplaced or self.gaps)


def check_log(warehouse: Path, acknowledged: Iterable[Acknowledged]) -> LogCheck:
    """Compare the one table's version files with the acknowledgements."""
    [folder] = warehouse.glob("*/*/_transaction_log")
    files = {int(match[1]): file for file in folder.iterdir() if (match := _NAME.match(file.name))}
    places: dict[str, list[tuple[int, int]]] = {}
    batches: list[int] = []
    for version, file in sorted(files.items()):
        subs = _sub_commits(file)
        if version > 0:
            batches.append(len(subs))
        for commit_id, seq in subs:
            places.setdefault(commit_id, []).append((version, seq))
    told = {commit.commit_id: (commit.version, commit.seq) for commit in acknowledged}
    return LogCheck(
        versions=len(files),
        batches=batches,
        missing=[commit_id for commit_id in told if commit_id not in places],
        repeated=[commit_id for commit_id, found in places.items() if len(found) > 1],
        misplaced=[commit_id for commit_id, place in told.items() if place not in places.get(commit_id, [place])],
        gaps=[version for version in range(len(files)) if version not in files],
    )


def _sub_commits(file: Path) -> list[tuple[str, int]]:
    data = file.read_bytes().removeprefix(_FRAME)
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    for line in data.splitlines():
        action = json.loads(line)
        if "commitInfo" in action:
            return [(sub["commitId"], sub["seq"]) for sub in action["commitInfo"]["subCommits"]]
    return []
