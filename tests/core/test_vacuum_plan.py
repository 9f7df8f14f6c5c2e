"""What vacuum may delete: by cases, and never a file that the log can still lead to."""

from __future__ import annotations

from urllib.parse import quote

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tarnlog.protocol.actions import Add, Remove
from tarnlog.protocol.paths import check_new_path, path_key
from tarnlog_server.core.dedupe import CLOCK_TOLERANCE_MS
from tarnlog_server.core.protected_files import DataObject, Why
from tarnlog_server.core.setting_values import HOUR
from tarnlog_server.core.vacuum_plan import (
    MIN_RETENTION_MS,
    Orphans,
    RetentionTooShort,
    Session,
    VacuumPlan,
    retention,
)
from tarnlog_server.core.vacuum_references import HashedNames, References

NOW = 1_704_067_200_000
OLD = NOW - 30 * HOUR
DAY = 24 * HOUR


def plan(*paths: str, sessions: tuple[Session, ...] = (), retention_ms: int = DAY) -> VacuumPlan:
    references = References(seal_at=2)
    for path in paths:
        references.add(path)
    return VacuumPlan(references, sessions, now_ms=NOW, retention_ms=retention_ms)


def old(path: str) -> DataObject:
    return DataObject(path, 7, OLD)


@pytest.mark.parametrize(
    "path",
    [
        "_transaction_log/00000000000000000000.json",
        "_transaction_log/_sessions/1.json",
        "_anything/part.parquet",
        "day=1/_temporary/part.parquet",
        "day=1/_SUCCESS",
        ".hidden",
        "day=1/.part.crc",
        "%5Ftransaction_log/0.json",
        "folder/",
        "",
    ],
)
def test_what_is_not_data_is_never_touched(path: str) -> None:
    assert plan(retention_ms=0).why_kept(old(path)) is Why.NOT_DATA


STAGED = "write-0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.mark.parametrize(
    "path,why",
    [
        (f"{STAGED}/_temporary/0/_temporary/attempt_1/by_p=1/part-0.parquet", None),
        (f"{STAGED}/_temporary/0/task_1/part-0.parquet", None),
        (f"{STAGED}/part-0.parquet", None),
        (f"{STAGED}/_SUCCESS", Why.NOT_DATA),
        (f"{STAGED}/_temporary/0/_other/part-0.parquet", Why.NOT_DATA),
        ("write-mine/_temporary/0/part-0.parquet", Why.NOT_DATA),
        (f"day=1/{STAGED}/_temporary/part-0.parquet", Why.NOT_DATA),
    ],
)
def test_what_a_dead_job_left_in_its_own_folder_may_go(path: str, why: Why | None) -> None:
    assert plan(retention_ms=0).why_kept(old(path)) is why


@pytest.mark.parametrize(
    "in_log,stored",
    [
        ("day=1/a.parquet", "day=1/a.parquet"),
        ("x%20y", "x y"),
        ("x y", "x%20y"),
        ("p=a%252Fb/f", "p=a%2Fb/f"),
        ("p=a%2Fb/f", "p=a%2Fb/f"),
        ("./day=1//f", "day=1/f"),
        ("day=1/../f", "f"),
        ("a/%2E%2E/b/f", "b/f"),
        ("f..g", "f..g"),
        ("s3a://bucket/table/day=1/part-7.parquet", "day=1/part-7.parquet"),
        ("file:/tables/t/part-8", "part-8"),
        ("/tables/t/x%20y", "x y"),
        ("s3://bucket/table/x%252Fy", "x%2Fy"),
    ],
)
def test_a_file_of_the_log_stays_however_it_is_spelled(in_log: str, stored: str) -> None:
    assert plan(in_log, retention_ms=0).why_kept(old(stored)) is Why.REFERENCED
    assert plan("other", retention_ms=0).why_kept(old(stored)) is None


@pytest.mark.parametrize(
    "age,why", [(DAY + 1, None), (DAY, Why.YOUNG), (DAY - 1, Why.YOUNG), (0, Why.YOUNG), (-HOUR, Why.YOUNG)]
)
def test_age(age: int, why: Why | None) -> None:
    assert plan().why_kept(DataObject("f", 1, NOW - age)) is why


@pytest.mark.parametrize(
    "prefix,expires_in,path,why",
    [
        ("day=1/", HOUR, "day=1/f", Why.SESSION),
        ("day=1/", HOUR, "day=2/f", None),
        ("", HOUR, "day=2/f", Why.SESSION),
        ("day=1/", -CLOCK_TOLERANCE_MS + 1, "day=1/f", Why.SESSION),
        ("day=1/", -CLOCK_TOLERANCE_MS, "day=1/f", None),
        ("x%20y/", HOUR, "x y/f", Why.SESSION),
        ("x y/", HOUR, "x%20y/f", Why.SESSION),
    ],
)
def test_sessions(prefix: str, expires_in: int, path: str, why: Why | None) -> None:
    assert plan(sessions=(Session(prefix, NOW + expires_in),)).why_kept(old(path)) is why


