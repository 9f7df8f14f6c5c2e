"""The judge of these tests judges: every lie and every broken log is found."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tarnlog import Committed, Conflicted, NotNow, Unknown
from tests.process.journal import Journal, check
from tests.process.log_reading import Json, Objects, read_log_at
from tests.process.raw import add

IDS = [f"id-{number}" for number in range(4)]


def _version(number: int, *commit_ids: str, timestamp: int | None = None) -> bytes:
    subs = [{"seq": seq, "commitId": one, "operation": "TEST", "actionCount": 1} for seq, one in enumerate(commit_ids)]
    info = {"version": number, "putId": f"p{number}", "subCommits": subs}
    info["timestamp"] = 100 + number if timestamp is None else timestamp
    info["previousPutId"] = f"p{number - 1}" if number else None
    lines: list[Json] = [{"commitInfo": info}, *(add(one) for one in commit_ids)]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def _key(number: int) -> str:
    return f"t/_transaction_log/{number:020d}.json"


def _objects() -> Objects:
    return {_key(0): _version(0, IDS[0]), _key(1): _version(1, IDS[1], IDS[2]), "t/_transaction_log/.tmp": b"{"}


def _journal() -> Journal:
    journal = Journal()
    for commit_id, version, seq in ((IDS[0], 0, 0), (IDS[1], 1, 0), (IDS[2], 1, 1)):
        sent = journal.new(commit_id, [add(commit_id)])
        sent.answers.append(Committed(commit_id=commit_id, version=version, seq=seq, timestamp=100 + version))
    journal.new(IDS[3], [add(IDS[3])]).answers.append(Unknown(commit_id=IDS[3], retry_after=1))
    return journal


def test_a_true_story_passes() -> None:
    check(_journal(), read_log_at(_objects(), "t"))


@pytest.mark.parametrize(
    "change, complaint",
    [
        (lambda objects: objects.pop(_key(1)), "LOST"),
        (lambda objects: objects.pop(_key(0)), "the versions are"),
        (lambda objects: objects.update({_key(2): _version(2, IDS[0])}), "is also at"),
        (lambda objects: objects.update({_key(2): _version(2, IDS[3], timestamp=101)}), "does not follow"),
        (lambda objects: objects.update({_key(2): _version(2, "stranger")}), "nobody sent it"),
        (lambda objects: objects.update({_key(1): _version(1, IDS[2], IDS[1])}), "but it is at"),
        (lambda objects: objects.update({_key(1): _version(1, IDS[1], IDS[2])[:-1]}), "line feed"),
    ],
)
def test_a_broken_log_is_found(change: Callable[[Objects], object], complaint: str) -> None:
    objects = _objects()
    change(objects)
    with pytest.raises(AssertionError, match=complaint):
        check(_journal(), read_log_at(objects, "t"))


def test_a_lie_is_found() -> None:
    objects = {**_objects(), _key(2): _version(2, IDS[3])}
    check(_journal(), read_log_at(objects, "t"))  # unknown: it may be there
    for lie, complaint in (
        (Conflicted(commit_id=IDS[3], rule="append", detail=""), "never lands"),
        (NotNow(commit_id=IDS[3], problem={"type": "/problems/too-many-waiting"}, retry_after=1), "not committed"),
    ):
        journal = _journal()
        journal.sent[-1].answers[:] = [lie]
        with pytest.raises(AssertionError, match=complaint):
            check(journal, read_log_at(objects, "t"))
    journal = _journal()
    journal.sent[-1].actions[:] = [add("another file")]
    with pytest.raises(AssertionError, match="something else"):
        check(journal, read_log_at(objects, "t"))
