"""Scans as clients ask for them: which files may hold rows that a filter wants, and what left out the others."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

MAX_PAGE = 10_000
DecidedBy: TypeAlias = Literal["partition", "bounds", "never", "nothing", "cooldown"]
"""A partition value, the bounds of a column, the filter alone (no row can satisfy it, or the log does not tell), or a
file that is left alone after it could not be processed."""


class PlanRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """A filter, as a SQL predicate or as a tree, and the version it is asked of; the newest by default."""

    filter: Annotated[
        str | dict[str, Any] | None,
        Meta(
            description="A SQL predicate, or a tree such as `{op: eq, column: id, value: 7}`; without one, all files."
        ),
    ] = None
    time_zone: (
        Annotated[
            str,
            Meta(
                max_length=64,
                description="Of times in a SQL filter that name none, such as `Europe/Berlin` or `+02:00`; else UTC.",
            ),
        ]
        | None
    ) = None
    version: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    timestamp: (
        Annotated[
            int | Annotated[str, Meta(max_length=64)],
            Meta(description="Epoch milliseconds or ISO 8601: the table as it was then."),
        ]
        | None
    ) = None
    max_staleness_seconds: Annotated[float, Meta(ge=0, le=86_400)] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE, description="How many files a page has at most.")] = 1000
    cursor: (
        Annotated[str, Meta(max_length=16_384, description="`next` of the page before; send the rest as it was.")]
        | None
    ) = None
    exclude_cooldowns: Annotated[bool, Meta(description="Leave out files that are left alone for now.")] = False
    explain: Annotated[bool, Meta(description="Say of each file why it was kept or dropped.")] = False
    fields: (
        Annotated[
            tuple[Annotated[str, Meta(max_length=64)], ...],
            Meta(max_length=64, description="The fields of files that an Arrow stream tells besides `path`; else all."),
        ]
        | None
    ) = None
    since: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=2**63 - 1,
                description="A version whose plan with this filter is known: an Arrow stream may then have only the "
                "files that came since, and say so.",
            ),
        ]
        | None
    ) = None


class PlanSince(Struct, frozen=True, kw_only=True, rename="camel"):
    """That a plan has only the files that came since an older version.

    Without the paths that are `gone`, and with the files that came, the plan of that version with the same filter is
    this one; a path that went and came again is in both. Who puts them together checks two things: that the older plan
    is of the version which is told here, by all that a snapshot tells of it, and that there are then as many files as
    the ledger counts.
    """

    version: int
    timestamp: int
    num_files: int
    total_bytes: int
    """The table at that version, as its snapshot tells it."""
    came: int
    """How many files came; the stream has them."""
    gone: tuple[str, ...] = ()


class Ledger(Struct, frozen=True, kw_only=True, rename="camel"):
    """How many manifests and files there are, and how many files each step left; the same on every page."""

    manifests_total: int = 0
    manifests_pruned: int = 0
    files_total: int = 0
    files_after_partition_pruning: int = 0
    files_after_data_skipping: int = 0
    files_after_cooldowns: int = 0


class Reason(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A comparison that decided, and what it saw. `pointer` leads to it in the filter's tree (RFC 6901)."""

    by: DecidedBy
    pointer: str = ""
    column: str = ""
    value: str | None = None
    least: str | None = None
    greatest: str | None = None
    until: Annotated[int, Meta(description="When a cooldown ends, in epoch milliseconds.")] | None = None


class ExplainedFile(Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a file is kept (everything in `because` allows it) or dropped (`because` excludes it)."""

    path: str
    kept: bool
    because: tuple[Reason, ...] = ()


class ExplainedManifest(Struct, frozen=True, kw_only=True, rename="camel"):
    """The same of a manifest of the newest state, by the bounds of its files."""

    path: str
    kept: bool
    num_entries: int = 0
    because: tuple[Reason, ...] = ()


class Explanation(Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of the files of a page, dropped ones included. Manifests are on the first page."""

    files: tuple[ExplainedFile, ...] = ()
    manifests: tuple[ExplainedManifest, ...] = ()