def test_a_page_is_divided_and_counted() -> None:
    page = [old("a"), old("b"), DataObject("c", 1, NOW), old("_x/d"), old("s/e"), old("f")]
    judged = plan("a", sessions=(Session("s/", NOW + 1),)).orphans(page)
    kept = {Why.REFERENCED: 1, Why.YOUNG: 1, Why.NOT_DATA: 1, Why.SESSION: 1}
    assert judged == Orphans((page[1], page[5]), kept)
    assert plan().orphans([]) == Orphans((), {})


def test_references() -> None:
    references = References()
    added = Add(path="b", partition_values={}, size=1, modification_time=1, data_change=True)
    companion = msgspec.structs.replace(added, path="c", companion_source_files=("source/d",))
    references.add("x%20y")
    references.add_files([Remove(path="e", data_change=True), added, companion])
    times = {"fresh": NOW, "edge": NOW - DAY, "old": NOW - DAY - 1, "timeless": None}
    gone = [Remove(path=path, data_change=True, deletion_timestamp=time) for path, time in times.items()]
    references.add_removed(gone, NOW - DAY)
    names = ["x y", "x%20y", "b", "c", "source/d", "d", "e", *times]
    assert [name for name in names if references.leads_to(name)] == [
        *("x y", "x%20y", "b", "c", "source/d", "fresh", "timeless")
    ]


@given(st.lists(st.text(max_size=4), max_size=30), st.lists(st.text(max_size=4), max_size=10), st.integers(1, 5))
def test_names_are_found_whether_sealed_or_not(names: list[str], others: list[str], seal_at: int) -> None:
    hashed = HashedNames(seal_at)
    for name in names:
        hashed.add(name)
    assert bool(hashed) == bool(names)
    for name in [*names, *others]:
        assert (name in hashed) == (name in names)


@pytest.mark.parametrize(
    "configured,requested,override,expected",
    [
        (7 * DAY, None, False, 7 * DAY),
        (HOUR, None, False, MIN_RETENTION_MS),
        (HOUR, None, True, HOUR),
        (7 * DAY, 2 * DAY, False, 2 * DAY),
        (7 * DAY, MIN_RETENTION_MS, False, MIN_RETENTION_MS),
        (7 * DAY, HOUR, True, HOUR),
        (7 * DAY, 0, True, 0),
    ],
)
def test_retention(configured: int, requested: int | None, override: bool, expected: int) -> None:
    assert retention(configured, requested, override=override) == expected


@pytest.mark.parametrize("requested,override", [(MIN_RETENTION_MS - 1, False), (0, False), (-1, True)])
def test_retention_that_is_refused(requested: int, override: bool) -> None:
    with pytest.raises(RetentionTooShort, match="hours"):
        retention(7 * DAY, requested, override=override)


NAMES = st.lists(st.text(st.sampled_from("aZ0 %é+=-😀2F5"), min_size=1, max_size=6), min_size=1, max_size=3).map(
    "/".join
)


@given(NAMES, st.lists(NAMES, max_size=5), st.booleans(), st.booleans())
@example("0%2F", [], False, True)
@example("0%2F.", [], False, True)
def test_no_file_that_the_log_leads_to_is_ever_an_orphan(
    stored: str, others: list[str], encodes: bool, absolute: bool
) -> None:
    in_log = quote(stored) if encodes else stored
    if encodes and not absolute:
        assert path_key(in_log) == stored or check_new_path(in_log) is not None
    if absolute:
        in_log = "s3://bucket/table/" + in_log
    judged = plan(in_log, *others, retention_ms=0).orphans([old(stored)])
    assert judged.objects == ()


@given(st.lists(st.tuples(NAMES, st.integers(-2, 2)), max_size=8), st.lists(NAMES, max_size=4))
def test_only_old_unreferenced_data_goes(objects: list[tuple[str, int]], paths: list[str]) -> None:
    page = [DataObject(name, 1, NOW - DAY + offset) for name, offset in objects]
    judged = plan(*paths).orphans(page)
    assert len(judged.objects) + sum(judged.kept.values()) == len(page)
    for one in judged.objects:
        assert one.modified_ms < NOW - DAY
        assert one.path not in {path_key(path) for path in paths}
