"""The service's advice in the reader's words: it names HTTP calls and JSON fields, a Python user calls methods.

A problem document is written for HTTP. The client's exceptions say the same with methods and arguments
(`python_words`), the command line with commands and options (`command_words`). Whatever is not an HTTP call, a field of
a request or a header stays as the service wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct


class Words(Struct, frozen=True):
    """One thing in both languages."""

    python: str
    command: str


def _both(method: str, command: str) -> Words:
    return Words(f"client.{method}", f"`tarnlog {command}`")


CALLS: dict[tuple[str, str], Words] = {
    ("POST", "/v1/tables"): _both("create_table(...)", "create TABLE --schema 'id long'"),
    ("GET", "/v1/tables"): _both("list_tables()", "tables"),
    ("POST", "/v1/tables/register"): _both("register_table(...)", "register TABLE LOCATION"),
    ("GET", "/v1/tables/{table}"): _both("get_table(...)", "describe TABLE"),
    ("PATCH", "/v1/tables/{table}"): _both("alter_table(...)", "alter TABLE"),
    ("DELETE", "/v1/tables/{table}"): _both("drop_table(...)", "drop TABLE"),
    ("POST", "/v1/tables/{table}/commits"): _both("commit(...)", "commit TABLE"),
    ("GET", "/v1/tables/{table}/commits"): _both("history(...)", "history TABLE"),
    ("GET", "/v1/tables/{table}/commits/{version}"): _both("version(...)", "history TABLE"),
    ("GET", "/v1/tables/{table}/commits/by-id/{commitId}"): _both(
        "commit_status(...)", "commit-status TABLE COMMIT_ID"
    ),
    ("GET", "/v1/tables/{table}/snapshot"): _both("snapshot(...)", "describe TABLE"),
    ("GET", "/v1/tables/{table}/files"): _both("files(...)", "files TABLE"),
    ("GET", "/v1/tables/{table}/txns/{appId}"): Words("client.txn(...)", "`txn` of the Python client"),
    ("POST", "/v1/tables/{table}/plan"): _both("plan(...)", "plan TABLE"),
    ("GET", "/v1/tables/{table}/changes"): _both("changes(...)", "diff TABLE A B"),
    ("GET", "/v1/tables/{table}/events"): _both("events(...)", "watch TABLE"),
    ("POST", "/v1/tables/{table}/skips"): _both("record_skip(...)", "skips TABLE --record PATH --reason TEXT"),
    ("GET", "/v1/tables/{table}/skips"): _both("skips(...)", "skips TABLE"),
    ("GET", "/v1/tables/{table}/cooldowns"): _both("cooldowns(...)", "cooldowns TABLE"),
    ("POST", "/v1/tables/{table}/checkpoint"): _both("checkpoint(...)", "checkpoint TABLE"),
    ("POST", "/v1/tables/{table}/compact"): _both("compact(...)", "compact TABLE"),
    ("POST", "/v1/tables/{table}/cleanup"): _both("cleanup(...)", "cleanup TABLE"),
    ("GET", "/v1/tables/{table}/state"): _both("state(...)", "state TABLE"),
    ("POST", "/v1/tables/{table}/sessions"): Words("client.write_session(...)", "`write_session` of the Python client"),
    ("GET", "/v1/tables/{table}/sessions"): _both("sessions(...)", "sessions TABLE"),
    ("PUT", "/v1/tables/{table}/sessions/{session}"): Words(
        "client.extend_session(...)", "`extend_session` of the Python client"
    ),
    ("DELETE", "/v1/tables/{table}/sessions/{session}"): _both("end_session(...)", "sessions TABLE --end ID"),
    ("POST", "/v1/tables/{table}/vacuum"): _both("vacuum(...)", "vacuum TABLE"),
    ("POST", "/v1/tables/{table}/erase"): _both("erase(...)", "erase TABLE"),
    ("POST", "/v1/tables/{table}/verify"): _both("verify(...)", "verify TABLE"),
    ("POST", "/v1/tables/{table}/repair"): _both("repair(...)", "repair TABLE"),
    ("POST", "/v1/tables/{table}/rebuild"): _both("rebuild(...)", "rebuild TABLE"),
    ("GET", "/v1/operations"): _both("operations()", "operations"),
    ("GET", "/v1/operations/{operation}"): _both("operation(...)", "operations"),
    ("GET", "/v1/health/ready"): Words("client.health()", "`health` of the Python client"),
    ("GET", "/v1/health/live"): Words("client.health()", "`health` of the Python client"),
    ("GET", "/v1/cache"): Words("client.cache_stats()", "`cache_stats` of the Python client"),
    ("POST", "/v1/cache/invalidate"): Words("client.invalidate_cache()", "`invalidate_cache` of the Python client"),
}
"""Every call of the service that a client makes; a test compares it with the service's own list."""

