"""Seeds, many of them: two replicas, clients, crashes, outside writers and every storage fault, then the checker.

A seed replays exactly. `TARNLOG_SIM_SEED=n pytest tests/simulation/test_simulation.py -k one_seed -s` shows its trace.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import LONG
from tests.simulation.checker import check
from tests.simulation.run import Run, run

CHUNK = 50
SEEDS = 50_000 if LONG else 2_000
ROOT = Path(__file__).parents[2]
INDEPENDENT = ("checker", "data_files", "feeds", "journal", "log_model", "retention", "rules", "times")
"""Modules that judge: they import nothing of the service or the client."""


def violations(found: Run) -> list[str]:
    return check(found.journal, found.objects, found.created)


def explain(seed: int, faults: list[str]) -> str:
    replay = f"TARNLOG_SIM_SEED={seed} .venv/bin/pytest tests/simulation/test_simulation.py -k one_seed -s"
    return "\n".join([f"seed {seed} broke a promise; replay it with", f"  {replay}", *faults[:10]])


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_promise_holds(first: int) -> None:
    for seed in range(first, first + CHUNK):
        faults = violations(run(seed))
        assert not faults, explain(seed, faults)


@pytest.mark.skipif("TARNLOG_SIM_SEED" not in os.environ, reason="replays the seed in TARNLOG_SIM_SEED")
def test_one_seed() -> None:
    seed = int(os.environ["TARNLOG_SIM_SEED"])
    found = run(seed)
    for event in found.trace:
        print(*event)
    faults = violations(found)
    assert not faults, explain(seed, faults)


def test_same_seed_same_trace() -> None:
    for seed in range(100, 120):
        assert run(seed).trace_hash() == run(seed).trace_hash(), f"seed {seed} did not replay"


def test_same_seed_same_trace_in_another_process() -> None:
    """Also where strings hash differently, so that sets have another order."""
    program = "from tests.simulation.run import run\nfor seed in range(100, 112): print(run(seed).trace_hash())"
    expected = "".join(run(seed).trace_hash() + "\n" for seed in range(100, 112))
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
        assert done.stdout == expected, done.stderr


def test_the_runs_go_where_it_hurts() -> None:
    """Seeds that never met a conflict, a lost slot or a crash would prove nothing."""
    met: Counter[str] = Counter()
    for seed in range(120):
        found = run(seed)
        for send in found.journal.sends:
            met[f"{send.kind} {send.outcome} {send.slug}".strip()] += 1
            if send.outcome == "conflict":
                met[f"rule {send.answer['rule']}"] += 1
            if send.answer.get("replayed"):
                met["replayed"] += 1
        for read in found.journal.reads:
            met[f"read {read.what}"] += read.answer is not None
        met["feed"] += sum(len(feed.changes) for feed in found.journal.followed)
        met["outside write"] += len(found.journal.outside)
        met["hedged"] += found.hedged
        met["lost slot"] += found.lost
        met += found.shared
        for event in found.trace:
            if event[1] == "database":
                met[f"database {event[2]}"] += 1
            if event[2] in ("index", "lease", "forward"):
                met[f"{event[2]}: {event[-1]}"] += 1
            if event[2] == "cleanup":
                met["cleanup"] += 1
                met["cleanup with a floor"] += event[7] != 0
        gone = [key for key, _ in found.journal.deleted]
        met["deleted version"] += sum(key.endswith(".json") and "/state-v" not in key for key in gone)
        met["deleted state"] += sum(key.endswith("/_manifest.json") for key in gone)
        met["deleted manifest"] += sum("/manifests/" in key for key in gone)
        met["deleted data file"] += sum("/p=" in key for key in gone)
        met["vacuum"] += len(found.journal.vacuumed)
        met["session"] += len(found.journal.sessions)
        met["expired read"] += sum(read.slug == "version-expired" for read in found.journal.reads)
        met["crash"] += sum(event[-1] == "crash" for event in found.trace)
        for _, ahead in found.journal.clocks:
            met["clock ahead" if ahead > 0 else "clock behind" if ahead < 0 else "clock right"] += 1
    wanted = [
        *("commit committed", "commit unknown", "commit lost", "patch committed", "skip committed", "drop committed"),
        *(f"rule {rule}" for rule in ("append", "delete-read", "delete-delete", "txn", "metadata")),
        *(f"commit problem {slug}" for slug in ("commit-contended", "commit-id-reused", "commit-invalid")),
        *(f"commit problem {slug}" for slug in ("too-many-waiting", "storage-refused", "table-not-found")),
        *(f"read {what}" for what in ("snapshot", "files", "changes", "history", "status")),
        *("cleanup", "cleanup with a floor", "deleted version", "deleted state", "deleted manifest", "expired read"),
        *("vacuum", "deleted data file", "session"),
        *("replayed", "feed", "outside write", "hedged", "lost slot", "crash"),
        *("index history hit", "index history miss", "index outcome hit", "index wrong"),
        *(f"index: {fault}" for fault in ("error", "lost answer", "lost write", "slow")),
        *(f"database {what}" for what in ("drop", "altered", "later", "gone", "misplaced", "exchanged", "shortened")),
        *("database restored", "forward relay", "forward unsure", "forward not-written", "forward unreachable"),
        *(f"lease: {fault}" for fault in ("unavailable", "slow", "two owners", "stale owner")),
        *("forward: lost request", "forward: late request", "forward: lost answer"),
        *("clock ahead", "clock behind", "clock right"),
        *(f"commit problem {slug}" for slug in ("clock-skew", "commit-id-expired")),
    ]
    missing = [name for name in wanted if met[name] < 3]
    assert not missing, f"rarely or never met: {missing}; {met}"


def test_the_checker_shares_no_code_with_the_service() -> None:
    for name in INDEPENDENT:
        tree = ast.parse((Path(__file__).parent / f"{name}.py").read_text())
        for node in ast.walk(tree):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for imported in names:
                inside = imported.removeprefix("tests.simulation.")
                assert imported.split(".")[0] in sys.stdlib_module_names or inside in INDEPENDENT, (name, imported)
