"""What the open benchmark says: the tables, and every target beside what was reached."""

from __future__ import annotations

import msgspec

from bench.commit_report import Target, number, target_grid
from bench.open_runs import FORMATS, Grown, Opened, Planned
from bench.quiet import DISTURBED
from bench.report import Grid

FLOOR = {10: 1.1, 100: 10.0, 1000: 90.0, 10_000: 833.0}
"""How many times faster than replay opening from a state is at least, by versions."""
MEMORY_MB = 1000
INCREMENTAL_RATIO = 10
"""A state after ten new files may cost so many times what it costs on a small table; the files grow a hundredfold."""


class OpenResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything that one run measured."""

    facts: dict[str, str]
    rounds: int
    opened: list[Opened] = []
    planned: list[Planned] = []
    grown: list[Grown] = []
    busy: list[float] = []
    absent: dict[str, str] = {}

    def find(self, system: str, source: str, versions: int, *, many: bool) -> Opened | None:
        """One measurement; `many` tells tables with many files from histories with few."""
        for one in self.opened:
            if (one.system, one.source, one.versions) == (system, source, versions) and (one.files > 100) == many:
                return one
        return None


def grids(result: OpenResult) -> list[Grid]:
    """Every table of the result, the targets first."""
    found = [target_grid(targets(result), _disturbed(result)), _histories(result), _many(result)]
    rows = [
        [one.source, f"{one.files:,}", f"{one.found:,}", one.manifests, number(one.plan_ms)] for one in result.planned
    ]
    found.append(Grid("A cold plan for one day", ["state", "files", "found", "manifests read", "ms"], rows))
    rows = [
        [
            f"{one.files:,}",
            number(one.open_ms),
            number(one.incremental_ms),
            number(one.open_peak_mb),
            number(one.compact_s) if one.compact_s else "",
            number(one.write_peak_mb) if one.write_peak_mb else "",
        ]
        for one in result.grown
    ]
    heads = ["files", "open ms", "state after 10 files, ms", "peak MB, opened", "full state s", "peak MB, written"]
    found.append(Grid("Large tables, Avro state", heads, rows))
    if result.absent:
        found.append(Grid("Not measured", ["system", "why"], [[name, why] for name, why in result.absent.items()]))
    return [grid for grid in found if grid.rows]


def _histories(result: OpenResult) -> Grid:
    rows = []
    for versions in sorted({one.versions for one in result.opened if one.files <= 100}):
        replay = result.find("tarnlog", "replay", versions, many=False)
        if replay is None:
            continue
        row = [f"{versions:,}", number(replay.open_ms)]
        for form in FORMATS:
            one = result.find("tarnlog", form, versions, many=False)
            row.append(f"{number(one.open_ms)} ({number(replay.open_ms / one.open_ms)} ×)" if one else "")
        rows.append(row)
    heads = ["versions", "replay ms", *(f"{form} ms (× replay)" for form in FORMATS)]
    return Grid("Opening against the history, ten live files", heads, rows)


def _many(result: OpenResult) -> Grid:
    ones = [one for one in result.opened if one.files > 100]
    rows = [
        [
            one.system,
            one.source,
            f"{one.versions:,}",
            f"{one.files:,}",
            number(one.open_ms),
            number(one.list_ms),
            number(one.total_ms),
            f"{one.state_bytes / 1e6:.2f}" if one.state_bytes else "",
        ]
        for one in sorted(ones, key=lambda one: (one.versions, one.total_ms))
    ]
    heads = ["system", "from", "versions", "files", "open ms", "list ms", "both ms", "state MB"]
    return Grid("Opening a table and listing its files", heads, rows)


def targets(result: OpenResult) -> list[Target]:
    """Every target in the order in which it was promised."""
    found = [_floor(result, versions, form) for form in FORMATS for versions in FLOOR]
    found += [_constant(result, form) for form in FORMATS]
    found += [_against_delta(result, "replay", "replay"), _against_delta(result, "avro", "parquet"), _plan(result)]
    if len(result.grown) == 2:
        small, large = result.grown
        ratio = large.incremental_ms / small.incremental_ms
        name = f"10 new files: state at {large.files:,} files against {small.files:,}"
        wanted = f"≤ {INCREMENTAL_RATIO} ×"
        found.append(Target(name, wanted, f"{ratio:.1f} ×", ratio <= INCREMENTAL_RATIO))
        for what, mb in (("open", large.open_peak_mb), ("write", large.write_peak_mb)):
            name = f"memory to {what} {large.files:,} files"
            found.append(Target(name, f"< {MEMORY_MB} MB", f"{mb:,.0f} MB", 0 < mb < MEMORY_MB))
    return found


def _floor(result: OpenResult, versions: int, form: str) -> Target:
    name, wanted = f"{form} against replay, {versions:,} versions", f"≥ {FLOOR[versions]:g} ×"
    replay = result.find("tarnlog", "replay", versions, many=False)
    one = result.find("tarnlog", form, versions, many=False)
    if replay is None or one is None:
        return Target(name, wanted, "", None)
    ratio = replay.open_ms / one.open_ms
    return Target(name, wanted, f"{number(ratio)} ×", ratio >= FLOOR[versions])


def _constant(result: OpenResult, form: str) -> Target:
    """The longest history against ten versions, with the same live files."""
    longest = max((one.versions for one in result.opened if one.files <= 100), default=0)
    name, wanted = f"{form}, {longest:,} versions against 10, same files", "≤ 1.5 ×"
    short, long = (result.find("tarnlog", form, versions, many=False) for versions in (10, longest))
    if short is None or long is None or longest == 10:
        return Target(name, wanted, "", None)
    ratio = long.open_ms / short.open_ms
    return Target(name, wanted, f"{ratio:.2f} ×", ratio <= 1.5)


def _against_delta(result: OpenResult, ours: str, theirs: str) -> Target:
    name, wanted = f"open and list from {ours}, ahead of deltalake from {theirs}", "> 1 ×"
    other = next((one for one in result.opened if (one.system, one.source) == ("deltalake", theirs)), None)
    own = result.find("tarnlog", ours, other.versions, many=True) if other is not None else None
    if other is None or own is None:
        return Target(name, wanted, "", None)
    ratio = other.total_ms / own.total_ms
    return Target(name, wanted, f"{ratio:.1f} × ({number(other.total_ms)} ms)", ratio > 1)


def _plan(result: OpenResult) -> Target:
    times = {one.source: one.plan_ms for one in result.planned}
    files = f"{result.planned[0].files:,} files" if result.planned else "many files"
    name, wanted = f"cold plan at {files}, Avro against JSON", "≥ 10 ×"
    if "avro" not in times or "json" not in times:
        return Target(name, wanted, "", None)
    ratio = times["json"] / times["avro"]
    return Target(name, wanted, f"{ratio:.1f} ×", ratio >= 10)


def _disturbed(result: OpenResult) -> str:
    noisy = sum(share > DISTURBED for share in result.busy)
    if not noisy:
        return ""
    return (
        f"{noisy} of {len(result.busy)} measurements were disturbed: other processes used more than {DISTURBED:.0%} "
        "of the cores right before. Repeat on a quiet machine."
    )
