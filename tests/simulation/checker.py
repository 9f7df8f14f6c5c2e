"""What must be true after a run, judged by the log's bytes and what clients were told, without the service's code.

Which answers bind, when the same commit id was sent more than once:

- `committed` binds always: the id is in the log, once, at that version and seq, with the body that was sent.
- `conflict` and 422 `commit-invalid` say "never" for what was sent: this body on this readVersion. They are false if
  the log holds that body with that readVersion, whoever placed it, before or after: admission at version n looked at
  every winner a refusal at an older head can have seen, and a refusal at a newer head would have seen the commit.
  Another readVersion (a client that planned anew under its old id) or another body may have landed: the refusal said
  nothing about those. A table created anew under the same name answers for itself only.
- a refusal with `asOfVersion` was judged on the head of its moment. It binds like the others, unless another send of
  the same commit was open then: that one may be judged on another head.
- `commit-id-expired` says that nobody can tell. It is false for an id that was in the log, younger than the window.
- `unknown` and no answer at all bind to "at most once". So does `commit-id-reused`, which also names the place.
- every other problem (429, contended, refused, ...) says "not committed": an id that got only such answers is absent.
"""

from __future__ import annotations

import json
from typing import Any

from tests.simulation.data_files import check_data_files
from tests.simulation.feeds import check_feeds, check_reads
from tests.simulation.journal import Damage, Journal, Send
from tests.simulation.log_model import Broken, Log, Objects, Sub, Version, read_tables
from tests.simulation.retention import check_retention
from tests.simulation.rules import broken_rules, is_blind, isolation
from tests.simulation.times import missing_allowed

Json = dict[str, Any]

MAY_HAVE_LANDED = ("committed", "unknown", "lost")
SERVICE_MADE = ("CREATE TABLE", "DROP", "SKIP FILE")
NEVER_TOLD = ("log-corrupt", "internal-error", "not-ready", "request-invalid", "protocol-not-supported")
DEDUPE_MS = 24 * 3600 * 1000
SKEW_MS = 10_000


def check(journal: Journal, objects: Objects, created: dict[str, float]) -> list[str]:
    """Every promise that was broken, in words; empty when all were kept."""
    found = [f"fault of ours: {fault}" for fault in journal.faults_of_ours]
    found += [f"no final answer for {name}" for name in journal.unanswered]
    try:
        tables = read_tables(objects, created)
    except (Broken, ValueError, KeyError) as error:
        return [*found, f"the log is broken: {error!r}"]
    found += [f"outside write {o.key} was replaced" for o in journal.outside if objects[o.key][0] != o.data]
    by_id: dict[str, list[Send]] = {}
    for send in journal.sends:
        if send.commit_id is not None:
            by_id.setdefault(send.commit_id, []).append(send)
    for logs in tables.values():
        for log in logs:
            found += [f"{log.root} {fault}" for fault in _check_log(log, by_id)]
    for send in journal.sends:
        logs = tables.get(send.table, [])
        others = [other for other in by_id.get(send.commit_id or "", ()) if other is not send]
        damage = journal.damaged_before(send.table, send.ended) if send.slug == "log-corrupt" else None
        faults = _check_send(send, logs, others, journal) if damage is None else _check_told(send, logs, damage)
        found += [f"{_name(send)}: {fault}" for fault in faults]
    for logs in tables.values():
        for log in logs:
            found += [f"{log.root} {fault}" for fault in check_retention(journal, log, objects)]
            found += check_data_files(journal, log)
    found += check_reads(journal, tables)
    found += check_feeds(journal, tables)
    return found


def _name(send: Send) -> str:
    return f"{send.kind} {send.commit_id} at {send.started:.3f} on {send.replica} told {json.dumps(send.answer)[:300]}"


def _check_log(log: Log, by_id: dict[str, list[Send]]) -> list[str]:
    found: list[str] = []
    dropped = False
    put_ids: set[str] = set()
    for version in log.versions:
        if version.ours and version.info is not None:
            if version.info["putId"] in put_ids:
                found.append(f"putId {version.info['putId']} is there twice")
            put_ids.add(version.info["putId"])
        for sub in version.subs:
            if dropped:
                found.append(f"version {version.number} follows the drop")
            dropped = dropped or sub.operation == "DROP"
            found += [f"version {version.number}.{sub.seq} {fault}" for fault in sub.faults]
            if sub.commit_id and sub.operation not in SERVICE_MADE:
                sends = by_id.get(sub.commit_id, [])
                found += [f"commit {sub.commit_id} at {version.number}: {f}" for f in _check_placed(log, sub, sends)]
    return found


