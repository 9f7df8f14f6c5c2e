"""Data files that cannot be read: damage is Corrupt, storage that does not give a file out is Unavailable."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from tarnlog import Add, Corrupt, TarnlogError, Unavailable
from tarnlog._data_files import DataFiles
from tests.service_process import free_port

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
FILE = Add(path="part.parquet", partition_values={}, size=1, modification_time=0, data_change=True)


class Storage:
    """A disk whose answers can be changed: `opening` or `reading` is what they fail with."""

    def __init__(self, opening: OSError | None = None, reading: OSError | None = None, looking: OSError | None = None):
        self.disk = pafs.LocalFileSystem()
        self.opening, self.reading, self.looking = opening, reading, looking

    def open_input_file(self, place: str) -> Any:
        if self.opening is not None:
            raise self.opening
        opened = self.disk.open_input_file(place)
        return opened if self.reading is None else pa.PythonFile(Breaking(opened, self.reading), "r")

    def get_file_info(self, place: str) -> Any:
        if self.looking is not None:
            raise self.looking
        return self.disk.get_file_info(place)


class Breaking:
    """A file whose reads fail, as on a network disk that went away."""

    closed = False

    def __init__(self, file: Any, failure: OSError) -> None:
        self._file, self._failure = file, failure

    def read(self, size: int = -1) -> bytes:
        raise self._failure

    def seek(self, place: int, whence: int = 0) -> int:
        return int(self._file.seek(place, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def size(self) -> int:
        return int(self._file.size())

    def close(self) -> None:
        self._file.close()


def read(folder: Path, storage: Storage | None = None) -> TarnlogError:
    files = DataFiles(folder.as_uri())
    if storage is not None:
        files._filesystem = storage
    with pytest.raises(TarnlogError) as caught:
        files.read(FILE, SCHEMA, frozenset())
    assert "part.parquet" in str(caught.value)
    return caught.value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    table = pa.table({"id": list(range(1000)), "text": [f"text number {n}" for n in range(1000)]}, schema=SCHEMA)
    pq.write_table(table, tmp_path / "part.parquet", compression="snappy")
    return tmp_path


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))  # of the class that fits, such as PermissionError


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EIO, errno.ETIMEDOUT, errno.ESTALE, errno.EMFILE])
def test_storage_that_does_not_open_a_file_says_nothing_about_it(folder: Path, number: int) -> None:
    error = read(folder, Storage(opening=os_error(number)))
    assert (type(error), error.slug) == (Unavailable, "data-file-unreachable")
    for part in (os.strerror(number), "permissions", "AWS_"):
        assert part in str(error)


def test_storage_that_breaks_off_says_nothing_about_the_file(folder: Path) -> None:
    error = read(folder, Storage(reading=os_error(errno.EIO)))
    assert (type(error), error.slug) == (Unavailable, "data-file-unreachable")


def test_a_missing_file_is_damage(folder: Path) -> None:
    (folder / "part.parquet").unlink()
    error = read(folder)
    assert (type(error), error.slug) == (Corrupt, "data-file-missing")
    assert "verify" in str(error)


def test_a_missing_table_is_a_disk_that_is_not_here(tmp_path: Path) -> None:
    error = read(tmp_path / "not-mounted")
    assert (type(error), error.slug) == (Unavailable, "data-file-unreachable")
    assert "not-mounted" in str(error)
    missing = FileNotFoundError(errno.ENOENT, "gone")
    assert type(read(tmp_path, Storage(opening=missing, looking=os_error(errno.EIO)))) is Unavailable


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "flipped"])
def test_bytes_that_are_no_parquet_are_damage(folder: Path, damage: str) -> None:
    place = folder / "part.parquet"
    whole = place.read_bytes()
    flipped = bytearray(whole)
    flipped[40:400] = bytes(byte ^ 0xFF for byte in flipped[40:400])
    place.write_bytes({"empty": b"", "text": b"id,text\n" * 9, "cut": whole[:-9], "flipped": bytes(flipped)}[damage])
    error = read(folder)
    assert (type(error), error.slug) == (Corrupt, "data-file-unreadable")


def test_s3_that_does_not_answer_is_not_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a real socket: nothing listens on the port."""
    for name, value in {
        "TARNLOG_S3_ENDPOINT": f"http://127.0.0.1:{free_port()}",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Unavailable) as caught:
        DataFiles("s3://bucket/table").read(FILE, SCHEMA, frozenset())
    assert caught.value.slug == "data-file-unreachable"
    assert "TARNLOG_S3_ENDPOINT" in str(caught.value)
