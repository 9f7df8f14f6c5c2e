"""Where a commit is written, and what another replica's answer is worth: by tables."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog.protocol.commits import CommitRequest
from tarnlog.protocol.problems import CODES, Kind
from tarnlog_server.core.routing import (
    Held,
    Owner,
    Route,
    Verdict,
    asked_again_at,
    blames_owner,
    distrust_seconds,
    judge,
    route,
    settles,
    with_commit_id,
)

ME, OTHER = Owner("me", "http://me"), Owner("other", "http://other")
NEVER = 0.0


@pytest.mark.parametrize(
    "held, distrusted_until, expected",
    [
        (None, NEVER, Route.HERE_AND_TAKE),
        (Held(ME, 101), NEVER, Route.HERE),
        (Held(ME, 100), NEVER, Route.HERE_AND_TAKE),
        (Held(OTHER, 101), NEVER, Route.FORWARD),
        (Held(OTHER, 100), NEVER, Route.HERE_AND_TAKE),
        (Held(OTHER, 99), 200, Route.HERE_AND_TAKE),
        (Held(OTHER, 101), 101, Route.HERE),
        (Held(OTHER, 101), 100, Route.FORWARD),
    ],
)
def test_where_a_commit_is_written(held: Held | None, distrusted_until: float, expected: Route) -> None:
    assert route(held, "me", 100, distrusted_until) is expected


@pytest.mark.parametrize(
    "slug, expected",
    [
        ("commit-conflict", Verdict.RELAY),
        ("commit-invalid", Verdict.RELAY),
        ("commit-id-reused", Verdict.RELAY),
        ("commit-too-large", Verdict.RELAY),
        ("table-read-only", Verdict.RELAY),
        ("foreign-writer-detected", Verdict.RELAY),
        ("protocol-not-supported", Verdict.RELAY),
        ("too-many-waiting", Verdict.RELAY),
        ("commit-unknown", Verdict.UNSURE),
        ("internal-error", Verdict.UNSURE),
        ("log-corrupt", Verdict.UNSURE),
        ("", Verdict.UNSURE),
        ("headers-too-large", Verdict.UNSURE),
        ("bad-request", Verdict.UNSURE),
        ("request-too-large", Verdict.UNSURE),
        ("a-code-of-a-newer-release", Verdict.UNSURE),
        ("request-timeout", Verdict.NOT_WRITTEN),
        ("too-many-connections", Verdict.NOT_WRITTEN),
        ("commit-contended", Verdict.NOT_WRITTEN),
        ("shutting-down", Verdict.NOT_WRITTEN),
        ("not-ready", Verdict.NOT_WRITTEN),
        ("storage-unavailable", Verdict.NOT_WRITTEN),
        ("storage-refused", Verdict.NOT_WRITTEN),
        ("request-invalid", Verdict.NOT_WRITTEN),
        ("unauthenticated", Verdict.NOT_WRITTEN),
        ("forbidden", Verdict.NOT_WRITTEN),
        ("table-not-found", Verdict.NOT_WRITTEN),
        # What the owner's clock said: it may be wrong, so the clock here judges the id again.
        ("clock-skew", Verdict.NOT_WRITTEN),
        ("commit-id-expired", Verdict.NOT_WRITTEN),
    ],
)
def test_what_an_answer_is_worth(slug: str, expected: Verdict) -> None:
    assert judge(slug, committed=False) is expected


def test_a_commit_in_the_log_is_relayed() -> None:
    assert judge("", committed=True) is Verdict.RELAY


@pytest.mark.parametrize("slug", sorted(CODES))
def test_a_refusal_here_is_final_only_where_every_replica_says_so(slug: str) -> None:
    """Everything a replica can say because of what it is, has or knows just now leaves the commit open."""
    assert not settles(slug, on_head=True), "another head may have another answer"
    if settles(slug, on_head=False):
        assert slug == "commit-unknown" or CODES[slug].kind in (Kind.INVALID, Kind.CONFLICT)
    if CODES[slug].kind in (Kind.UNAVAILABLE, Kind.NOT_FOUND, Kind.INTERNAL, Kind.CORRUPT, Kind.DENIED):
        assert slug == "commit-unknown" or not settles(slug, on_head=False)


def test_trouble_of_the_table_is_no_reason_to_leave_its_owner() -> None:
    assert [slug for slug in CODES if not blames_owner(slug)] == [
        "commit-id-expired",
        "table-not-found",
        "commit-contended",
        "clock-skew",
        "commit-unknown",
        "storage-unavailable",
    ]


def test_distrust_grows_and_is_bounded() -> None:
    assert [distrust_seconds(failures) for failures in (1, 2, 3, 6, 1000)] == [1, 2, 4, 30, 30]


def test_a_lease_is_asked_for_again_with_time_to_spare() -> None:
    assert asked_again_at(None, 9) < 0
    assert asked_again_at(Held(ME, 109), 9) == 103


@given(
    st.dictionaries(st.sampled_from(["operation", "readVersion", "isolation"]), st.none(), max_size=2),
    st.booleans(),
    st.sampled_from(["", " ", "\n\t "]),
)
def test_a_commit_gets_an_id_and_stays_what_it_was(more: dict[str, None], null: bool, space: str) -> None:
    given_id = "01890000-0000-7000-8000-000000000001"
    content = {"actions": [{"add": {"path": 'a"}\\'}}], **more, **({"commitId": None} if null else {})}
    body = msgspec.json.encode(content) + space.encode()
    assert msgspec.json.decode(with_commit_id(body, given_id)) == {**content, "commitId": given_id}


def test_the_service_reads_the_id_that_was_put_in_after_a_null() -> None:
    given_id = "01890000-0000-7000-8000-000000000001"
    body = b'{"commitId": null, "actions": [{"txn": {"appId": "a", "version": 1}}]}\n'
    read = msgspec.json.decode(with_commit_id(body, given_id), type=CommitRequest)
    assert read.commit_id == given_id
