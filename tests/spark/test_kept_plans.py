"""Reads of many files are kept: asked again for a version that was read, nothing is planned, and rows are the same."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

from tarnlog import Client, Reads, SnapshotInfo
from tarnlog.protocol.actions import Format, MetaData
from tarnlog_spark import Table, _kept_plans, _planned_index, _planning, _target
from tarnlog_spark._kept_plans import MOST_FILES, MOST_PLANS, KeptPlans, PlanKey, kept_plans, key_of
from tarnlog_spark._planning import Plan, PlanFilter
from tarnlog_spark._scanning import SCAN_CONF
from tarnlog_spark._storage import storage_at
from tests.service_process import ServiceProcess
from tests.spark.test_table import expected, numbers, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

META = MetaData(
    id="t", format=Format(), schema_string='{"type":"struct","fields":[]}', partition_columns=(), configuration={}
)


def key_to(filter_text: str | None = None, *, location: str = "/t", **changed: Any) -> PlanKey:
    wanted = None if filter_text is None else PlanFilter(filter_text)
    return key_of(storage_at(location), snapshot(**changed), wanted)


def key(number: int) -> PlanKey:
    return key_to(version=number)


def plan(files: int) -> Plan:
    return Plan(version=1, meta_data=META, listing=pa.table({"path": pa.nulls(files)}))


def snapshot(**changed: Any) -> SnapshotInfo:
    whole = SnapshotInfo(version=1, timestamp=2, meta_data=META, num_files=3, total_bytes=4)
    return msgspec.structs.replace(whole, **changed)


def test_the_plans_that_were_not_used_for_longest_go() -> None:
    kept = KeptPlans()
    for number in range(MOST_PLANS):
        kept.keep(key(number), plan(1000))
    assert kept.find(key(0)) is not None
    kept.keep(key(MOST_PLANS), plan(1000))
    assert [kept.find(key(number)) is not None for number in (0, 1, MOST_PLANS)] == [True, False, True]
    assert len(kept) == MOST_PLANS


def test_few_files_are_not_kept_and_very_many_neither() -> None:
    kept = KeptPlans()
    for files, there in ((999, False), (1000, True), (MOST_FILES, True), (MOST_FILES + 1, False)):
        kept.keep(key(files), plan(files))
        assert (kept.find(key(files)) is not None) == there
    assert len(kept) == 1, "all together are no more than the largest may be"


def test_what_tells_plans_apart() -> None:
    others: list[dict[str, Any]] = [{"version": 2}, {"timestamp": 3}, {"num_files": 4}, {"total_bytes": 5}]
    others += [{"meta_data": msgspec.structs.replace(META, id="u")}, {"location": "/moved"}]
    keys = {key_to(), key_to("id = 1"), *(key_to(**one) for one in others)}
    assert len(keys) == 2 + len(others)
    assert key_to("id = 1") in keys


def test_of_older_plans_the_newest_is_gone_on_from() -> None:
    kept = KeptPlans()
    for number in (3, 5, 9):
        kept.keep(key(number), plan(1000))
    kept.keep(key_to("id = 1", version=6), plan(1000))

    def before(wanted: PlanKey) -> int | None:
        found = kept.newest_before(wanted)
        return None if found is None else found[0].version

    assert [before(key(number)) for number in (3, 4, 9, 10)] == [None, 3, 5, 9]
    assert before(key_to("id = 1", version=7)) == 6
    assert before(key_to("id = 2", version=7)) is None
    assert before(key_to(version=7, meta_data=msgspec.structs.replace(META, id="u"))) is None
    assert before(key_to(version=7, location="/moved")) is None


@pytest.fixture
def table(
    spark: SparkSession, tarnlog_service: ServiceProcess, name: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Table]:
    """A table of two versions whose every read is kept."""
    monkeypatch.setattr(_kept_plans, "KEPT_FROM", 1)
    made = Table.for_name(spark, name, url=tarnlog_service.url)
    made.write(numbers(spark, 1, 2, 3), partition_by=["p"])
    made.write(numbers(spark, 4))
    yield made
    kept_plans._kept.pop(spark, None)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int | None, int]]:
    """Gets of each plan for a scan: its version, since which one the service tells it, and how many files come."""
    asked: list[tuple[int, int | None, int]] = []
    plan_arrow = Client.plan_arrow

    def ask(self: Client, *rest: Any, **options: Any) -> Any:
        found = plan_arrow(self, *rest, **options)
        if options.get("fields") is not None:  # a scan asks for some
            asked.append((found.version, None if found.since is None else found.since.version, found.files.num_rows))
        return found

    monkeypatch.setattr(Client, "plan_arrow", ask)
    return asked


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """Gets the version of each plan that is asked of the service."""
    asked: list[int | None] = []
    plan_arrow = Client.plan_arrow

    def ask(self: Client, *rest: Any, **options: Any) -> Any:
        asked.append(options.get("version"))
        return plan_arrow(self, *rest, **options)

    monkeypatch.setattr(Client, "plan_arrow", ask)
    return asked


def test_a_version_that_was_read_is_not_planned_again(
    spark: SparkSession, table: Table, planned: list[int | None]
) -> None:
    first = table.read()
    for _ in range(3):
        again = table.read()
        assert again.schema == first.schema
        assert rows_of(again) == rows_of(first) == expected(1, 2, 3, 4)
    assert planned == [2]
    assert rows_of(table.read(version=1)) == rows_of(table.read(version=1)) == expected(1, 2, 3)
    assert rows_of(table.read("p = 1")) == rows_of(table.read("p = 1")) == expected(1, 3)
    assert planned == [2, 1, 2]
    table.write(numbers(spark, 5))
    assert rows_of(table.read()) == expected(1, 2, 3, 4, 5)
    assert rows_of(again) == expected(1, 2, 3, 4), "a DataFrame stays at its version"
    assert rows_of(table.read(version=2)) == expected(1, 2, 3, 4)
    assert planned == [2, 1, 2, 3]


def location_of(rows: DataFrame) -> Any:
    return rows._jdf.queryExecution().analyzed().relation().location()


def files_of(rows: DataFrame) -> list[str]:
    """The files of a read as Spark's index lists them."""
    return sorted(location_of(rows).inputFiles())