def _check_placed(log: Log, sub: Sub, sends: list[Send]) -> list[str]:
    """A commit in the log: somebody sent exactly this, it was not refused, and it conflicts with nobody before it."""
    sent = next((s for s in sends if _is_this(s, sub)), None)
    if sent is None:
        return ["nobody sent what is in the log"]
    found = []
    if not any(s.outcome in MAY_HAVE_LANDED or s.slug == "log-corrupt" for s in sends):
        found.append("every answer said that it is not committed")
    if sent.kind == "patch":
        after = _patched(sub.metadata_before or {}, sent.body)
        if sub.metadata_after != after:
            found.append(f"the patch {sent.body} made {sub.metadata_after} of {sub.metadata_before}")
        return found
    if sub.blind != is_blind(sent.body):
        found.append(f"isBlindAppend is {sub.blind}")
    if sub.record is not None and sub.record.get("isolation") != isolation(sent.body):
        found.append(f"isolation is {sub.record.get('isolation')}")
    read_version = sent.read_version
    if sub.blind or read_version is None:
        return found
    if read_version >= sub.version:
        found.append(f"readVersion {read_version} is not below it")
        return found
    metadata = log.versions[read_version].after.metadata
    for winner in _between(log, read_version, sub):
        broken = broken_rules(sent.body, winner, metadata)
        if broken:
            found.append(f"undetected conflict {sorted(broken)} with {winner.version}.{winner.seq}")
    return found


def _between(log: Log, read_version: int, sub: Sub) -> list[Sub]:
    """What the commit did not see: everything after its readVersion, up to itself."""
    return [
        other
        for version in log.versions[read_version + 1 : sub.version + 1]
        for other in version.subs
        if (other.version, other.seq) < (sub.version, sub.seq)
    ]


def _is_this(send: Send, sub: Sub) -> bool:
    """Whether the log holds exactly what was sent: the body and its readVersion."""
    if sub.record is None:
        return False
    if send.kind == "patch":
        return bool(sub.record.get("operationParameters") == send.body)
    return (
        sub.body_name == send.body["operationParameters"]["body"]
        and sub.record.get("readVersion") == send.read_version
        and len(sub.actions) == len(send.body["actions"])
        and all(_same(wrapped, *logged) for wrapped, logged in zip(send.body["actions"], sub.actions, strict=True))
    )


def _same(wrapped: Json, kind: str, logged: Json) -> bool:
    sent = wrapped.get(kind)
    if sent is None:
        return False
    if kind == "remove" and "deletionTimestamp" not in sent:
        logged = {key: value for key, value in logged.items() if key != "deletionTimestamp"}
    return bool({k: v for k, v in sent.items() if v is not None} == logged)


def _patched(before: Json, body: Json) -> Json:
    after = {**before, "configuration": dict(before.get("configuration", {}))}
    changes = body.get("properties", {})
    for key in changes.get("unset", ()):
        after["configuration"].pop(key, None)
    after["configuration"].update(changes.get("set", {}))
    if "description" in body:
        after["description"] = body["description"]
    if "schema" in body:
        after["schemaString"] = json.dumps(body["schema"], separators=(",", ":"))
    return after


