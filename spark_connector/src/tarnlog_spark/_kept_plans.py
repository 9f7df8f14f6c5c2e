"""The last reads of many files, kept for one Spark session: a version does not change, so neither does a plan of it.

Reading a table of a hundred thousand files again, at a version that was read before, costs a question for the version.
What is kept besides the plan is the scan as Spark holds it, with the list that it made of a manifest. Reads of few
files are not kept: they take milliseconds.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from tarnlog import SnapshotInfo
from tarnlog_spark._per_session import PerSession

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tarnlog_spark._planning import Plan

KEPT_FROM = 1000
"""Files of a plan that is kept, at least."""
MOST_PLANS, MOST_FILES = 4, 400_000
"""How many are kept, and their files together: in Python and in the JVM each takes somewhat less than a kilobyte."""


class KeptPlans:
    """The plans that were used last. Several threads of a job may read at the same time."""

    def __init__(self) -> None:
        self._plans: OrderedDict[Hashable, Plan] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._plans)

    def find(self, key: Hashable) -> Plan | None:
        """The plan of a key, which is then the one that was used last."""
        with self._lock:
            found = self._plans.get(key)
            if found is not None:
                self._plans.move_to_end(key)
            return found

    def keep(self, key: Hashable, plan: Plan) -> None:
        """Keep a plan if it is worth it, and let those go that were not used for longest."""
        if not KEPT_FROM <= plan.num_files <= MOST_FILES:
            return
        with self._lock:
            self._plans[key] = plan
            while len(self._plans) > MOST_PLANS or sum(one.num_files for one in self._plans.values()) > MOST_FILES:
                self._plans.popitem(last=False)


def key_of(snapshot: SnapshotInfo, filter_text: str | None) -> Hashable:
    """What tells plans apart. A log that was put back to an older one may have the same version with other files."""
    numbers = (snapshot.version, snapshot.timestamp, snapshot.num_files, snapshot.total_bytes)
    return (snapshot.meta_data.id, *numbers, filter_text)


kept_plans = PerSession(KeptPlans)
"""The kept plans of a session."""
