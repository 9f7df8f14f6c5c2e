"""What the plan benchmark says: the tables, and every target beside what was reached."""

from __future__ import annotations

import statistics

import msgspec

from bench.commit_report import Target, number, target_grid
from bench.plan_runs import Planned, Raced
from bench.quiet import DISTURBED
from bench.report import Grid

FASTER = 10.0
"""How many times faster than deltalake a filtered plan is at least, warm and cold."""
MEMORY_MB = 600
GROWTH = 10.0
"""A hundred times more files may cost so many times more where the filter selects the same."""
COMMIT_SHARE = 0.9
"""Below this share of the rate without an index, commits count as slowed down; repeated runs differ by about 10 %."""


class PlanResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything that one run measured."""

    facts: dict[str, str]
    rounds: int
    planned: list[Planned] = []
    raced: Raced | None = None
    busy: list[float] = []
    absent: dict[str, str] = {}

    def find(self, system: str, plan: str, files: int | None = None) -> Planned | None:
        """One measurement, on the largest table unless told."""
        ones = [one for one in self.planned if (one.system, one.plan) == (system, plan) and files in (None, one.files)]
        return max(ones, key=lambda one: one.files, default=None)


def grids(result: PlanResult) -> list[Grid]:
    """Every table of the result, the targets first."""
    found = [target_grid(targets(result), _disturbed(result))]
    heads = ["system", "plan", "files", "found", "cold ms", "warm ms", "× tarnlog, warm", "memory MB"]
    rows = []
    for one in sorted(result.planned, key=lambda one: (-one.files, one.plan, one.warm_ms)):
        own = result.find("tarnlog", one.plan, one.files)
        ratio = f"{one.warm_ms / own.warm_ms:.1f}" if own is not None and own is not one else ""
        told = f"{one.found:,}" if one.found is not None else "not told"
        times = [number(one.cold_ms), number(one.warm_ms)]
        rows.append([one.system, one.plan, f"{one.files:,}", told, *times, ratio, number(one.memory_mb)])
    found.append(Grid("Planning a scan", heads, rows))
    if result.raced is not None:
        raced = (("with the index", result.raced.with_index), ("without", result.raced.without))
        rows = [[name, number(max(rates)), ", ".join(number(rate) for rate in rates)] for name, rates in raced]
        found.append(Grid("32 writers on one table, commits/s", ["service", "best", "rounds"], rows))
    if result.absent:
        found.append(Grid("Not measured", ["system", "why"], [[name, why] for name, why in result.absent.items()]))
    return [grid for grid in found if grid.rows]


def targets(result: PlanResult) -> list[Target]:
    """Every target in the order in which it was promised."""
    filtered = ("partition", "range 0.1 %")
    found = [_against(result, "deltalake", plan, way, FASTER) for way in ("warm", "cold") for plan in filtered]
    found.append(_against(result, "deltalake", "everything", "warm", 1.0))
    found += [_against(result, "ducklake", plan, "warm", 1.0) for plan in (*filtered, "everything")]
    found += [_memory(result), _growth(result), _commits(result)]
    return found


def _against(result: PlanResult, peer: str, plan: str, way: str, wanted: float) -> Target:
    name = f"{plan}, {way}: against {peer}"
    sign = f"≥ {wanted:g} ×" if wanted > 1 else "> 1 ×"
    own, other = result.find("tarnlog", plan), result.find(peer, plan)
    if own is None or other is None:
        return Target(name, sign, "", None)
    ratio = other.warm_ms / own.warm_ms if way == "warm" else other.cold_ms / own.cold_ms
    return Target(name, sign, f"{number(ratio)} ×", ratio >= wanted if wanted > 1 else ratio > 1)


def _memory(result: PlanResult) -> Target:
    own = [one for one in result.planned if one.system == "tarnlog"]
    largest = max((one.files for one in own), default=0)
    name, wanted = f"memory of the service with {largest:,} files", f"≤ {MEMORY_MB} MB"
    used = max((one.memory_mb for one in own if one.files == largest), default=0.0)
    return Target(name, wanted, f"{used:,.0f} MB", used <= MEMORY_MB) if used else Target(name, wanted, "", None)


def _growth(result: PlanResult) -> Target:
    ones = sorted((one for one in result.planned if one.plan == "same"), key=lambda one: one.files)
    wanted = f"< {GROWTH:g} ×"
    if len(ones) < 2:
        return Target("more files, the same selected", wanted, "", None)
    ratio = ones[-1].warm_ms / ones[0].warm_ms
    return Target(
        f"{ones[-1].files // ones[0].files} times more files, the same selected",
        wanted,
        f"{ratio:.1f} ×",
        ratio < GROWTH,
    )


def _commits(result: PlanResult) -> Target:
    name, wanted = "commits a second with the index on, against off", f"≥ {COMMIT_SHARE:.0%}"
    if result.raced is None:
        return Target(name, wanted, "", None)
    # Neighbours in time are compared: the machine's speed drifts more than the two differ.
    share = statistics.median(on / off for on, off in zip(result.raced.with_index, result.raced.without, strict=True))
    return Target(name, wanted, f"{share:.0%}", share >= COMMIT_SHARE)


def _disturbed(result: PlanResult) -> str:
    noisy = sum(share > DISTURBED for share in result.busy)
    if not noisy:
        return ""
    return (
        f"{noisy} of {len(result.busy)} measurements were disturbed: other processes used more than {DISTURBED:.0%} "
        "of the cores right before. Repeat on a quiet machine."
    )
