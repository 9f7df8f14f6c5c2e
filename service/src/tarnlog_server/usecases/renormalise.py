"""Calling equal document mappings by one name, where other writers named them by rules of their own.

It is done where every file is written anyway: a compaction, a checkpoint, the first own state of a log that was taken
over. First a commit registers the names that are missing, then the state tells files by them. Version files and older
states go on naming the old ones, which stay registered: every reader finds the same mapping by either.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import msgspec

from tarnlog.protocol.actions import Action
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.core.schema_dedup import KEY_PREFIX, Renormalised, mapping_ref, renormalise
from tarnlog_server.usecases.live_table import LiveTable
from tarnlog_server.usecases.pace import Pace

SLICE = 1024


async def planned(live: LiveTable) -> Renormalised | None:
    """The names that should change; None where none should, as in every log that was ours from the start.

    Costs a look at the registry; only one with other writers' names costs a pass over the files, in slices.
    """
    head, pace = live.head, live.pace()
    registry = registry_of(head)
    if not await pace.run(lambda: any(_strange(key, text) for key, text in registry.items())):
        return None
    refs = await _in_use(head, pace)
    threshold = int(live.setting("state.schema.renormalizeThreshold"))
    plan = await pace.run(lambda: renormalise(refs, registry, threshold))
    return plan if plan.refs else None


def registered(head: Snapshot, plan: Renormalised) -> tuple[Action, ...]:
    """The metaData with the names that are missing; nothing where all are there. An entry is never changed."""
    if head.metadata is None:
        return ()
    wanted = {KEY_PREFIX + new for new in plan.refs.values()}
    missing = {key: plan.registry[key] for key in sorted(wanted - head.metadata.configuration.keys())}
    if not missing:
        return ()
    return (msgspec.structs.replace(head.metadata, configuration={**head.metadata.configuration, **missing}),)


def usable(head: Snapshot, plan: Renormalised) -> dict[str, str]:
    """The changes of names that the metaData of a version bears out: the new name is registered for the same thing."""
    registry = registry_of(head)
    return {
        old: new
        for old, new in plan.refs.items()
        if (text := registry.get(KEY_PREFIX + new)) is not None and mapping_ref(text) == new
    }


def registry_of(head: Snapshot) -> Mapping[str, str]:
    """The document mappings of a table by configuration key."""
    configuration = head.metadata.configuration if head.metadata is not None else {}
    return {key: text for key, text in configuration.items() if key.startswith(KEY_PREFIX)}


def _strange(key: str, text: str) -> bool:
    return mapping_ref(text) != key.removeprefix(KEY_PREFIX)


async def _in_use(head: Snapshot, pace: Pace) -> set[str]:
    """The names that live files have. What is inline in a file counts more than its name."""
    rows = iter(head.rows())
    refs: set[str] = set()

    def some() -> bool:
        taken = list(itertools.islice(rows, SLICE))
        refs.update(
            add.doc_mapping_ref for _, add in taken if add.doc_mapping_ref is not None and add.doc_mapping_json is None
        )
        return bool(taken)

    while await pace.run(some):
        pass
    return refs
