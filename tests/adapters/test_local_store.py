"""What only a folder can get wrong: durability order, full disks, links, leftovers."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tarnlog_server.adapters.local_store import LocalStore
from tarnlog_server.ports.object_store import (
    ObjectMissing,
    OutcomeUnknown,
    PutResult,
    StoreRefused,
    StoreUnavailable,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
async def store(root: Path) -> AsyncIterator[LocalStore]:
    opened = LocalStore(root)
    yield opened
    await opened.close()


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


def traced(monkeypatch: pytest.MonkeyPatch, root: Path) -> list[str]:
    """The order of the system calls that matter, by what they touch."""
    calls: list[str] = []

    def name_of(fd: int) -> str:
        return os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), root)

    def spy(name: str, describe: Callable[..., str]) -> None:
        real = getattr(os, name)

        def call(*args: Any, **options: Any) -> Any:
            calls.append(describe(*args))
            return real(*args, **options)

        monkeypatch.setattr(os, name, call)

    spy("fsync", lambda fd: "sync file" if ".tarnlog-tmp-" in name_of(fd) else f"sync folder {name_of(fd)}")
    spy("link", lambda _, name: f"link {name}")
    spy("replace", lambda _, name: f"replace {name}")
    return calls


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
async def test_bytes_are_synced_before_the_name_and_the_name_before_the_answer(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = traced(monkeypatch, root)
    await store.put_if_absent("t/log/0.json", b"zero")
    assert calls == ["sync folder t", "sync folder .", "sync file", "link 0.json", "sync folder t/log"]
    calls.clear()
    await store.put_if_absent("t/log/1.json", b"one")
    assert calls == ["sync file", "link 1.json", "sync folder t/log"], "a known folder costs nothing more"
    calls.clear()
    await store.put("t/log/hint", b"hint")
    assert calls == ["sync file", "replace hint", "sync folder t/log"]
    calls.clear()
    assert await store.put_if_absent("t/log/1.json", b"other") is PutResult.EXISTS
    assert calls[-1] == "sync folder t/log", "whoever learns EXISTS may rely on the object being there for good"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
async def test_folders_made_by_someone_else_are_synced_too(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "t/log").mkdir(parents=True)
    calls = traced(monkeypatch, root)
    await store.put_if_absent("t/log/0.json", b"zero")
    assert calls[:2] == ["sync folder t", "sync folder ."]


def failing_sync(monkeypatch: pytest.MonkeyPatch, *, of_folders: bool, code: int = errno.EIO) -> None:
    real = os.fsync

    def sync(fd: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{fd}") == of_folders:
            raise OSError(code, os.strerror(code))
        real(fd)

    monkeypatch.setattr(os, "fsync", sync)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("verb", ["put_if_absent", "put"])
async def test_a_failed_sync_of_the_bytes_wrote_nothing(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    await store.put_if_absent("t/first", b"")
    failing_sync(monkeypatch, of_folders=False)
    with pytest.raises(StoreRefused):
        await getattr(store, verb)("t/second", b"x")
    assert files(root) == ["t/first"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("verb", ["put_if_absent", "put"])
async def test_a_failed_sync_of_the_folder_leaves_the_outcome_unknown(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    await store.put_if_absent("t/first", b"")
    with monkeypatch.context() as broken:
        failing_sync(broken, of_folders=True)
        with pytest.raises(OutcomeUnknown):
            await getattr(store, verb)("t/second", b"x")
        with pytest.raises(OutcomeUnknown):
            await store.put_if_absent("t/second", b"x")  # EXISTS would promise what is not durable
    assert await store.put_if_absent("t/second", b"x") is PutResult.EXISTS
    assert files(root) == ["t/first", "t/second"]


@pytest.mark.parametrize(
    "code, advice",
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EACCES, "permission"),
        (errno.EROFS, "read-only"),
    ],
)
@pytest.mark.parametrize("call", ["write", "link", "open"])
async def test_refusals_say_what_to_do_and_leave_nothing(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch, code: int, advice: str, call: str
) -> None:
    await store.put_if_absent("t/first", b"")
    real_open = os.open

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    def refuse_new(path: str, flags: int, *args: Any, **options: Any) -> int:
        if flags & os.O_CREAT:
            refuse()
        return real_open(path, flags, *args, **options)

    with monkeypatch.context() as broken:
        broken.setattr(os, call, refuse_new if call == "open" else refuse)
        with pytest.raises(StoreRefused, match=advice):
            await store.put_if_absent("t/second", b"x")
    assert files(root) == ["t/first"]
    assert await store.put_if_absent("t/second", b"x") is PutResult.CREATED


async def test_a_link_that_failed_for_an_unclear_reason_is_unknown(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(OutcomeUnknown):
        await store.put_if_absent("x", b"")


async def test_a_link_whose_reply_was_lost_is_recognised(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link

    def link_and_lose_the_reply(*args: Any, **options: Any) -> None:
        real(*args, **options)
        real(*args, **options)

    monkeypatch.setattr(os, "link", link_and_lose_the_reply)
    assert await store.put_if_absent("x", b"mine") is PutResult.CREATED


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting needs privileges; the refusals above are injected instead")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


async def test_a_really_full_disk(tiny_disk: Path) -> None:
    root = tiny_disk / "root"
    store = LocalStore(root)
    await store.put_if_absent("t/0", b"x" * 1000)
    with pytest.raises(StoreRefused, match="disk is full"):
        await store.put_if_absent("t/1", b"x" * 1_000_000)
    assert [info.key for info in await store.list("")] == ["t/0"]
    assert files(root) == ["t/0"], "the temporary file would keep the disk full"
    assert await store.put_if_absent("t/1", b"small") is PutResult.CREATED
    await store.close()


async def test_links_do_not_lead_out_of_the_root(store: LocalStore, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "root-outside"  # shares the root's name as a string prefix
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (root / "door").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    for key in ("door/secret", "file"):
        with pytest.raises(StoreRefused, match="link"):
            await store.get(key)
        with pytest.raises(StoreRefused, match="link"):
            await store.head(key)
    for key in ("door/new", "door/deep/new"):
        with pytest.raises(StoreRefused, match="link"):
            await store.put_if_absent(key, b"x")
        with pytest.raises(StoreRefused, match="link"):
            await store.put(key, b"x")
    with pytest.raises(StoreRefused, match="link"):
        await store.put_if_absent("file", b"x")
    with pytest.raises(StoreRefused, match="link"):
        await store.delete("door/secret")
    assert await store.list("") == []
    assert await store.list("door/") == []
    assert (outside / "secret").read_bytes() == b"secret"
    assert os.listdir(outside) == ["secret"]


@pytest.mark.parametrize("told", [True, False], ids=["the system tells paths", "it does not"])
async def test_links_on_the_way_are_found_with_or_without_the_help_of_the_system(
    store: LocalStore, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    await store.put("inside/deep/0", b"inside")
    (tmp_path / "outside" / "deep").mkdir(parents=True)
    (tmp_path / "outside" / "deep" / "secret").write_bytes(b"secret")
    (root / "door").symlink_to(tmp_path / "outside")
    if not told:
        monkeypatch.setattr("tarnlog_server.adapters.local_walk.opened_path", lambda _: None)
        monkeypatch.setattr("tarnlog_server.adapters.local_dirs.opened_path", lambda _: None)
    with pytest.raises(StoreRefused, match="link"):
        await store.get("door/deep/secret")
    assert await store.list("door/deep/") == []
    assert await store.get("inside/deep/0") == b"inside"
    assert [info.key for info in await store.list("inside/deep/")] == ["inside/deep/0"]


async def test_only_small_folders_are_listed_without_a_thread(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("small/1", "small/2", "nested/1", "nested/sub/1"):
        await store.put(name, b"")
    (root / "large").mkdir()
    for number in range(2000):
        (root / "large" / f"{number:05d}-and-a-name-that-takes-some-room").touch()
    threads: list[str] = []
    real = os.scandir

    def scan(path: str) -> Any:
        threads.append(threading.current_thread().name)
        return real(path)

    monkeypatch.setattr(os, "scandir", scan)
    for prefix, found in (("nested/", 2), ("large/", 1000), ("missing/", 0)):
        assert len(await store.list(prefix)) == found
    assert all(name.startswith("local-store") for name in threads)
    threads.clear()
    assert len(await store.list("small/")) == 2
    if os.stat(root / "small").st_nlink == 2:  # the file system counts folders
        assert threads == [threading.current_thread().name]


async def test_a_folder_swapped_for_a_link_is_noticed(store: LocalStore, root: Path, tmp_path: Path) -> None:
    await store.put("t/0", b"inside")
    assert await store.get("t/0") == b"inside"
    outside = tmp_path / "outside"
    (root / "t").rename(outside)
    (root / "t").symlink_to(outside)
    with pytest.raises(StoreRefused, match="link"):
        await store.put_if_absent("t/1", b"x")
    with pytest.raises(StoreRefused, match="link"):
        await store.get("t/0")
    assert os.listdir(outside) == ["0"]


async def test_a_root_behind_a_link_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    store = LocalStore(tmp_path / "alias" / "deep")
    await store.put("t/0", b"x")
    assert (tmp_path / "real/deep/t/0").read_bytes() == b"x"
    await store.close()


async def test_a_removed_folder_is_made_again(store: LocalStore, root: Path) -> None:
    await store.put_if_absent("t/log/0", b"")
    (root / "t/log/0").unlink()
    (root / "t/log").rmdir()
    (root / "t").rmdir()
    assert await store.put_if_absent("t/log/0", b"again") is PutResult.CREATED
    assert await store.get("t/log/0") == b"again"


async def test_deleting_the_last_object_removes_its_folders_but_not_the_root(store: LocalStore, root: Path) -> None:
    await store.put("a/b/c", b"")
    await store.put("a/d", b"")
    await store.delete("a/b/c")
    assert sorted(os.listdir(root / "a")) == ["d"]
    await store.delete("a/d")
    assert os.listdir(root) == []


async def test_names_taken_by_folders_and_objects_are_refused(store: LocalStore, root: Path) -> None:
    await store.put("a/b", b"x")
    with pytest.raises(StoreRefused, match="folder"):
        await store.put_if_absent("a", b"")
    with pytest.raises(StoreRefused, match="folder"):
        await store.put("a", b"")
    with pytest.raises(StoreRefused, match="folder"):
        await store.put_if_absent("a/b/c", b"")
    with pytest.raises(StoreRefused, match="folder"):
        await store.put_if_absent("a/b/c/d", b"")
    assert files(root) == ["a/b"]


async def test_leftovers_of_killed_writers_are_hidden_and_swept_after_an_hour(store: LocalStore, root: Path) -> None:
    await store.put("t/0", b"")
    old, young = root / "t/.tarnlog-tmp-old", root / "t/.tarnlog-tmp-young"
    for leftover in (old, young):
        leftover.write_bytes(b"half")
    two_hours_ago = time.time() - 7200
    os.utime(old, (two_hours_ago, two_hours_ago))
    assert [info.key for info in await store.list("")] == ["t/0"]
    assert files(root) == ["t/.tarnlog-tmp-young", "t/0"], "the writer of the young one may be at work"


async def test_names_that_are_no_keys_are_not_listed(store: LocalStore, root: Path) -> None:
    await store.put("t/0", b"")
    for name in (b"line\nbreak", b"not-utf8-\xff", b"back\\slash"):
        (root / "t" / os.fsdecode(name)).write_bytes(b"")
    (root / "lost+found").mkdir()
    (root / "lost+found/x").write_bytes(b"")
    os.mkfifo(root / "t/pipe")
    assert [info.key for info in await store.list("")] == ["t/0"]
    with pytest.raises(ObjectMissing):
        await store.get("t/pipe")


async def test_listing_does_not_open_what_cannot_match(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/1", "b/1", "b/sub/1", "c/1", "d/1"):
        await store.put(name, b"")
    opened: list[str] = []
    real = os.scandir

    def scan(path: str) -> Any:
        opened.append(os.path.relpath(path, root))
        return real(path)

    monkeypatch.setattr(os, "scandir", scan)
    assert [info.key for info in await store.list("b/")] == ["b/1", "b/sub/1"]
    assert opened == ["b", "b/sub"]
    opened.clear()
    assert [info.key for info in await store.list("", "b/sub/1", 1)] == ["c/1"]
    assert opened == [".", "b", "b/sub", "c"]


async def test_a_failing_disk_is_unavailable_to_readers(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.put("x", b"x")

    def fail(*_: Any) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", fail)
    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(StoreUnavailable):
        await store.get("x")


@pytest.mark.parametrize("answer", ["not in memory", "a part", "not supported"])
async def test_what_is_not_in_memory_is_read_in_a_thread(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    await store.put("x", b"0123456789")
    readers: list[str] = []

    def at_once(fd: int, buffers: Any, start: int, flags: int) -> int:
        if answer == "a part":
            return 3
        raise OSError(errno.EAGAIN if answer == "not in memory" else errno.EOPNOTSUPP, answer)

    def pread(fd: int, length: int, start: int) -> bytes:
        readers.append(threading.current_thread().name)
        return read(fd, length, start)

    read = os.pread
    monkeypatch.setattr(os, "preadv", at_once)
    monkeypatch.setattr(os, "pread", pread)
    assert await store.get("x", 2, 5) == b"23456"
    assert [name.startswith("local-store") for name in readers] == [True]


def test_a_root_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreRefused, match="cannot use the folder"):
        LocalStore(tmp_path / "file" / "root")


_WRITER = """
import asyncio, sys
from tarnlog_server.adapters.local_store import LocalStore
async def main():
    store, won = LocalStore(sys.argv[1]), []
    for number in range(60):
        if (await store.put_if_absent(f"log/{number:03}", sys.argv[2].encode() * 2000)).value == "created":
            won.append(number)
    print(*won)
asyncio.run(main())
"""


async def test_processes_that_race_share_the_names_between_them(store: LocalStore, root: Path) -> None:
    run = [sys.executable, "-c", _WRITER, str(root)]
    writers = [await asyncio.create_subprocess_exec(*run, name, stdout=subprocess.PIPE) for name in "abc"]
    outputs = [(await writer.communicate())[0].split() for writer in writers]
    won = {name: {int(number) for number in output} for name, output in zip("abc", outputs, strict=True)}
    assert sorted(number for numbers in won.values() for number in numbers) == list(range(60))
    for name, numbers in won.items():
        for number in numbers:
            assert await store.get(f"log/{number:03}") == name.encode() * 2000
