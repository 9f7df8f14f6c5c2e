"""What the commit benchmark says: the tables, and every target beside what was reached."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from bench.commit_runs import Checked, Growth, SlowStorage
from bench.quiet import DISTURBED
from bench.report import Grid
from bench.samples import Measure

GROWTH_FLOOR = 0.8
"""Below this share of a fresh table's rate the cost counts as growing; repeated runs differ by about 10 %."""


class CommitResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything that one run of the commit benchmark measured; None is a part that was not run."""

    facts: dict[str, str]
    seconds: float
    rounds: int
    measures: list[Measure]
    slow: SlowStorage | None = None
    growth: list[Growth] = []
    checked: dict[str, Checked] = {}
    absent: dict[str, str] = {}

    def find(self, system: str, work: str, writers: int) -> Measure | None:
        wanted = (system, work, writers)
        return next((one for one in self.measures if (one.system, one.work, one.writers) == wanted), None)

    def best_peer(self, work: str, writers: int) -> Measure | None:
        peers = [
            one
            for one in self.measures
            if (one.work, one.writers) == (work, writers) and one.system != "tarnlog" and "no-op" not in one.system
        ]
        return max(peers, key=lambda one: one.per_second, default=None)


class Target(msgspec.Struct, frozen=True):
    """One promise: None where this run cannot tell."""

    name: str
    wanted: str
    reached: str
    met: bool | None


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def race_grid(result: CommitResult, work: str, writers: int, title: str) -> Grid:
    """All systems on one piece of work, fastest first, as ratios of the best peer."""
    rows = [one for one in result.measures if (one.work, one.writers) == (work, writers)]
    best = result.best_peer(work, writers)
    return Grid(
        title,
        ["system", "commits/s", "in window", "failed", "p50 ms", "p99 ms", "× best peer", "rounds"],
        [
            [
                one.system,
                number(one.per_second),
                number(one.in_window),
                f"{one.failed_percent:.1f} %",
                number(one.p50_ms),
                number(one.p99_ms),
                f"{one.per_second / best.per_second:.1f}" if best and best.per_second else "",
                " ".join(number(rate) for rate in one.rounds),
            ]
            for one in sorted(rows, key=lambda one: -one.per_second)
        ],
    )


def grids(result: CommitResult) -> list[Grid]:
    """Every table of the result, the targets first."""
    found = [target_grid(targets(result), disturbed(result))]
    found += [race_grid(result, "W1", writers, f"W1: one hot table, writers: {writers}") for writers in (1, 8, 32)]
    found.append(race_grid(result, "W2", 32, "W2: 32 tables, 32 writers"))
    if slow := result.slow:
        one = slow.measure
        cells = [number(one.per_second), f"{one.failed_percent:.1f} %", number(one.p50_ms), number(one.p99_ms)]
        cells += [f"{slow.p99_calls:.2f}", f"{slow.puts_per_commit:.3f}"]
        heads = ["system", "commits/s", "failed", "p50 ms", "p99 ms", "p99 in calls", "PUTs/commit"]
        title = f"W3: one hot table, {one.writers} writers, {slow.delay_ms} ms added to every storage call"
        found.append(Grid(title, heads, [["tarnlog", *cells]]))
    if result.growth:
        rows = [
            [f"{one.amount:,} {one.what}", str(one.writers), number(one.fresh), number(one.grown), f"{one.ratio:.2f}"]
            for one in result.growth
        ]
        found.append(Grid("W4: growth", ["table has", "writers", "fresh table", "grown table", "ratio"], rows))
    rows = [
        [work, f"{one.acknowledged:,}", f"{one.sub_commits:,}", f"{one.versions:,}", "; ".join(one.faults) or "none"]
        for work, one in result.checked.items()
    ]
    if rows:
        found.append(Grid("The logs on disk", ["work", "acknowledged", "in the log", "version files", "faults"], rows))
    if result.absent:
        found.append(Grid("Not measured", ["system", "why"], [[name, why] for name, why in result.absent.items()]))
    return [grid for grid in found if grid.rows]


def disturbed(result: CommitResult) -> str:
    """A warning where something else ran on the machine, empty where not."""
    ones = [*result.measures, *([result.slow.measure] if result.slow else [])]
    noisy = [f"{one.work} {one.system} {one.writers}" for one in ones if one.busy > DISTURBED]
    if not noisy:
        return ""
    return (
        f"{len(noisy)} of {len(ones)} measurements were disturbed: other processes used more than {DISTURBED:.0%} "
        f"of the cores right before or after. Repeat on a quiet machine. Disturbed: {', '.join(noisy)}."
    )


def target_grid(found: list[Target], note: str) -> Grid:
    marks: dict[bool | None, str] = {True: "✓", False: "✗", None: "not measured"}
    rows = [[one.name, one.wanted, one.reached, marks[one.met]] for one in found]
    return Grid("Targets", ["target", "wanted", "reached", ""], rows, note)


def targets(result: CommitResult) -> list[Target]:
    """Every target in the order in which it was promised."""
    found = [_against_peers(result), *_against_noop(result), _one_writer(result), _no_failure(result)]
    if result.slow:
        slow, one = result.slow, result.slow.measure
        found += [
            Target("W3 rate", "≥ 1,000 commits/s", number(one.per_second), one.per_second >= 1000),
            Target("W3 p99", "< 4 storage calls", f"{slow.p99_calls:.2f}", slow.p99_calls < 4),
            Target("W3 storage writes", "≤ 0.1 PUT/commit", f"{slow.puts_per_commit:.3f}", slow.puts_per_commit <= 0.1),
        ]
    if result.growth:
        worst = min(one.ratio for one in result.growth)
        found.append(
            Target("cost does not grow", f"grown ≥ {GROWTH_FLOOR:.0%} of fresh", f"{worst:.0%}", worst >= GROWTH_FLOOR)
        )
    if result.checked:
        told = sum(one.acknowledged for one in result.checked.values())
        held = sum(one.sub_commits for one in result.checked.values())
        sound = not any(one.faults or one.unacknowledged for one in result.checked.values())
        found.append(Target("log = acknowledged", "every one, once", f"{held:,} of {told:,}", sound and held == told))
    return found


def _compare(
    name: str, wanted: str, ours: Measure | None, other: Measure | None, show: str, enough: Callable[[float], bool]
) -> Target:
    if not ours or not other or not other.per_second:
        return Target(name, wanted, "", None)
    ratio = ours.per_second / other.per_second
    return Target(name, wanted, f"{show.format(ratio)} ({other.system})", enough(ratio))


def _against_peers(result: CommitResult) -> Target:
    """With the ratio of those answered in the window alone: a peer whose writers hang looks better there."""
    ours, best = result.find("tarnlog", "W1", 32), result.best_peer("W1", 32)
    name = "W1, 32 writers against the best peer"
    found = _compare(name, "≥ 30 ×", ours, best, "{:.1f} ×", lambda ratio: ratio >= 30)
    if not ours or not best or not best.in_window:
        return found
    reached = f"{found.reached}; in the window alone {ours.in_window / best.in_window:.1f} ×"
    return msgspec.structs.replace(found, reached=reached)


def _against_noop(result: CommitResult) -> list[Target]:
    """Against both kinds of body: the raw one shows how far the framework itself goes."""
    ours = result.find("tarnlog", "W1", 32)
    found = []
    for path, kind in (("model", "pydantic"), ("raw", "raw")):
        name, reference = f"W1, 32 writers against a no-op POST, {kind} body", f"no-op POST {path}"
        other = result.find(reference, "W1", 32)
        found.append(_compare(name, "≥ 50 %", ours, other, "{:.0%}", lambda ratio: ratio >= 0.5))
    return found


def _one_writer(result: CommitResult) -> Target:
    ours, best = result.find("tarnlog", "W1", 1), result.best_peer("W1", 1)
    return _compare("W1, one writer ahead of every peer", "> 1 ×", ours, best, "{:.1f} ×", lambda ratio: ratio > 1)


def _no_failure(result: CommitResult) -> Target:
    counts = [one.failed for one in result.measures if one.system == "tarnlog"]
    counts += [one.failed for one in result.growth] + ([result.slow.measure.failed] if result.slow else [])
    failed = sum(counts)
    return Target("no failed commit", "0", str(failed) if counts else "", failed == 0 if counts else None)
