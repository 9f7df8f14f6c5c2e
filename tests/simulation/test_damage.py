"""Damage to the log, in many seeds: every answer is true of the log as it was written, or says `log-corrupt`."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conftest import LONG
from tests.simulation.checker import check
from tests.simulation.damage import KINDS, run_damaged

CHUNK = 20
SEEDS = 4000 if LONG else 60


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_answer_is_true_or_says_that_the_log_is_damaged(first: int) -> None:
    met: Counter[str] = Counter()
    for seed in range(first, first + CHUNK):
        found = run_damaged(seed)
        faults = check(found.journal, found.objects, found.created)
        assert not faults, f"damaged seed {seed}: {found.journal.damage} {faults[:5]}"
        for damage in found.journal.damage:
            met[damage.kind] += 1
            met["told to a reader"] += sum(read.slug == "log-corrupt" for read in found.journal.reads)
            met["told to a writer"] += sum(send.slug == "log-corrupt" for send in found.journal.sends)
            after = [send for send in found.journal.sends if send.started > damage.at]
            met["committed after"] += sum(send.outcome == "committed" for send in after)
    for wanted in (*KINDS, "told to a reader", "told to a writer", "committed after"):
        assert met[wanted], f"no seed met {wanted!r}: {met}"


def test_same_seed_same_trace() -> None:
    for seed in range(3):
        assert run_damaged(seed).trace_hash() == run_damaged(seed).trace_hash(), f"seed {seed} did not replay"