@contextlib.contextmanager
def only_changes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No list of all files can be made."""
    with monkeypatch.context() as patched:
        patched.setattr(_target, "scan", None)
        yield


@pytest.fixture
def grown(spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch) -> Table:
    """With so many files that a change of one is little beside them: of ids 1 to 40. Every scan of it is an index."""
    monkeypatch.setattr(_planned_index, "WAIT_FROM", 0)
    table.write(numbers(spark, *range(5, 41)).repartition(20))
    return table


def test_a_newer_version_is_read_by_what_changed_since(
    spark: SparkSession, grown: Table, told: list[tuple[int, int | None, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appended to, overwritten in part, deleted from: every version is right, and so are those before it."""
    first = grown.read()
    assert rows_of(first) == expected(*range(1, 41))
    assert (told[0][1], "TarnlogPlannedFiles" in str(location_of(first).getClass())) == (None, True)
    grown.write(numbers(spark, 41, 42))
    with only_changes(monkeypatch):
        second = grown.read()
    grown.delete("id = 7")
    with only_changes(monkeypatch):
        third = grown.read()
    grown.write(numbers(spark, 43))
    with only_changes(monkeypatch):
        fourth = grown.read()
    assert [one[:2] for one in told] == [(3, None), (4, 3), (5, 4), (6, 5)]
    assert all(files < 10 for *_, files in told[1:])
    assert rows_of(fourth) == rows_of(grown.read()) == expected(*range(1, 7), *range(8, 44))
    assert rows_of(third) == expected(*range(1, 7), *range(8, 43))
    assert rows_of(second) == expected(*range(1, 43))
    assert rows_of(first) == expected(*range(1, 41)), "a DataFrame stays at its version"
    kept_plans._kept.pop(spark, None)
    assert files_of(fourth) == files_of(grown.read(version=6))
    assert int(location_of(fourth).sizeInBytes()) == int(location_of(grown.read(version=6)).sizeInBytes())


def test_what_changed_is_planned_by_the_filter_too(
    spark: SparkSession, grown: Table, told: list[tuple[int, int | None, int]]
) -> None:
    assert rows_of(grown.read("p = 1")) == expected(*range(1, 41, 2))
    grown.write(numbers(spark, 42))
    assert rows_of(grown.read("p = 1")) == expected(*range(1, 41, 2))
    grown.write(numbers(spark, 43))
    assert rows_of(grown.read("p = 1")) == expected(*range(1, 41, 2), 43)
    assert [one[1:] for one in told[1:]] == [(3, 0), (4, 1)]


