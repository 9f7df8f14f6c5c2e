"""What the Spark benchmark says: the tables, and every target beside what was reached."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import msgspec

from bench.commit_report import Target, number, target_grid
from bench.quiet import DISTURBED
from bench.report import Grid
from bench.spark_results import FILTERS, PEERS, WRITERS, Overhead, Plans, Raced, Tables

SCAN_SHARE = 0.95
WRITE_SHARE = 0.85
JOB_SECONDS = 5.0
OVERHEAD = 0.05
"""Plan and commit together, as a share of a job of JOB_SECONDS."""

WAYS: dict[str, Callable[[Plans], list[float]]] = {
    "new version": lambda plan: plan.new_version,
    "again": lambda plan: plan.again,
}
"""How each plan is asked for: on a version that nobody has planned, and on one that was planned before."""


class SparkResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything that one run measured."""

    facts: dict[str, str]
    rounds: int
    planned_files: int
    raced: dict[str, Raced] = {}
    overhead: Overhead | None = None
    tables: list[Tables] = []
    busy: list[float] = []
    absent: dict[str, str] = {}

    def find(self, system: str) -> Tables | None:
        return next((one for one in self.tables if one.system == system), None)


def share(one: Raced) -> float:
    """The speed of plain Parquet that was reached."""
    return ahead(one.own, one.native)


def ahead(own: list[float], other: list[float]) -> float:
    """How many times longer the other took. Neighbours in time are compared: the machine's speed drifts."""
    return statistics.median(late / early for early, late in zip(own, other, strict=True))


def grids(result: SparkResult) -> list[Grid]:
    """Every table of the result, the targets first."""
    found = [target_grid(targets(result), _disturbed(result)), _raced(result), _appends(result), _plans(result)]
    if result.absent:
        found.append(Grid("Not measured", ["system", "why"], [[name, why] for name, why in result.absent.items()]))
    return [grid for grid in found if grid.rows]


def _raced(result: SparkResult) -> Grid:
    rows = [
        [name, _seconds(one.own), _seconds(one.native), f"{share(one):.2f}", " ".join(f"{s:.2f}" for s in one.own)]
        for name, one in result.raced.items()
    ]
    note = ""
    if one := result.overhead:
        note = (
            f"A job from table to table took {one.job:.2f} s: planning its read {one.plan * 1e3:.0f} ms, "
            f"waiting for the service to write {one.commit * 1e3:.0f} ms."
        )
    heads = ["work", "tarnlog s", "plain Parquet s", "× plain Parquet's speed", "tarnlog, rounds"]
    return Grid("Beside plain Parquet, by turns in one session", heads, rows, note)


def _appends(result: SparkResult) -> Grid:
    heads = ["system", "small append ms", "p90 ms", "last tenth ms", f"{WRITERS} writers, appends/s", "failed"]
    rows = []
    for one in sorted(result.tables, key=lambda one: statistics.median(one.appends)):
        all_, late = one.appends, one.appends[-max(1, len(one.appends) // 10) :]
        small = [statistics.median(all_), _high(all_), statistics.median(late)]
        rows.append([one.system, *(number(spent * 1e3) for spent in small), f"{one.per_second:.1f}", str(one.failed)])
    return Grid("Appends of 1,000 rows, by turns", heads, rows)


def _plans(result: SparkResult) -> Grid:
    names = list(dict.fromkeys(name for one in result.tables for name in one.planned.plans))
    heads = ["system", "first plan ms", *(f"{name}: {way} ms" for name in names for way in WAYS)]
    rows = []
    for one in result.tables:
        spent = [statistics.median(of(one.planned.plans[name])) for name in names for of in WAYS.values()]
        rows.append([one.system, *map(number, (one.planned.first_ms, *spent))])
    title = f"Planning {result.planned_files:,} files, until the scan's tasks are there, by turns"
    return Grid(title, heads, rows)


def targets(result: SparkResult) -> list[Target]:
    """Every target in the order in which it was promised."""
    found = [_against_native(result, name, SCAN_SHARE) for name in ("scan", "count", "selective filter")]
    many = next((name for name in result.raced if name.endswith(" files")), "selective filter, many files")
    found.append(_against_native(result, many, 1.0, ahead=True))
    found += [_against_native(result, name, WRITE_SHARE) for name in ("write", "append")]
    found += [_against_native(result, f"partitioned {name}", 1.0) for name in ("write", "append")]
    found.append(_overhead(result))
    for peer in PEERS:
        found += _against_peer(result, peer)
    return found


def _against_native(result: SparkResult, name: str, wanted: float, *, ahead: bool = False) -> Target:
    title, sign = f"{name}, against plain Parquet", "> 1 ×" if ahead else f"≥ {wanted:g} ×"
    one = result.raced.get(name)
    if one is None:
        return Target(title, sign, "", None)
    reached = share(one)
    return Target(title, sign, f"{reached:.2f} ×", reached > wanted if ahead else reached >= wanted)


def _overhead(result: SparkResult) -> Target:
    name, wanted = f"plan and commit of a job of {JOB_SECONDS:g} s", f"< {OVERHEAD:.0%}"
    if result.overhead is None:
        return Target(name, wanted, "", None)
    part = (result.overhead.plan + result.overhead.commit) / JOB_SECONDS
    return Target(name, wanted, f"{part:.1%}", part < OVERHEAD)


def _against_peer(result: SparkResult, peer: str) -> list[Target]:
    own, other = result.find("tarnlog"), result.find(peer)
    planning = f"planning {result.planned_files:,} files"
    works: dict[str, float | None] = {"small appends": None, f"appends of {WRITERS} writers": None}
    works |= {f"{planning}, first": None}
    works |= {f"{planning}, {name}, {way}": None for way in WAYS for name in FILTERS}
    if own and other:
        turns = [[statistics.median(block) for block in one.small] for one in (own, other)]
        works["small appends"] = ahead(*turns)
        works[f"appends of {WRITERS} writers"] = _rates_ahead(own, other)
        works[f"{planning}, first"] = other.planned.first_ms / own.planned.first_ms
        for name, plan in own.planned.plans.items():
            for way, of in WAYS.items():
                works[f"{planning}, {name}, {way}"] = ahead(of(plan), of(other.planned.plans[name]))
    return [_ahead(f"{name}, against {peer}", ratio) for name, ratio in works.items()]


def _rates_ahead(own: Tables, other: Tables) -> float:
    """The median over the turns; a turn in which nothing of the other landed is endlessly ahead, or behind if equal."""
    pairs = [(one.per_second, two.per_second) for one, two in zip(own.shared, other.shared, strict=True)]
    return statistics.median(one / two if two else float("inf") if one else 0.0 for one, two in pairs)


def _ahead(name: str, ratio: float | None) -> Target:
    return Target(name, "> 1 ×", "", None) if ratio is None else Target(name, "> 1 ×", f"{ratio:.1f} ×", ratio > 1)


def _seconds(values: list[float]) -> str:
    return f"{statistics.median(values):.2f}"


def _high(values: list[float]) -> float:
    return sorted(values)[len(values) * 9 // 10]


def _disturbed(result: SparkResult) -> str:
    noisy = sum(one > DISTURBED for one in result.busy)
    if not noisy:
        return ""
    return (
        f"{noisy} of {len(result.busy)} parts were disturbed: others used more than {DISTURBED:.0%} of the cores "
        "right before. Repeat on a quiet machine."
    )
