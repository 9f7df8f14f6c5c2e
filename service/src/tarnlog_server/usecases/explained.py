"""Why a plan kept or dropped each manifest and file, as clients are told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from tarnlog.protocol.plans import DecidedBy, ExplainedFile, ExplainedManifest, Reason
from tarnlog.protocol.predicates import Predicate
from tarnlog_server.codec.manifest_filter import ManifestFilter
from tarnlog_server.codec.scan_rows import Deciding, explain
from tarnlog_server.codec.state_manifest import StateManifest
from tarnlog_server.core.replay import Snapshot

NO_REASON: tuple[Reason, ...] = ()


def explained_files(
    snapshot: Snapshot, predicate: Predicate | None, cooling: Mapping[int, int], start: int, limit: int
) -> list[tuple[int, ExplainedFile]]:
    """Rows from `start` on, and what became of each. Costs those files."""
    lines: list[tuple[int, ExplainedFile]] = []
    for found in explain(snapshot, predicate, start, limit):
        kept, because = found.kept, tuple(_reason(one) for one in found.because)
        if kept and found.row in cooling:
            kept, because = False, (Reason(by="cooldown", until=cooling[found.row]),)
        lines.append((found.row, ExplainedFile(path=found.path, kept=kept, because=because)))
    return lines


def explained_manifests(state: StateManifest, asking: ManifestFilter | None) -> tuple[ExplainedManifest, ...]:
    """What became of each manifest of a state; without a filter, all are kept."""
    lines = []
    for info in state.manifests:
        kept, because = True, NO_REASON
        if asking is not None and state.ours:
            kept, leaves = asking.decided(info)
            low, high = asking.bounds_of(info)
            because = tuple(
                Reason(
                    by=leaf.decider.value,
                    pointer=leaf.pointer,
                    column=leaf.column,
                    least=low.get(leaf.column),
                    greatest=high.get(leaf.column),
                )
                for leaf in leaves
            )
        lines.append(ExplainedManifest(path=info.path, kept=kept, num_entries=info.num_entries, because=because))
    return tuple(lines)


def _reason(one: Deciding) -> Reason:
    return Reason(
        by=cast(DecidedBy, one.by),
        pointer=one.pointer,
        column=one.column,
        value=one.value,
        least=one.least,
        greatest=one.greatest,
    )