OTHERS = ["another time", "other bytes", "another number of files", "another filter", "other columns"]


@pytest.mark.parametrize("what", OTHERS)
def test_changes_that_do_not_fit_are_not_used(
    spark: SparkSession, client: Client, grown: Table, told: list[tuple[int, int | None, int]], what: str
) -> None:
    """As those of a log that was put back to an older one and went on: then all is planned anew."""
    assert rows_of(grown.read()) == expected(*range(1, 41))
    grown.write(numbers(spark, 41))
    table_id = client.get_table(grown.name).id  # other tests of the session may have left plans of their tables
    ((key, plan),) = [one for one in kept_plans(spark)._plans.items() if one[0].table_id == table_id]
    other = KeptPlans()
    if what == "another time":
        key = msgspec.structs.replace(key, timestamp=key.timestamp + 1)
    elif what == "other bytes":
        key = msgspec.structs.replace(key, total_bytes=key.total_bytes + 1)
    elif what == "another number of files":
        assert plan.listing is not None
        plan.listing = plan.listing.slice(1)
    elif what == "another filter":
        plan.reads = Reads(paths=("x",))
    else:
        plan.meta_data = msgspec.structs.replace(plan.meta_data, schema_string='{"type":"struct","fields":[]}')
    other.keep(key, plan)
    kept_plans._kept[spark] = other
    assert rows_of(grown.read()) == expected(*range(1, 42))
    assert [one[1] for one in told] == [None, 3, None]


