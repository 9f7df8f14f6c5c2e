"""Known commit ids against a dict: recent ones, sealed ones, and ids that are too old or from the future."""

from __future__ import annotations

import random
from array import array
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog.protocol.actions import SubCommit
from tarnlog.protocol.ids import uuid7
from tarnlog_server.core import dedupe
from tarnlog_server.core.dedupe import (
    CLOCK_TOLERANCE_MS,
    CommitIds,
    IdAge,
    Known,
    SealedRun,
    id_age,
    version_time,
)
from tarnlog_server.core.version_record import VersionRecord
from tests.core.making import NOW, commit_id, foreign, txn

WINDOW = 24 * 3600 * 1000


@pytest.mark.parametrize(
    "offset, age",
    [
        (0, IdAge.USABLE),
        (-WINDOW, IdAge.USABLE),
        (-WINDOW - 1, IdAge.EXPIRED),
        (-NOW, IdAge.EXPIRED),
        (CLOCK_TOLERANCE_MS, IdAge.USABLE),
        (CLOCK_TOLERANCE_MS + 1, IdAge.FUTURE),
        (2**48 - 1 - NOW, IdAge.FUTURE),
    ],
)
def test_age_classes(offset: int, age: IdAge) -> None:
    assert CLOCK_TOLERANCE_MS == 15 * 60 * 1000
    assert id_age(str(commit_id(1, NOW + offset)), NOW, WINDOW) is age


def _version(number: int, ids: list[UUID | str], timestamp: int | None = None) -> VersionRecord:
    subs = tuple(
        SubCommit(commit_id=str(made), seq=seq, request_hash=f"hash-{made}", action_count=0)
        for seq, made in enumerate(ids)
    )
    return VersionRecord(number, NOW + number if timestamp is None else timestamp, "p", subs, ())


@given(
    st.lists(st.lists(st.integers(0, 60), max_size=6, unique=True), max_size=40),
    st.integers(1, 8),
    st.lists(st.integers(0, 80), max_size=20),
)
def test_recent_and_sealed_ids_agree_with_a_dict(versions: list[list[int]], keep: int, questions: list[int]) -> None:
    ids, model = CommitIds(keep_recent=keep), dict[UUID, Known]()
    for number, group in enumerate(versions):
        fresh = [commit_id(n) for n in group if commit_id(n) not in model]
        ids.record(_version(number, list(fresh)))
        for seq, made in enumerate(fresh):
            model[made] = Known(number, seq, NOW + number, f"hash-{made}")
    for asked in {commit_id(n) for n in questions} | set(model):
        expected, recent = model.get(asked), ids.recent(str(asked))
        candidates = ids.candidates(str(asked))
        if expected is None:
            assert recent is None
            assert candidates == []
        elif recent is not None:
            assert recent == expected
        else:
            assert (expected.version, expected.seq) in candidates
    newest = list(model)[-keep:]
    assert all(ids.recent(str(made)) is not None for made in newest), "the newest ids keep their whole answer"


def test_the_first_place_of_an_id_counts() -> None:
    ids = CommitIds()
    ids.record(_version(1, [commit_id(7)]))
    ids.record(_version(2, [commit_id(8), commit_id(7)]))
    found = ids.recent(str(commit_id(7)))
    assert found is not None
    assert (found.version, found.seq) == (1, 0)


def test_versions_of_other_software_have_no_ids() -> None:
    ids = CommitIds(keep_recent=1)
    for number in range(5):
        ids.record(foreign(number, txn("a", number)))
        ids.record(_version(number, [""]))
    assert ids.recent("") is None


def test_an_id_that_is_no_uuid_does_not_stop_the_table() -> None:
    ids = CommitIds(keep_recent=2)
    for number in range(20):
        ids.record(_version(number, [f"job {number}", commit_id(number)]))
    assert (3, 1) in ids.candidates(str(commit_id(3)))
    assert ids.recent(str(commit_id(19))) is not None


def test_two_ids_with_the_same_random_half_are_both_candidates() -> None:
    ids = CommitIds(keep_recent=1)
    low = commit_id(1).int & (2**64 - 1)
    twins = [UUID(int=(NOW + n) << 80 | 7 << 76 | n << 64 | low) for n in range(2)]
    ids.record(_version(1, [twins[0]]))
    ids.record(_version(2, [twins[1]]))
    for number in range(3, 8):
        ids.record(_version(number, [commit_id(number)]))
    assert sorted(ids.candidates(str(twins[0]))) == [(1, 0), (2, 0)]


def test_runs_are_skipped_by_the_times_inside_their_ids_alone() -> None:
    ids = CommitIds(keep_recent=1)
    old = commit_id(1, NOW)
    for number in range(4):
        ids.record(_version(number, [old if number == 0 else commit_id(100 + number)], timestamp=NOW + number))
    assert ids.candidates(str(old)) == [(0, 0)]
    # The same random half, but made later than every id of the run: it cannot be there.
    later = UUID(int=(NOW + CLOCK_TOLERANCE_MS + 1000) << 80 | (old.int & (2**80 - 1)))
    assert ids.candidates(str(later)) == []


