"""What the service tells about itself while it works; the default listener hears nothing."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Literal

from msgspec import Struct

from tarnlog.protocol.plans import Ledger

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""Which request is served: every line that is logged for it says so."""


IndexState = Literal["off", "starting", "ready", "degraded"]


class IndexStatus(Struct, frozen=True):
    """How the index does: whether it can be used, and the tables and versions that it does not have yet."""

    state: IndexState
    tables: int
    versions: int


class Telemetry:
    """Facts as they happen. Override what you want to count; every method must be quick and never raise."""

    def commit_answered(self, table: str, outcome: str, seconds: float) -> None:
        """A commit got its answer: `committed`, `replayed`, `conflict`, `rejected`, `not-now`, `unknown`.

        A table of this name need not exist: a client may have made it up.
        """

    def conflict(self, table: str, rule: str) -> None:
        """A commit was refused by a conflict rule."""

    def batch_written(self, commits: int, actions: int, size: int) -> None:
        """A version was created with this many sub-commits."""

    def phase(self, name: str, seconds: float) -> None:
        """How long a phase of the committer took: `forming`, `encoding`, `putting`, `catching-up`."""

    def slot_lost(self) -> None:
        """Another writer had the slot."""

    def put_hedged(self) -> None:
        """A second, identical PUT was sent because the first was slow."""

    def queue_depth(self, table: str, depth: int) -> None:
        """How many commits wait for a table now."""

    def cache_lookup(self, cache: str, hit: bool) -> None:
        """A lookup in one of the in-process caches."""

    def table_opened(self, source: str, seconds: float) -> None:
        """A table was opened from a state of this format, or by `replay`."""

    def table_evicted(self) -> None:
        """An open table was closed to make room for others."""

    def tables_held(self, count: int, size: int) -> None:
        """So many tables are open, and take about `size` bytes of memory."""

    def plan_ended(self, source: str, seconds: float, ledger: Ledger) -> None:
        """A scan was planned from `memory` or from `storage`; how many files each step left."""

    def index_lookup(self, kind: str, hit: bool) -> None:
        """The index was asked for `history`, a `timestamp`, an `outcome` or a `segment`; or storage had to answer."""

    def index_written(self, versions: int, seconds: float) -> None:
        """Versions were put into the index."""

    def index_failed(self, kind: str) -> None:
        """The index did not do what was asked of it, or not in time: it is degraded until it is prepared again."""

    def index_wrong(self) -> None:
        """Rows of a table were not as they were put: they are forgotten and made again."""

    def state_broken(self, kind: str) -> None:
        """A state of this format could not be believed and was passed over."""

    def state_written(self, kind: str, reason: str, seconds: float, size: int, files: int, raw_size: int) -> None:
        """A state of `files` files was written, validated and pointed to.

        `size` bytes were sent to the store for it; without compression they would be `raw_size`.
        """

    def commit_forwarded(self, outcome: str) -> None:
        """A commit was sent to the replica that holds its table: `relay` is the answer a client got, `not-written` and
        `unsure` are answers after which it was written here, `unreachable` is none because nothing was sent.
        """

    def news(self, direction: str, count: int) -> None:
        """New versions were told to (`sent`) or by (`received`) other replicas."""

    def cleaned(self, kind: str, count: int) -> None:
        """Objects of a log were deleted: so many `versions`, `checkpoints`, `states` or `manifests`."""

    def cleanup_ended(self, status: str, seconds: float) -> None:
        """A cleanup of a log ended: `success`, `partial`, `disabled`, `anchor-damaged` or `failed`."""

    def state_failed(self, kind: str) -> None:
        """Writing a state failed; the next one is due as before."""

    def foreign_writer(self) -> None:
        """A trace of other software was found in a log that is ours; its commits are refused."""

    def vacuum_ended(self, outcome: str, seconds: float, files: int, size: int) -> None:
        """A vacuum ended (`success`, `dry-run`, `failed`) and deleted this many data files, of `size` bytes."""
