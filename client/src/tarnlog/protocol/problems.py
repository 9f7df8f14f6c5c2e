"""Problem documents (RFC 9457): the codes, what each means over HTTP, and the one exception that carries them."""

from __future__ import annotations

import enum
from typing import Any

from msgspec import Struct


class Kind(enum.Enum):
    """The few kinds of trouble there are; a client can decide by kind alone."""

    INVALID = "invalid"
    NOT_FOUND = "not-found"
    GONE = "gone"
    DENIED = "denied"
    CONFLICT = "conflict"
    UNAVAILABLE = "unavailable"
    CORRUPT = "corrupt"
    INTERNAL = "internal"


class Code(Struct, frozen=True):
    """A stable problem code: `slug` ends the problem's `type`."""

    slug: str
    kind: Kind
    status: int
    title: str


def _table(*codes: Code) -> dict[str, Code]:
    return {code.slug: code for code in codes}


CODES: dict[str, Code] = _table(
    Code("request-invalid", Kind.INVALID, 422, "The request is not valid"),
    Code("commit-invalid", Kind.INVALID, 422, "The commit is not valid and was not written"),
    Code("commit-id-reused", Kind.INVALID, 422, "The commit id is already in the log with another body"),
    Code("commit-id-expired", Kind.INVALID, 422, "The commit id is older than the deduplication window"),
    Code("commit-too-large", Kind.INVALID, 413, "The commit is too large"),
    Code("request-too-large", Kind.INVALID, 413, "The request body is too large"),
    Code("headers-too-large", Kind.INVALID, 431, "The request headers are too large"),
    Code("unsupported-encoding", Kind.INVALID, 415, "The body's encoding is not supported"),
    Code("table-name-invalid", Kind.INVALID, 422, "The table name is not valid"),
    Code("schema-invalid", Kind.INVALID, 422, "The schema is not valid"),
    Code("schema-change-not-allowed", Kind.INVALID, 422, "The schema cannot change in this way"),
    Code("property-invalid", Kind.INVALID, 422, "A table property is not valid"),
    Code("filter-invalid", Kind.INVALID, 422, "The filter is not valid"),
    Code("location-not-allowed", Kind.INVALID, 422, "The location is not allowed"),
    Code("log-not-supported", Kind.INVALID, 422, "The log at this location cannot be served"),
    Code("protocol-not-supported", Kind.INVALID, 422, "The table needs features this service does not have"),
    Code("bad-request", Kind.INVALID, 400, "The request cannot be read"),
    Code("method-not-allowed", Kind.INVALID, 405, "The method is not allowed here"),
    Code("not-acceptable", Kind.INVALID, 406, "The requested media type is not offered"),
    Code("unauthenticated", Kind.DENIED, 401, "A valid API key is needed"),
    Code("forbidden", Kind.DENIED, 403, "The API key does not allow this"),
    Code("host-not-allowed", Kind.DENIED, 403, "The service answers only this machine"),
    Code("conflict", Kind.CONFLICT, 409, "The request conflicts with the present state"),
    Code("not-found", Kind.NOT_FOUND, 404, "There is nothing here"),
    Code("table-not-found", Kind.NOT_FOUND, 404, "The table does not exist"),
    Code("version-not-found", Kind.NOT_FOUND, 404, "The version does not exist"),
    Code("commit-not-found", Kind.NOT_FOUND, 404, "The commit is not in the log"),
    Code("txn-not-found", Kind.NOT_FOUND, 404, "The application has not committed to this table"),
    Code("operation-not-found", Kind.NOT_FOUND, 404, "The operation is not known here"),
    Code("session-not-found", Kind.NOT_FOUND, 404, "The write session does not exist"),
    Code("session-expired", Kind.GONE, 410, "The write session has expired"),
    Code("version-expired", Kind.GONE, 410, "The version is older than what is kept"),
    Code("commit-id-out-of-window", Kind.GONE, 410, "The commit id is older than the deduplication window"),
    Code("table-exists", Kind.CONFLICT, 409, "The table exists already"),
    Code("location-overlap", Kind.CONFLICT, 409, "The location overlaps another table"),
    Code("location-not-empty", Kind.CONFLICT, 409, "The location is not empty"),
    Code("commit-conflict", Kind.CONFLICT, 409, "The commit conflicts with another one"),
    Code("table-read-only", Kind.CONFLICT, 409, "The table is served read-only"),
    Code("foreign-writer-detected", Kind.CONFLICT, 409, "Another system writes to this log"),
    Code("request-timeout", Kind.UNAVAILABLE, 408, "The request did not arrive in time"),
    Code("too-many-connections", Kind.UNAVAILABLE, 503, "The service has too many connections"),
    Code("too-many-waiting", Kind.UNAVAILABLE, 429, "Too many requests are waiting"),
    Code("commit-contended", Kind.UNAVAILABLE, 503, "The commit was not written yet"),
    Code("clock-skew", Kind.UNAVAILABLE, 503, "The clocks disagree, so the commit was not written yet"),
    Code("commit-unknown", Kind.UNAVAILABLE, 503, "The outcome is not known yet"),
    Code("storage-unavailable", Kind.UNAVAILABLE, 503, "The object store does not answer"),
    Code("storage-refused", Kind.UNAVAILABLE, 503, "The object store refuses the request"),
    Code("index-unavailable", Kind.UNAVAILABLE, 503, "The index is off or does not answer"),
    Code("not-ready", Kind.UNAVAILABLE, 503, "The service is not ready"),
    Code("shutting-down", Kind.UNAVAILABLE, 503, "The service is shutting down"),
    Code("log-corrupt", Kind.CORRUPT, 500, "An object of the table's log cannot be read"),
    Code("internal-error", Kind.INTERNAL, 500, "Something went wrong inside the service"),
)
TYPE_PREFIX = "/problems/"
"""A relative reference: what counts is the slug at its end."""


class ProblemError(Exception):
    """A refusal with a code, a sentence that says what to do, and the fields that go with the code."""

    def __init__(self, slug: str, detail: str, /, *, retry_after: float | None = None, **fields: Any) -> None:
        super().__init__(detail)
        self.code = CODES[slug]
        self.detail = detail
        self.retry_after = retry_after
        self.fields = fields

    @property
    def slug(self) -> str:
        return self.code.slug

    def document(self) -> dict[str, Any]:
        """The problem document as it goes over the wire."""
        return {
            "type": TYPE_PREFIX + self.code.slug,
            "title": self.code.title,
            "status": self.code.status,
            "detail": self.detail,
            **self.fields,
        }

    def __str__(self) -> str:
        return f"{self.code.slug}: {self.detail}"


def from_document(status: int, document: dict[str, Any], retry_after: float | None = None) -> ProblemError:
    """The error a problem document describes; an unknown code becomes the nearest one by status."""
    slug = str(document.get("type", "")).rsplit("/", 1)[-1]
    if slug not in CODES:
        slug = _fallback(status)
    own = ("type", "title", "status", "detail", "retry_after", "self")
    fields = {key: value for key, value in document.items() if key not in own}
    return ProblemError(slug, str(document.get("detail", f"HTTP {status}")), retry_after=retry_after, **fields)


def _fallback(status: int) -> str:
    by_status = {
        401: "unauthenticated",
        403: "forbidden",
        404: "not-found",
        409: "commit-conflict",
        429: "too-many-waiting",
    }
    if status in by_status:
        return by_status[status]
    return "internal-error" if status == 500 else "storage-unavailable" if status > 500 else "request-invalid"