FIELDS: dict[str, Words] = {
    "foreignWritersStopped: true": Words("foreign_writers_stopped=True", "--foreign-writers-stopped"),
    "foreignWritersStopped": Words("foreign_writers_stopped=True", "--foreign-writers-stopped"),
    "overrideMinimum: true": Words("override_minimum=True", "--override-minimum"),
    "overrideMinimum": Words("override_minimum=True", "--override-minimum"),
    "adoptExistingFiles: true": Words("adopt_existing_files=True", "--adopt-existing-files"),
    "adoptExistingFiles": Words("adopt_existing_files=True", "--adopt-existing-files"),
    "retentionHours": Words("retention_hours", "--retention-hours"),
    "excludeCooldowns": Words("exclude_cooldowns", "--exclude-cooldowns"),
    "partitionColumns": Words("partition_by", "--partition-by"),
    "setProperties": Words("set_properties", "--set"),
    "unsetProperties": Words("unset_properties", "--unset"),
    "dryRun": Words("dry_run", "--dry-run"),
    "maxStalenessSeconds": Words("max_staleness_seconds", "maxStalenessSeconds"),
    "timeZone": Words("time_zone", "timeZone"),
    "ttlSeconds": Words("ttl_seconds", "ttlSeconds"),
    "cooldownHours": Words("cooldown_hours", "--cooldown-hours"),
    # A commit is a JSON document at the command line, too.
    "readVersion": Words("read_version", "readVersion"),
    "commitId": Words("commit_id", "commitId"),
}
"""Fields of requests as arguments and as options."""

_KEY = "the service asks for an API key: "
BY_CODE: dict[str, Words] = {
    "unauthenticated": Words(
        _KEY + "pass Client(api_key='<id>.<secret>'), or set TARNLOG_API_KEY",
        _KEY + "give one with --api-key, or set TARNLOG_API_KEY",
    ),
}
"""Whole sentences, for codes whose detail speaks of headers."""

_CALL = re.compile(r"\b(GET|POST|PUT|PATCH|DELETE) (/v1/[\w/{}.:*-]*[\w}])")
_FIELD = re.compile(r"(?<![\w/])/?\b(" + "|".join(map(re.escape, sorted(FIELDS, key=len, reverse=True))) + r")\b(?!/)")
_HEADERS = re.compile(r"\bAuthorization\b|\bBearer\b")


def python_words(slug: str, detail: str) -> str:
    """A problem's detail for a reader of an exception."""
    return _worded(slug, detail, lambda words: words.python)


def command_words(slug: str, detail: str) -> str:
    """A problem's detail for a user of the command line."""
    return _worded(slug, detail, lambda words: words.command)


def _worded(slug: str, detail: str, of: Callable[[Words], str]) -> str:
    if slug in BY_CODE and _HEADERS.search(detail):
        return of(BY_CODE[slug])
    with_calls = _CALL.sub(lambda match: _call(match, of), detail)
    return _FIELD.sub(lambda match: of(FIELDS[match[1]]), with_calls)


def _call(match: re.Match[str], of: Callable[[Words], str]) -> str:
    parts = match[2].split("/")
    for (method, path), words in CALLS.items():
        named = path.split("/")
        same = all(a == b or a.startswith("{") for a, b in zip(named, parts, strict=False))
        if method == match[1] and len(named) == len(parts) and same:
            return of(words)
    return match[0]
