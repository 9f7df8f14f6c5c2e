"""The last reads of many files, kept for one Spark session: a version does not change, so neither does a plan of it.

Reading a table of a hundred thousand files again, at a version that was read before, costs a question for the version;
at a newer one, what changed since. What is kept besides the plan is the scan as Spark holds it, with its list of files.
Reads of few files are not kept: they take milliseconds.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from msgspec import Struct

from tarnlog import PlanSince, SnapshotInfo
from tarnlog_spark._per_session import PerSession
from tarnlog_spark._storage import Storage

if TYPE_CHECKING:
    from tarnlog_spark._planning import Plan, PlanFilter

KEPT_FROM = 1000
"""Files of a plan that is kept, at least."""
MOST_PLANS, MOST_FILES = 4, 400_000
"""How many are kept, and their files together: in Python and in the JVM each takes somewhat less than a kilobyte."""


class PlanKey(Struct, frozen=True):
    """What tells plans apart. A log that was put back to an older one may have the same version with other files; one
    that was moved or copied has its files elsewhere, and a scan knows them by where they are."""

    storage: Storage
    table_id: str
    filter: PlanFilter | None
    version: int
    timestamp: int
    num_files: int
    total_bytes: int

    def may_follow(self, other: PlanKey) -> bool:
        """Whether this is the same plan of a newer version, as far as the keys tell."""
        mine, its = ((one.storage, one.table_id, one.filter) for one in (self, other))
        return mine == its and self.version > other.version

    def is_of(self, since: PlanSince) -> bool:
        """Whether this is a plan of the version that the service speaks of."""
        mine = (self.version, self.timestamp, self.num_files, self.total_bytes)
        return mine == (since.version, since.timestamp, since.num_files, since.total_bytes)


class KeptPlans:
    """The plans that were used last. Several threads of a job may read at the same time."""

    def __init__(self) -> None:
        self._plans: OrderedDict[PlanKey, Plan] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._plans)

    def find(self, key: PlanKey) -> Plan | None:
        """The plan of a key, which is then the one that was used last."""
        with self._lock:
            found = self._plans.get(key)
            if found is not None:
                self._plans.move_to_end(key)
            return found

    def newest_before(self, key: PlanKey) -> tuple[PlanKey, Plan] | None:
        """Of the same plan at older versions, the newest."""
        with self._lock:
            older = [one for one in self._plans.items() if key.may_follow(one[0])]
        return max(older, key=lambda one: one[0].version, default=None)

    def keep(self, key: PlanKey, plan: Plan) -> None:
        """Keep a plan if it is worth it, and let those go that were not used for longest."""
        if not is_kept(plan):
            return
        with self._lock:
            self._plans[key] = plan
            while len(self._plans) > MOST_PLANS or sum(one.num_files for one in self._plans.values()) > MOST_FILES:
                self._plans.popitem(last=False)


def is_kept(plan: Plan) -> bool:
    """Whether a plan is worth keeping."""
    return KEPT_FROM <= plan.num_files <= MOST_FILES


def key_of(storage: Storage, snapshot: SnapshotInfo, wanted: PlanFilter | None) -> PlanKey:
    """The key of a plan of a snapshot. The filter is what the service plans with: the same text may mean another one
    under other settings of the session."""
    return PlanKey(
        storage=storage,
        table_id=snapshot.meta_data.id,
        filter=wanted,
        version=snapshot.version,
        timestamp=snapshot.timestamp,
        num_files=snapshot.num_files,
        total_bytes=snapshot.total_bytes,
    )


kept_plans = PerSession(KeptPlans)
"""The kept plans of a session."""
