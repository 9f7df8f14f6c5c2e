"""Parsers of what a service answers, in the client: anything may stand behind a URL, a proxy's page for one."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from tarnlog import _calls, _commit_wire, _long, _plans, _wire
from tarnlog._errors import TarnlogError, error_from
from tarnlog._exchange import Answer, Call
from tarnlog._feed import ChangeFeed
from tests.fuzz.harness import Target
from tests.fuzz.served import JSON, untouched

ID = "018cc251-f400-7000-8000-00000000abcd"
T = "db.t"
_PLAN: dict[str, Any] = {
    "version": None,
    "timestamp": None,
    "max_staleness_seconds": None,
    "exclude_cooldowns": False,
    "time_zone": None,
}
_PAGE: dict[str, Any] = {"from_": None, "to": None, "order": None, "page_size": None}
_AT: dict[str, Any] = {"version": None, "timestamp": None, "max_staleness_seconds": None}
READERS: dict[str, tuple[str, Callable[[], Call[Any]]]] = {
    "table": ("getTable", lambda: _calls.get_table(T)),
    "tables": ("listTables", lambda: _calls.list_tables(None, None)(None)),
    "history": ("listCommits", lambda: _calls.history(T, **_PAGE)(None)),
    "version": ("getVersion", lambda: _calls.version(T, 1)),
    "snapshot": ("getSnapshot", lambda: _calls.snapshot(T, **_AT)),
    "files": ("listFiles", lambda: _calls.files(T, **_AT, page_size=None)(None)),
    "changes": ("listChanges", lambda: _calls.changes(T, from_=0, to=None, page_size=None)(None)),
    "txn": ("getTxn", lambda: _calls.txn(T, "a")),
    "skips": ("listSkips", lambda: _calls.skips(T, None)(None)),
    "skip": (
        "recordSkip",
        lambda: _calls.record_skip(
            T, "p", reason="r", operation="o", partition_values=None, size=None, cooldown_hours=None
        ),
    ),
    "cooldowns": ("listCooldowns", lambda: _calls.cooldowns(T)),
    "checkpoint": ("checkpoint", lambda: _calls.checkpoint(T, None)),
    "cleanup": ("cleanup", lambda: _calls.cleanup(T, False)),
    "state": ("describeState", lambda: _calls.state(T)),
    "sessions": ("listSessions", lambda: _calls.sessions(T)),
    "verify": ("verify", lambda: _calls.verify(T)),
    "vacuum": ("vacuum", lambda: _calls.vacuum(T, dry_run=True, retention_hours=None, override_minimum=False)),
    "erase": ("erase", lambda: _calls.erase(T, dry_run=True)),
    "rebuild": ("rebuild", lambda: _calls.rebuild(T)),
    "operations": ("listOperations", _long.operations),
    "operation": ("getOperation", lambda: _long.operation("x")),
    "health": ("ready", _calls.health),
    "caches": ("cacheStats", _calls.cache_stats),
    "plan": ("planScan", lambda: _plans.plan_pages(T, None, **_PLAN)(None)),
    "commit-status": ("getCommit", lambda: _commit_wire.commit_status(T, ID)),
}


def _examples(operation_id: str) -> Callable[[], Sequence[bytes]]:
    def found() -> Sequence[bytes]:
        operation = next(one for one in untouched().api.app.operations if one.id == operation_id)
        return [json.dumps(next(iter(operation.results.values())).example).encode()]

    return found


def _reading(call: Callable[[], Call[Any]], status: int = 200) -> Callable[[bytes], object]:
    return lambda data: call().read(Answer(status=status, body=data))


PROBLEM = {
    "type": "/problems/commit-conflict",
    "title": "t",
    "status": 409,
    "detail": "d",
    "rule": "delete-read",
    "winners": [{"version": 1, "seq": 0, "commitId": ID, "operation": "WRITE"}],
    "paths": ["a"],
    "fromVersion": 1,
    "asOfVersion": 5,
    "errors": [{"pointer": "/a", "message": "m"}],
    "retry": "rebase",
}


def _problems() -> list[bytes]:
    slugs = ("commit-conflict", "commit-not-found", "too-many-waiting", "commit-invalid")
    return [json.dumps({**PROBLEM, "type": f"/problems/{slug}"}).encode() for slug in slugs]


def _problem(data: bytes) -> object:
    """Every status that a problem may have; an error of the client is what is wanted, so it is made and not raised."""
    answers = [
        Answer(status=status, body=data, headers={"retry-after": "1"}) for status in (404, 409, 413, 429, 500, 503)
    ]
    for answer in answers:
        str(error_from(_wire.problem_of(answer), answer.status))
        _commit_wire.read_outcome(answer, ID)
    return _commit_wire.commit_status(T, ID).read(answers[0])


def _outcome(data: bytes) -> object:
    return [_commit_wire.read_outcome(Answer(status=status, body=data), ID) for status in (200, 201, 202)]


@functools.cache
def _streams() -> list[bytes]:
    accept = (*JSON, (b"accept", b"application/vnd.apache.arrow.stream"))
    body = b'{"filter":"id = 5"}'
    return [untouched().ask("POST", "/v1/tables/db.t/plan", body=asked, headers=accept) for asked in (b"{}", body)]


def _stream(data: bytes) -> object:
    call = _plans.plan_stream(T, None, **_PLAN, fields=None, since=None)
    return call.read(Answer(status=200, body=data)).files.to_pylist()


def _told_otherwise() -> list[bytes]:
    """What a stream says about itself, as JSON."""
    metadata = pa.ipc.open_stream(io.BytesIO(_streams()[1])).schema.metadata
    return [json.dumps({key.decode(): value.decode() for key, value in metadata.items()}).encode()]


def _stream_metadata(data: bytes) -> object:
    try:
        found = json.loads(data)
        metadata = {str(key).encode(): str(value).encode() for key, value in found.items()}
    except (ValueError, AttributeError, RecursionError):
        return None
    files = pa.ipc.open_stream(io.BytesIO(_streams()[0])).read_all().replace_schema_metadata(metadata)
    out = io.BytesIO()
    with pa.ipc.new_stream(out, files.schema) as writer:
        writer.write_table(files)
    return _stream(out.getvalue())


def _events() -> list[bytes]:
    change = _examples("listChanges")()[0]
    entry = json.dumps(json.loads(change)["changes"][0])
    large = json.dumps({"version": 3, "timestamp": 1, "numAdds": 5})
    return [
        f": hello\n\nevent: change\nid: 1\ndata: {entry}\n\nevent: change\ndata: {large}\n\n".encode(),
        b'\xef\xbb\xbfevent: error\r\ndata: {"type":"/problems/version-expired","status":410}\r\n\r\n',
    ]


def _event(data: bytes) -> object:
    feed, cut = ChangeFeed(0), len(data) // 2
    return [found for part in (data[:cut], data[cut:]) for found in feed.receive(part)]


ERRORS = (TarnlogError,)
TARGETS: tuple[Target, ...] = (
    *(
        Target(f"answer-{name}", _examples(operation), _reading(call), ERRORS, "json")
        for name, (operation, call) in READERS.items()
    ),
    Target("answer-problem", _problems, _problem, ERRORS, "json", accepts_samples=False),
    Target("answer-commit", _examples("commit"), _outcome, (), "json"),
    Target("answer-arrow", _streams, _stream, ERRORS),
    Target("answer-arrow-metadata", _told_otherwise, _stream_metadata, ERRORS, "json"),
    Target("answer-events", _events, _event, ERRORS),
)
