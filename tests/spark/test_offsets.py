"""Batches of a stream against a dumb model: the whole log as one list of files, each taken once and in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog import InvalidRequest
from tarnlog_spark._changes import VersionFiles
from tarnlog_spark._files import DataFile
from tarnlog_spark._offsets import NOTHING_YET, Limit, Offset, batch_end, files_between, offset_from

sizes = st.lists(st.lists(st.integers(0, 10), max_size=4), min_size=1, max_size=6)


class Log:
    """Versions with files of given sizes; a snapshot has all files so far."""

    def __init__(self, versions: list[list[int]]) -> None:
        self.versions = [
            tuple(DataFile(path=f"{number}-{index}", size=size) for index, size in enumerate(sizes))
            for number, sizes in enumerate(versions)
        ]

    def snapshot(self, version: int) -> Sequence[DataFile]:
        return [file for files in self.versions[: version + 1] for file in files]

    def range(self, first: int, last: int) -> Iterator[VersionFiles]:
        assert first >= 0
        for version in range(first, last + 1):
            yield VersionFiles(version, self.versions[version])


def start_of(kind: str, log: Log) -> tuple[Offset, list[DataFile]]:
    """A first offset, and everything that a stream from there must read."""
    last = len(log.versions) - 1
    if kind == "snapshot":
        return Offset(version=NOTHING_YET, start="snapshot"), list(log.snapshot(last))
    if kind == "latest":
        return Offset(version=NOTHING_YET, start="latest"), []
    return Offset(version=NOTHING_YET), list(log.snapshot(last))


@given(
    sizes,
    st.sampled_from(["snapshot", "latest", "first"]),
    st.integers(1, 5) | st.none(),
    st.integers(1, 20) | st.none(),
    sizes,
)
def test_every_file_once_and_in_order(
    versions: list[list[int]], kind: str, max_files: int | None, max_bytes: int | None, later: list[list[int]]
) -> None:
    log = Log(versions)
    here, expected = start_of(kind, log)
    taken: list[DataFile] = []
    for grown in (versions, versions + later):
        log = Log(grown)
        head = len(grown) - 1
        for _ in range(1000):
            end = batch_end(here, head, Limit(max_files, max_bytes), log.snapshot, log.range)
            again = offset_from(here.to_json()), offset_from(end.to_json())
            files = files_between(*again, log.snapshot, log.range)
            longer = Log([*grown, [1]])
            assert files == files_between(*again, longer.snapshot, longer.range)
            assert max_files is None or len(files) <= max_files
            assert max_bytes is None or len(files) <= 1 or sum(file.size for file in files) <= max_bytes
            taken += files
            if end == here:
                break
            here = end
        else:
            raise AssertionError("the stream never came to rest")
        if len(grown) == len(versions):
            assert taken == expected
    assert taken == expected + [file for files in log.versions[len(versions) :] for file in files]


def test_the_start_does_not_move_while_the_first_batch_is_not_done() -> None:
    log = Log([[1], [1, 1]])
    start = Offset(version=NOTHING_YET, start="snapshot")
    end = batch_end(start, 1, Limit(2), log.snapshot, log.range)
    assert end == Offset(version=1, index=2, snapshot=True)
    grown = Log([[1], [1, 1], [1, 1, 1]])
    assert files_between(start, end, grown.snapshot, grown.range) == log.snapshot(1)[:2]


def test_a_foreign_offset_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="checkpoint of its own"):
        offset_from({"logOffset": 3})