@pytest.mark.parametrize("ahead", [-(10**8), 0, CLOCK_TOLERANCE_MS + 1, 10**8])
def test_a_sealed_id_is_found_whatever_the_clock_of_its_version_was(ahead: int) -> None:
    ids = CommitIds(keep_recent=1)
    made = commit_id(1, NOW + ahead)
    for number in range(4):
        ids.record(_version(number, [made if number == 0 else commit_id(100 + number)], timestamp=NOW + number))
    assert ids.recent(str(made)) is None
    assert ids.candidates(str(made)) == [(0, 0)]
    run = ids._runs[0]
    restored = CommitIds()
    restored.add_run(SealedRun(run.hashes, run.versions, run.seqs, run.newest_ms))
    assert restored.candidates(str(made)) == [(0, 0)]


@pytest.mark.parametrize(
    "made, now, complete_since, age",
    [
        (0, 0, -CLOCK_TOLERANCE_MS, IdAge.USABLE),
        (0, 0, 1 - CLOCK_TOLERANCE_MS, IdAge.LOG_AHEAD),  # it may have been forgotten, by a clock that was ahead
        (0, 0, WINDOW, IdAge.LOG_AHEAD),
        (0, 60_000, 60_000 - CLOCK_TOLERANCE_MS, IdAge.EXPIRED),  # older than what is remembered
        (-WINDOW - 1, 0, -2 * WINDOW, IdAge.EXPIRED),
        (CLOCK_TOLERANCE_MS + 1, 0, WINDOW, IdAge.FUTURE),
    ],
)
def test_an_id_that_may_have_been_forgotten_is_never_new(made: int, now: int, complete_since: int, age: IdAge) -> None:
    assert id_age(str(commit_id(1, NOW + made)), NOW + now, WINDOW, NOW + complete_since) is age


def test_forgetting_says_since_when_ids_are_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedupe, "KEPT_ANYWAY", 0)
    ids = CommitIds(keep_recent=2)
    made = [str(commit_id(number, NOW + number)) for number in range(20)]
    for number, one in enumerate(made):
        ids.record(_version(number, [one]))
    ids.forget_before(NOW - 1)
    assert ids.complete_since_ms == 0, "nothing was forgotten"
    ids.forget_before(NOW + 10)
    forgotten = [
        n
        for n in range(20)
        if not (ids.recent(str(commit_id(n, NOW + n))) or ids.candidates(str(commit_id(n, NOW + n))))
    ]
    assert forgotten
    assert ids.complete_since_ms == NOW + max(forgotten) + 1
    ids.add_run(SealedRun(array("Q"), array("q"), array("i"), NOW), NOW + 1)
    assert ids.complete_since_ms == NOW + max(forgotten) + 1


def test_a_state_says_since_when_its_ids_are_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedupe, "KEPT_ANYWAY", 3)
    ids = CommitIds()
    for number in range(20):
        ids.record(_version(number, [commit_id(number, NOW + number)]))
    assert (len(ids.upto(19, NOW)[0]), ids.upto(19, NOW)[1]) == (20, 0)
    assert (len(ids.upto(19, NOW + 5)[0]), ids.upto(19, NOW + 5)[1]) == (15, NOW + 5)
    # A clock that is a year ahead leaves the newest ones.
    entries, complete = ids.upto(19, NOW + 10**11)
    assert (len(entries), complete) == (3, NOW + 17)
    ids = CommitIds(keep_recent=1)
    for number in range(20):
        ids.record(_version(number, [commit_id(number, NOW + number)]))
    entries, complete = ids.upto(19, NOW + 10**11)
    assert sorted(version for _, version, _ in entries) == [17, 18, 19], "sealed or not"
    assert complete <= NOW + 20
    ids.forget_before(NOW + 10**11)
    for newest in (str(commit_id(n, NOW + n)) for n in (17, 18, 19)):
        assert ids.recent(newest) or ids.candidates(newest)


@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9), st.lists(st.integers(-(10**9), 10**9), max_size=4))
def test_a_version_is_after_its_predecessor_and_never_far_behind_an_id(
    now: int, previous: int, made: list[int]
) -> None:
    ids = [str(commit_id(n, NOW + at)) for n, at in enumerate(made)]
    at = version_time(NOW + now, NOW + previous, ids)
    assert at > NOW + previous
    assert at >= NOW + now
    assert all(NOW + one <= at + CLOCK_TOLERANCE_MS for one in made)
    assert at == max(NOW + now, NOW + previous + 1) or at == NOW + max(made) - CLOCK_TOLERANCE_MS


def test_old_runs_are_forgotten_and_young_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedupe, "KEPT_ANYWAY", 0)
    ids = CommitIds(keep_recent=10)
    made = [commit_id(n, NOW + n) for n in range(100)]
    for number, one in enumerate(made):
        ids.record(_version(number, [one]))
    assert ids.candidates(str(made[0])) == [(0, 0)]
    ids.forget_before(NOW + 50)
    kept = [n for n in range(100) if ids.recent(str(made[n])) or ids.candidates(str(made[n]))]
    assert set(range(50, 100)) <= set(kept)
    assert 0 not in kept


def test_a_million_ids_cost_little() -> None:
    """20 bytes a sealed id; checked on a tenth of that so that the test stays quick."""
    rng = random.Random(1)
    ids = CommitIds(keep_recent=1000)
    made = [uuid7(NOW, rng) for _ in range(100_000)]
    for number in range(0, len(made), 1000):
        ids.record(_version(number // 1000, list(made[number : number + 1000])))
    sealed = sum(
        run.hashes.itemsize + run.versions.itemsize + run.seqs.itemsize for run in ids._runs for _ in run.hashes
    )
    assert sealed <= 20 * len(made)
    for position in (0, 12_345, 97_000):
        assert (position // 1000, position % 1000) in ids.candidates(str(made[position]))
