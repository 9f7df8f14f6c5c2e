"""Which worker runs which test: those of Spark go to two workers, first, and the others fill the rest.

A Spark takes 15 s and a gigabyte to start, and its tests wait for processes as often as they compute: two workers run
them one by one, and one more worker than there are cores uses the time in which they wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadGroupScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

SPARK = "tests/spark/"
WORKERS_WITH_SPARK = 2


class SparkOnTwoWorkers(LoadGroupScheduling):  # type: ignore[misc]  # xdist ships no types
    """Tests of a group stay together; which group or test a worker gets next depends on whether it has a Spark."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        with_spark = node in self.nodes[:WORKERS_WITH_SPARK]
        self.workqueue.move_to_end(next_test(self.workqueue, with_spark=with_spark), last=False)
        super()._assign_work_unit(node)


def next_test(waiting: Iterable[str], *, with_spark: bool) -> str:
    """The first waiting test of the kind that the worker is for; of the other kind where that is all there is.

    Tests of Spark come first in a collection, so a worker without one looks past those that wait.
    """
    first: Any = None
    for nodeid in waiting:
        first = first or nodeid
        if nodeid.startswith(SPARK) == with_spark:
            return nodeid
    assert first is not None, "nothing waits"
    return str(first)
