"""The processes of the Spark benchmark that take turns: what they are told and answer, and that none is left behind."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.peer_runs import ROOT, PeerError
from bench.spark_children import Child, Turns, order

Start = Callable[..., Child]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts fake children; ends what a test left."""
    made: list[Child] = []

    def one(name: str = "one", fault: str = "", *, failure: type[Exception] = PeerError, timeout: float = 60) -> Child:
        command = [sys.executable, "-m", "tests.bench.turning", name, str(tmp_path / "notes"), fault]
        made.append(Child(command, tmp_path / f"{name}.log", failure, timeout))
        return made[-1]

    yield one
    for child in made:
        child.end()


def alive(pid: int) -> bool:
    """Whether it runs. One that ended and was not yet asked for its exit code does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def assert_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 30
    while left := [pid for pid in pids if alive(pid)]:
        assert time.monotonic() < deadline, f"{left} are left of {pids}"
        time.sleep(0.05)


def test_commands_are_answered_one_by_one(start: Start) -> None:
    child = start()
    assert child.started() == {"versions": {"one": "1"}}
    child.ask("create", table="t")
    assert child.ask("append", table="t", count=2, rows=5) == [0.5, 0.5]
    assert child.ask("check", table="t", rows=10) is None


def test_what_others_write_to_stdout_is_no_answer(start: Start, tmp_path: Path) -> None:
    child = start()
    child.started()
    assert child.ask("chatter") == "told"  # nor does anybody else read the commands
    assert child.ask("plan", table="t", where=None) == 0.0
    assert "from below" in (tmp_path / "one.log").read_text()


@pytest.mark.parametrize(
    "do, why", [("fail", "ValueError: the disk is full"), ("leave", "killed by something"), ("unheard", "KeyError")]
)
def test_a_child_that_fails_says_why(start: Start, do: str, why: str) -> None:
    child = start()
    child.started()
    with pytest.raises(PeerError, match=why):
        child.ask(do)
    with pytest.raises(PeerError):
        child.ask("grow")


def test_a_child_that_does_not_start_says_why(start: Start) -> None:
    with pytest.raises(RuntimeError, match="OSError: no jar"):
        start(fault="start", failure=RuntimeError).started()


def test_a_child_that_hangs_is_given_up_and_ended(start: Start) -> None:
    child = start(timeout=10)
    child.started()
    pids = child.ask("pid")
    child._timeout = 0.2
    with pytest.raises(PeerError, match=r"did not answer within 0\.2 s"):
        child.ask("sleep")
    child.end()
    assert_gone(pids)


def test_an_end_takes_what_the_child_started_along(start: Start) -> None:
    child = start()
    child.started()
    pids = child.ask("pid")
    assert all(map(alive, pids))
    child.end()
    assert_gone(pids)


PARENT = """
import sys
from pathlib import Path
from bench.spark_children import Child, Turns
turns = Turns()
try:
    for name in ("one", "two"):
        command = [sys.executable, "-m", "tests.bench.turning", name, sys.argv[1] + "/notes"]
        turns.join(name, Child(command, Path(sys.argv[1]) / name, RuntimeError))
    print(*(pid for pids in turns.ask("pid").values() for pid in pids), flush=True)
    turns.ask(sys.argv[2])
finally:
    turns.end()
"""


@pytest.mark.parametrize("how", ["interrupted", "failed", "killed"])
def test_no_child_outlives_the_benchmark(tmp_path: Path, how: str) -> None:
    """Two children, one of them at work. A parent that is killed leaves what its children started to themselves."""
    do = "fail" if how == "failed" else "sleep"
    command = [sys.executable, "-c", PARENT, str(tmp_path), do]
    parent = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert parent.stdout
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 4
        notes = tmp_path / "notes"
        while f" {do}\n" not in notes.read_text():
            time.sleep(0.01)
        if how != "failed":
            parent.send_signal(signal.SIGINT if how == "interrupted" else signal.SIGKILL)
        _, said = parent.communicate(timeout=120)
        if how == "killed":
            assert_gone(pids[::2])
            for pid in pids[1::2]:
                os.kill(pid, signal.SIGKILL)
        assert_gone(pids)
        wanted = {"interrupted": "KeyboardInterrupt", "failed": "the disk is full", "killed": ""}[how]
        assert wanted in said
    finally:
        parent.kill()


def test_every_order_comes_up_equally_often() -> None:
    rounds = [order(("a", "b", "c"), number) for number in range(12)]
    assert sorted(rounds) == sorted([*itertools.permutations("abc")] * 2)
    assert [order(("a", "b"), number) for number in range(3)] == [("a", "b"), ("b", "a"), ("a", "b")]
    assert order(("a",), 7) == ("a",)


@pytest.fixture
def turns() -> Iterator[Turns]:
    made = Turns()
    yield made
    made.end()


def test_all_take_turns_and_who_goes_first_changes(start: Start, turns: Turns, tmp_path: Path) -> None:
    for name in "abc":
        turns.join(name, start(name))
    for _ in range(6):
        turns.ask("grow")
        assert set(turns.ask("plan", table="t", where=None)) == set("abc")
    notes = [line.split() for line in (tmp_path / "notes").read_text().splitlines()]
    for do in ("grow", "plan"):
        names = [name for name, asked in notes if asked == do]
        rounds = [tuple(names[at : at + 3]) for at in range(0, 18, 3)]
        assert sorted(rounds) == sorted(itertools.permutations("abc"))


def test_a_peer_that_fails_is_out_and_the_rest_goes_on(start: Start, turns: Turns) -> None:
    turns.join("own", start("own", failure=RuntimeError))
    turns.join("peer", start("peer", "rows"))
    with pytest.raises(PeerError, match="no jar"):
        turns.join("other", start("other", "start"))
    for do, setting in (("create", {}), ("append", {"count": 1, "rows": 1}), ("check", {"rows": 1})):
        answers = turns.ask(do, table="small", **setting)
    assert answers == {"own": None}
    assert turns.systems == ["own"]
    assert turns.absent == {"peer": "RuntimeError: 1 rows where 1 were appended"}
    assert turns.ask("plan", table="t", where=None) == {"own": 0.0}


def test_own_failure_ends_it(start: Start, turns: Turns) -> None:
    turns.join("own", start("own", failure=RuntimeError))
    turns.join("peer", start("peer"))
    with pytest.raises(RuntimeError, match="the disk is full"):
        turns.ask("fail")