def _check_send(send: Send, logs: list[Log], others: list[Send], journal: Journal) -> list[str]:
    if send.slug in NEVER_TOLD:
        return ["a client is never told this here"]
    if send.slug == "table-not-found":
        return [] if missing_allowed(logs, send.started - 60, send.ended) else ["the table was there all the time"]
    if send.slug == "commit-id-expired":
        return _check_expired(send, logs, journal)
    if send.kind in ("create", "drop"):
        return _check_table_change(send, logs)
    if send.kind == "skip":
        return _check_skip(send, logs)
    places = [(log, log.by_id[send.commit_id]) for log in logs if send.commit_id and send.commit_id in log.by_id]
    if send.outcome == "committed":
        return _check_committed(send, places)
    if send.outcome == "conflict" or send.slug == "commit-invalid":
        found = [
            f"it is in the log at {sub.version}.{sub.seq}"
            for log, sub in places
            if _is_this(send, sub) and not _another_answered(log, logs, send) and not _may_differ(send, others)
        ]
        return found + (_check_conflict(send, logs) if send.outcome == "conflict" else [])
    if send.slug == "commit-id-reused":
        told = (send.answer["version"], send.answer["seq"])
        same = [sub for _, sub in places if (sub.version, sub.seq) == told]
        if not same:
            return ["the id is not there"]
        return ["the body there is the same"] if any(_is_this(send, sub) for sub in same) else []
    return []


def _may_differ(send: Send, others: list[Send]) -> bool:
    """Whether a refusal was judged on its head, while another send of the same commit could be judged on another."""
    return send.answer.get("asOfVersion") is not None and any(
        other.started < send.ended and other.outcome in MAY_HAVE_LANDED for other in others
    )


def _check_expired(send: Send, logs: list[Log], journal: Journal) -> list[str]:
    """Its time is too long ago for some clock, and it was not in the log when it was sent."""
    made = int(str(send.commit_id).replace("-", "")[:12], 16)
    age = 1_750_000_000_000 + int(send.ended * 1000) - made
    window = min((_dedupe_ms(log) for log in logs), default=DEDUPE_MS)
    ahead = max((skew for when, skew in journal.clocks if when <= send.ended), default=0)
    found = [] if age + max(ahead, 0) > window - SKEW_MS else [f"the id is {age} ms old"]
    for log in logs:
        sub = log.by_id.get(send.commit_id or "")
        if sub is not None and not _another_answered(log, logs, send):
            since = send.started - log.versions[sub.version].created
            if 0 <= since < window / 1000 - 10:
                found.append(f"it was in the log at {sub.version}.{sub.seq}, {since:.0f} s before")
    return found


def _check_told(send: Send, logs: list[Log], damage: Damage) -> list[str]:
    """A commit that was answered `log-corrupt`: damage that a state covered stops only what has to read it.

    Those are commits that were planned on a version below, and ids that may be in that version.
    """
    resent = any(send.commit_id in log.by_id for log in logs)
    if damage.needed or resent or send.kind != "commit" or send.read_version is not None:
        return []
    return [f"damage to version {damage.version}, which a state covers, stopped it"]


def _dedupe_ms(log: Log) -> int:
    """How long ids are remembered; runs set it to an hour, or not at all."""
    metadata = log.versions[0].after.metadata or {}
    return 3_600_000 if metadata["configuration"].get("commit.dedupe.duration") == "1h" else DEDUPE_MS


def _check_committed(send: Send, places: list[tuple[Log, Sub]]) -> list[str]:
    if not places:
        return ["it is not in the log"]
    found: list[str] = []
    for log, sub in places:
        found = _check_place(send, log, sub)
        if not found:
            return []
    return found


def _check_place(send: Send, log: Log, sub: Sub) -> list[str]:
    version = log.versions[sub.version]
    found = []
    if version.created > send.ended:
        found.append("it was told before it happened")
    if send.kind == "patch":
        same = bool(sub.record and sub.record.get("operationParameters") == send.body)
        return found if same else [*found, "the log holds another change"]
    told = (send.answer["version"], send.answer["seq"], send.answer["timestamp"])
    if told != (sub.version, sub.seq, version.timestamp):
        found.append(f"it is in the log at {sub.version}.{sub.seq} of {version.timestamp}")
    if sub.body_name != send.body["operationParameters"]["body"]:
        found.append("the log holds another body")
    if not send.answer["replayed"]:
        if not _is_this(send, sub):
            found.append("the log does not hold what was sent")
        read_version = sub.version if send.read_version is None else send.read_version
        if send.answer["rebasedOver"] != list(range(read_version + 1, sub.version)):
            found.append("rebasedOver is wrong")
    return found