def test_a_table_that_was_moved_is_read_where_it_lies(
    spark: SparkSession, tmp_path: Path, start_service: Callable[..., ServiceProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warehouse may be moved as it is; its tables keep their ids, versions and times."""
    monkeypatch.setattr(_kept_plans, "KEPT_FROM", 1)
    monkeypatch.setattr(_planned_index, "WAIT_FROM", 0)
    service = start_service(tmp_path / "first")
    table = Table.for_name(spark, "t.moved", url=service.url)
    table.write(numbers(spark, *range(1, 11)).repartition(10))
    assert rows_of(table.read()) == expected(*range(1, 11))
    service.stop()
    (tmp_path / "first").rename(tmp_path / "second")
    table = Table.for_name(spark, "t.moved", url=start_service(tmp_path / "second").url)
    assert rows_of(table.read()) == expected(*range(1, 11)), "at the same version"
    table.write(numbers(spark, 11))
    assert rows_of(table.read()) == expected(*range(1, 12)), "and at a newer one"
    kept_plans._kept.pop(spark, None)


def test_an_older_scan_that_is_of_no_use_costs_a_whole_list(
    spark: SparkSession, grown: Table, caplog: pytest.LogCaptureFixture
) -> None:
    grown.read()
    grown.write(numbers(spark, 41))
    (plan,) = kept_plans(spark)._plans.values()
    plan.scanned = ("auto", spark)  # which py4j cannot hand over as a relation
    assert rows_of(grown.read()) == expected(*range(1, 42))
    assert caplog.text.count("all are listed anew") == 1
    assert "TarnlogPlannedFiles" in str(location_of(grown.read()).getClass()), "others still have an index"


def test_pieces_of_a_list_are_put_together_once_in_a_while(
    spark: SparkSession, grown: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_planning, "MOST_PIECES", 2)
    pieces = []
    for number in range(41, 45):
        grown.read()
        grown.write(numbers(spark, number))
        newest = max(kept_plans(spark)._plans.items(), key=lambda one: one[0].version)[1]
        assert newest.listing is not None
        pieces.append(newest.listing.column("path").num_chunks)
    assert max(pieces) == 2
    assert min(pieces[1:]) == 1
    assert rows_of(grown.read()) == expected(*range(1, 45))


def test_threads_share_what_is_kept(spark: SparkSession, grown: Table) -> None:
    """Readers of one session while it is written to: each read is of one version, and none loses or doubles a row."""
    ended = threading.Event()

    def read() -> int:
        seen = 0
        while True:
            done = ended.is_set()
            rows = rows_of(grown.read())
            last = max(int(row[0]) for row in rows)
            assert rows == expected(*range(1, last + 1))
            assert last >= seen
            seen = last
            if done:
                return seen

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            for number in range(41, 47):
                grown.write(numbers(spark, number))
        finally:
            ended.set()
        assert [reader.result(120) for reader in readers] == [46] * 3


def test_new_columns_are_planned_whole(
    spark: SparkSession, grown: Table, told: list[tuple[int, int | None, int]]
) -> None:
    grown.read()
    grown.write(numbers(spark, 41).selectExpr("*", "'new' AS more"), merge_schema=True)
    assert grown.read().where("more = 'new'").count() == 1
    assert grown.read().count() == 41
    assert [one[1] for one in told] == [None, None]


def test_tasks_of_python_read_what_changed_too(
    spark: SparkSession, grown: Table, told: list[tuple[int, int | None, int]]
) -> None:
    spark.conf.set(SCAN_CONF, "arrow")
    try:
        assert rows_of(grown.read()) == expected(*range(1, 41))
        grown.delete("id = 7")
        assert rows_of(grown.read()) == expected(*range(1, 7), *range(8, 41))
    finally:
        spark.conf.unset(SCAN_CONF)
    assert rows_of(grown.read()) == expected(*range(1, 7), *range(8, 41)), "its list is whole"
    assert [one[1] for one in told] == [None, 3]


def test_two_reads_are_two_dataframes(table: Table, planned: list[int | None]) -> None:
    left, right = table.read(), table.read()
    assert planned == [2]
    pairs = left.join(right, left["id"] == right["id"] + 1).select(left["id"], right["id"])
    assert rows_of(pairs) == Counter([(2, 1), (3, 2), (4, 3)])
    assert rows_of(left.union(right)) == expected(1, 2, 3, 4) + expected(1, 2, 3, 4)
    places = [frame.select("_metadata.file_path").distinct().count() for frame in (left, right)]
    assert places == [table.detail().collect()[0].numFiles] * 2


def test_a_session_that_scans_in_another_way_does(spark: SparkSession, table: Table, planned: list[int | None]) -> None:
    def way() -> str:
        rows = table.read()
        assert rows_of(rows) == expected(1, 2, 3, 4)
        return str(rows._jdf.queryExecution().analyzed().nodeName())

    assert way() == way() == "LogicalRelation", "Spark's own reader, and held for the next"
    spark.conf.set(SCAN_CONF, "arrow")
    try:
        assert "LogicalRelation" not in way()
    finally:
        spark.conf.unset(SCAN_CONF)
    assert way() == "LogicalRelation"
    assert planned == [2]


def test_a_table_that_was_made_anew_is_planned_anew(
    spark: SparkSession, table: Table, tarnlog_service: ServiceProcess, planned: list[int | None]
) -> None:
    assert rows_of(table.read()) == expected(1, 2, 3, 4)
    with Client(tarnlog_service.url) as client:
        client.drop_table(table.name)
    anew = Table.for_name(spark, table.name, url=tarnlog_service.url)
    anew.write(numbers(spark, 7), partition_by=["p"])
    anew.write(numbers(spark, 8))
    assert rows_of(table.read()) == expected(7, 8)
    assert planned == [2, 2]


def test_each_session_keeps_its_own(spark: SparkSession, table: Table) -> None:
    other = spark.newSession()
    table.read()
    assert len(kept_plans(spark)) == 1
    assert len(kept_plans(other)) == 0


def test_a_read_has_classes_compiled_while_it_asks_for_what_a_scan_needs(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []
    plan_arrow = Client.plan_arrow

    def ask(self: Client, *rest: Any, **options: Any) -> Any:
        found = plan_arrow(self, *rest, **options)
        done.append(found.files.schema.names)
        return found

    monkeypatch.setattr(Client, "plan_arrow", ask)
    monkeypatch.setattr(_target, "prepare", done.append)
    needed = ["path", "partitionValues", "size", "modificationTime", "tags"]
    assert rows_of(table.read()) == expected(1, 2, 3, 4)
    assert done == [spark, needed]
    spark.conf.set(SCAN_CONF, "arrow")
    try:
        assert rows_of(table.read(version=1)) == expected(1, 2, 3)
    finally:
        spark.conf.unset(SCAN_CONF)
    assert done == [spark, needed, needed], "tasks of Python need no classes"
