"""The command that plans a scan: which files a filter needs, how many each step left, and why."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from tarnlog._plans import Plan, PlanExplanation
from tarnlog.cli import humane, typed
from tarnlog.cli.connector import Json, TableArgument, connect
from tarnlog.cli.output import Output, grid, row
from tarnlog.protocol.plans import Ledger, Reason

BAR = 30
SHOWN = 100


def plan(
    ctx: typer.Context,
    table: TableArgument,
    filter_: Annotated[str | None, typer.Option("--filter", "-f", help='A SQL predicate such as "id > 5".')] = None,
    version: Annotated[int | None, typer.Option(min=0, help="At this version.")] = None,
    timestamp: Annotated[str | None, typer.Option(help="As it was at this time: ISO 8601 or epoch ms.")] = None,
    exclude_cooldowns: Annotated[
        bool, typer.Option("--exclude-cooldowns", help="Leave out files that are left alone for now.")
    ] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say why each manifest and file is read or not.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="How many files to show; all of them with --json.")] = None,
    json: Json = False,
) -> None:
    """Plan a scan: the files that a filter needs, and what left out the others."""
    if version is not None and timestamp is not None:
        raise typer.BadParameter("give --version or --timestamp, not both")
    out, api, at = Output(json), connect(ctx), typed.moment(timestamp)
    most = limit if limit is not None else None if json else SHOWN
    with out.working(f"Planning {table}"):
        if explain:
            told = api.explain_plan(
                table,
                filter_,
                version=version,
                timestamp=at,
                exclude_cooldowns=exclude_cooldowns,
                max_files=most,
            )
        else:
            found = api.plan(table, filter_, version=version, timestamp=at, exclude_cooldowns=exclude_cooldowns)
    if explain:
        _show_explanation(out, told)
    else:
        _show_plan(out, found, most)


def _show_plan(out: Output, found: Plan, most: int | None) -> None:
    if out.json:
        out.document({"version": found.version, "ledger": found.ledger, "files": found.files[:most]})
        return
    shown = grid("path", "size", "records", "partition", right=("size", "records"))
    for file in found.files[:most]:
        cells = (humane.size(file.size), humane.number(file.num_records), humane.pairs(file.partition_values))
        row(shown, file.path, *cells)
    if found.files:
        out.show(shown, "")
    _show_ledger(out, found.ledger)
    size = humane.size(sum(file.size for file in found.files))
    more = "" if most is None or len(found.files) <= most else f"; the first {most} are shown, --limit shows more"
    out.note(f"version {found.version}: {humane.plural(len(found.files), 'file')}, {size} to read{more}")


def _show_explanation(out: Output, told: PlanExplanation) -> None:
    if out.json:
        out.document(told)
        return
    if told.manifests:
        manifests = grid("manifest", "files", "", "because", right=("files",))
        for one in told.manifests:
            row(manifests, one.path, one.num_entries, _mark(one.kept), "; ".join(map(_because, one.because)))
        out.show(manifests, "")
    files = grid("file", "", "because")
    for line in told.files:
        row(files, line.path, _mark(line.kept), "; ".join(map(_because, line.because)))
    if told.files:
        out.show(files, "")
    _show_ledger(out, told.ledger)
    more = "" if told.complete else f"; the first {len(told.files)} files are shown, --limit shows more"
    out.note(f"version {told.version}: {humane.plural(told.ledger.files_after_cooldowns, 'file')} to read{more}")


def _show_ledger(out: Output, ledger: Ledger) -> None:
    """What each step left, as a funnel."""
    funnel = grid("step", "files", "", right=("files",))
    steps = (
        ("in the table", ledger.files_total),
        ("after partitions", ledger.files_after_partition_pruning),
        ("after statistics", ledger.files_after_data_skipping),
        ("after cooldowns", ledger.files_after_cooldowns),
    )
    for label, count in steps:
        share = count / ledger.files_total if ledger.files_total else 0
        width = max(1, round(BAR * share)) if count else 0
        row(funnel, label, humane.number(count), Text("█" * width, style="cyan"))
    out.show(funnel)
    if ledger.manifests_total:
        read = ledger.manifests_total - ledger.manifests_pruned
        out.note(f"{read} of {humane.plural(ledger.manifests_total, 'manifest')} of the newest state may hold matches")


def _mark(kept: bool) -> Text:
    return Text("read", style="green") if kept else Text("left out", style="dim")


def _because(reason: Reason) -> str:
    where = f" ({reason.pointer})" if reason.pointer else ""
    if reason.by == "cooldown":
        return f"left alone until {humane.moment(reason.until)}"
    if reason.by == "partition":
        return f"{reason.column} is {'null' if reason.value is None else reason.value}{where}"
    if reason.by == "bounds" and reason.least is not None:
        return f"{reason.column} from {reason.least} to {reason.greatest}{where}"
    if reason.by == "never":
        return f"no row satisfies {reason.column}{where}"
    return f"the log does not tell of {reason.column}{where}"
