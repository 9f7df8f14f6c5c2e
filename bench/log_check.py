"""Checks a table's log against what its writers were told, by reading the version files themselves.

Shares no code with the service on purpose: a mistake there must not hide itself here. Every acknowledged commit must be
in the log exactly once, at the version and place told; versions must follow each other from 0 without a gap.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from bench.samples import Acknowledged

_VERSION_FILE = re.compile(r"(\d{20})\.json\Z")


class _SubCommit(msgspec.Struct, rename="camel"):
    commit_id: str
    seq: int


class _CommitInfo(msgspec.Struct, rename="camel"):
    sub_commits: list[_SubCommit] = []


class _Add(msgspec.Struct):
    path: str


class _Line(msgspec.Struct, rename="camel"):
    commit_info: _CommitInfo | None = None
    add: _Add | None = None


class LogCheck(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the log holds, and every way in which it disagrees with the acknowledgements."""

    versions: int
    sub_commits: int
    adds: int
    gaps: list[int] = []
    lost: list[str] = []
    misplaced: list[str] = []
    repeated: list[str] = []
    unreadable: list[str] = []
    unacknowledged: int = 0

    @property
    def faults(self) -> list[str]:
        """One sentence for each kind of disagreement."""
        kinds: dict[str, list[int] | list[str]] = {
            "gaps": self.gaps,
            "lost": self.lost,
            "misplaced": self.misplaced,
            "repeated": self.repeated,
            "unreadable": self.unreadable,
        }
        return [f"{len(found)} {kind}, first {found[0]}" for kind, found in kinds.items() if found]

    @property
    def sound(self) -> bool:
        return not self.faults

    @property
    def exact(self) -> bool:
        """Sound, and nothing is in the log that nobody was told of."""
        return self.sound and self.unacknowledged == 0


def inflate(data: bytes) -> bytes:
    """The NDJSON of a version file: plain, gzip, or 0x01 0x01 before gzip."""
    if data.startswith(b"\x01\x01"):
        data = data[2:]
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def version_files(log: Path) -> list[tuple[int, Path]]:
    """The version files of a log folder, in order."""
    found = ((_VERSION_FILE.match(path.name), path) for path in log.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match)


def check_log(log: Path, acknowledged: Iterable[Acknowledged]) -> LogCheck:
    """Compare the log folder of one table with the acknowledgements of its writers."""
    files = version_files(log)
    places: dict[str, tuple[int, int]] = {}
    repeated: list[str] = []
    unreadable: list[str] = []
    adds = sub_commits = 0
    decoder = msgspec.json.Decoder(_Line)
    for version, path in files:
        try:
            lines = decoder.decode_lines(inflate(path.read_bytes()))
        except (OSError, EOFError, zlib.error, msgspec.DecodeError, UnicodeDecodeError) as error:
            unreadable.append(f"{path.name}: {error}")
            continue
        adds += sum(line.add is not None for line in lines)
        if version == 0:
            continue  # the table's creation: nobody's commit
        for info in (line.commit_info for line in lines):
            for sub in info.sub_commits if info else ():
                sub_commits += 1
                if sub.commit_id in places:
                    repeated.append(sub.commit_id)
                places[sub.commit_id] = (version, sub.seq)
    told = {one.commit_id: (one.version, one.seq) for one in acknowledged}
    return LogCheck(
        versions=len(files),
        sub_commits=sub_commits,
        adds=adds,
        gaps=[expected for expected, (version, _) in enumerate(files) if expected != version][:1],
        lost=[commit_id for commit_id in told if commit_id not in places],
        misplaced=[commit_id for commit_id, place in told.items() if places.get(commit_id, place) != place],
        repeated=repeated,
        unreadable=unreadable,
        unacknowledged=sum(commit_id not in told for commit_id in places),
    )
