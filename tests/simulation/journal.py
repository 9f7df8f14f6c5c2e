"""What clients saw, as plain values: the checker compares it with the log. It knows nothing of the service's code.

Bodies and answers are JSON values as they go over the wire, so that the checker judges what was promised to a client.
"""

from __future__ import annotations

import dataclasses
from typing import Any

Json = dict[str, Any]


@dataclasses.dataclass(slots=True)
class Send:
    """One commit request, and its answer.

    `kind`: commit, patch, skip, drop or create. `answer` stays `lost` when the client never got one.
    `body` carries an id of its own (operationParameters.body), so that a body can be found again in the log.
    """

    table: str
    kind: str
    commit_id: str | None
    body: Json
    replica: str
    started: float
    ended: float = float("inf")
    answer: Json = dataclasses.field(default_factory=lambda: {"outcome": "lost"})

    @property
    def outcome(self) -> str:
        return str(self.answer["outcome"])

    @property
    def slug(self) -> str:
        """The code of a problem; empty for other outcomes."""
        return str(self.answer.get("slug", ""))

    @property
    def read_version(self) -> int | None:
        value = self.body.get("readVersion")
        return value if isinstance(value, int) else None


@dataclasses.dataclass(slots=True)
class Read:
    """One read, and what it showed. `what`: snapshot, files, changes, history, status; `staleness` in seconds."""

    table: str
    what: str
    asked: Json
    staleness: float
    replica: str
    started: float
    ended: float = float("inf")
    answer: Json | None = None
    slug: str = ""
    """The code of the problem that came instead of an answer; `lost` when nothing came."""


@dataclasses.dataclass(slots=True)
class Followed:
    """A live feed: the versions it showed in order. `finished` means that it was told of the table's end."""

    table: str
    after: int
    replica: str
    started: float
    changes: list[Json] = dataclasses.field(default_factory=list)
    finished: bool = False


@dataclasses.dataclass(slots=True)
class Outside:
    """A version that an outside writer was told it has created."""

    key: str
    data: bytes


@dataclasses.dataclass(slots=True)
class WriteSession:
    """A session that a writer was told of, until it asked for its end or was told that it expires."""

    folder: str | None
    id: str
    prefix: str
    begun: float
    until: float


@dataclasses.dataclass(slots=True)
class Damage:
    """What somebody did to a version file, and when. `needed`: no state covered that version then."""

    table: str
    kind: str
    version: int
    key: str
    at: float
    needed: bool


@dataclasses.dataclass(slots=True)
class Journal:
    """Everything that clients did and saw in one run."""

    sends: list[Send] = dataclasses.field(default_factory=list)
    reads: list[Read] = dataclasses.field(default_factory=list)
    followed: list[Followed] = dataclasses.field(default_factory=list)
    outside: list[Outside] = dataclasses.field(default_factory=list)
    faults_of_ours: list[str] = dataclasses.field(default_factory=list)
    """Exceptions and error logs that no client should ever cause."""
    unanswered: list[str] = dataclasses.field(default_factory=list)
    """Commits that got no final answer although storage was well for minutes."""
    deleted: list[tuple[str, float]] = dataclasses.field(default_factory=list)
    """Objects that somebody deleted, each with the time it happened."""
    written: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    """Data files, each with the times at which it was written."""
    sessions: list[WriteSession] = dataclasses.field(default_factory=list)
    sessions_in_doubt: bool = False
    """Some session may be there that nobody was told of, or that somebody ended."""
    vacuumed: list[tuple[str, float]] = dataclasses.field(default_factory=list)
    """Vacuums that were said to have gone well: the table, and when each began."""
    missing: set[str] = dataclasses.field(default_factory=set)
    """Those of them that are not there at the end."""
    clocks: list[tuple[float, int]] = dataclasses.field(default_factory=list)
    """When the clock of some replica was set, and to how many milliseconds ahead of the true time."""
    damage: list[Damage] = dataclasses.field(default_factory=list)
    """What was done to version files. Answers may say so from then on, and still must not say anything else wrong."""
    calm_since: float = float("inf")
    """From then on storage is well: nobody is told that it does not answer."""
    feed_is_complete: bool = False
    """The last feed had time enough to show everything."""

    def damaged_before(self, table: str, time: float) -> Damage | None:
        """The damage to a table that an answer of this time may tell of."""
        return next((one for one in self.damage if one.table == table and one.at <= time), None)