def _another_answered(log: Log, logs: list[Log], send: Send) -> bool:
    """Whether a table other than the one with the commit may have given this answer."""
    return any(
        other is not log
        and other.named_at <= send.ended
        and (other.dropped_at is None or other.dropped_at >= send.started - 60)
        for other in logs
    )


def _check_conflict(send: Send, logs: list[Log]) -> list[str]:
    """Named winners are in the log and do break the rule; where none is named, the head itself must show it."""
    faults: list[str] = ["there is no table"]
    for log in logs:
        faults = _check_winners(send, log)
        if not faults:
            return []
    return faults


def _check_winners(send: Send, log: Log) -> list[str]:
    rule, winners = send.answer["rule"], send.answer["winners"]
    seen = [version for version in log.versions if version.created <= send.ended]
    if not winners:
        return ["no winner is named"]
    if rule == "expired":
        floor = log.floor_at(send.ended)
        return [] if (send.read_version or 0) < floor and winners[0]["version"] < len(seen) else ["nothing expired"]
    if rule == "txn" and send.answer.get("retry") == "never":
        last = send.answer["lastTxnVersion"]
        wanted = {a["txn"]["appId"]: a["txn"]["version"] for a in send.body["actions"] if "txn" in a}
        told = {(t["appId"], t["version"]) for sub in _named_subs(winners, seen) for t in sub.of("txn")}
        good = any((app, last) in told and number <= last for app, number in wanted.items())
        return [] if good else ["no named winner recorded that progress"]
    if rule == "delete-delete" and all(one["version"] <= (send.read_version or 0) for one in winners):
        removed = {remove["path"] for sub in _named_subs(winners, seen) for remove in sub.of("remove")}
        paths = set(send.answer["paths"])
        return [] if paths and paths <= removed else ["the named winners did not remove the files"]
    found: list[str] = []
    for named in winners:
        subs = seen[named["version"]].subs if named["version"] < len(seen) else []
        winner = next((sub for sub in subs if sub.seq == named["seq"]), None)
        if winner is None or (winner.commit_id, winner.operation) != (named["commitId"], named["operation"]):
            found.append(f"winner {named} is not in the log")
        elif named["version"] <= (send.read_version or 0):
            found.append(f"winner {named} was seen by the commit")
        elif send.kind == "commit" and not _breaks(send, winner, log, rule):
            found.append(f"winner {named} does not break rule {rule}")
    return found


def _named_subs(winners: list[Json], seen: list[Version]) -> list[Sub]:
    """The commits that are named; all of a version where it is named alone."""
    return [
        sub
        for one in winners
        if one["version"] < len(seen)
        for sub in seen[one["version"]].subs
        if one["commitId"] is None or sub.commit_id == one["commitId"]
    ]


def _breaks(send: Send, winner: Sub, log: Log, rule: str) -> bool:
    metadata = log.versions[send.read_version or 0].after.metadata
    if rule in broken_rules(send.body, winner, metadata):
        return True
    # Of files removed long ago the service no longer knows the values: with filters it may refuse to be safe.
    return rule == "delete-read" and bool(winner.removed) and bool(send.body.get("reads", {}).get("filters"))


def _check_skip(send: Send, logs: list[Log]) -> list[str]:
    if send.outcome != "committed":
        return []
    for log in logs:
        sub = log.by_id.get(send.answer["commitId"])
        if sub is not None and (sub.version, sub.seq) == (send.answer["version"], send.answer["seq"]):
            skip = {k: v for k, v in send.answer["skip"].items() if v is not None}
            logged = {"skipCount": 1, **sub.of("mergeskip")[0]}
            return [] if {"skipCount": 1, **skip} == logged else [f"the log holds {logged}"]
    return ["it is not in the log"]


def _check_table_change(send: Send, logs: list[Log]) -> list[str]:
    if send.outcome != "committed":
        return []
    times = [log.named_at if send.kind == "create" else log.dropped_at for log in logs]
    if send.kind == "drop" and send.body["purge"]:
        # It may also go on with a purge that was cut off: that of the last drop before it.
        before = [(log.dropped_at, log.to_be_purged) for log in logs if (log.dropped_at or send.started) < send.started]
        if max(before, default=(0.0, False))[1]:
            return []
    return [] if any(t is not None and send.started <= t <= send.ended for t in times) else ["it did not happen then"]
