"""A table under every session setting that changes meaning, against plain Spark under the same settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F  # noqa: N812 (Spark's own convention)

from tarnlog import Client, TarnlogError
from tarnlog_spark import Table
from tarnlog_spark._scanning import SCAN_CONF
from tarnlog_spark._staging import WRITE_CONF
from tests.conftest import LONG
from tests.service_process import ServiceProcess
from tests.spark.oracle import Shape, check_same, counted
from tests.spark.oracle_settings import COMMON, NARROW, ROWS, SESSIONS, Session
from tests.spark.oracle_steps import FORMAT, Delete, Step, Update, configured

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WAYS = ("native", "arrow", FORMAT)
PUSHED = {"spark.sql.python.filterPushdown.enabled": "true"}
NEW_DATES = {"spark.sql.datetime.java8API.enabled": "true"}
"""Without it Spark's reader of Parquet, of any file, loses rows with days that the old calendar lacked (1582-10-05 to
1582-10-14) where a filter names such a day."""


@contextmanager
def session_of(spark: SparkSession, confs: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session of its own with these settings, active while it is used: the others keep theirs, however this ends."""
    made: Any = spark.newSession()
    for key, value in confs.items():
        made.conf.set(key, value)
    sessions = made._jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(made._jsparkSession)
    try:
        yield made
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


class Compared:
    """A table, and the rows that it should have."""

    def __init__(self, session: SparkSession, url: str, name: str, shape: Shape, rows: list[Any]) -> None:
        self._session, self._url, self._shape = session, url, shape
        self.table = Table.create(session, name, shape.ddl, partition_by=shape.partitions, url=url)
        half = len(rows) // 2
        self.table.write(shape.frame(session, rows[:half]), writer="native" if shape is NARROW else "auto")
        self.table.write(shape.frame(session, rows[half:]), writer="arrow")
        self._rows = shape.collected(shape.frame(session, rows))

    @property
    def expected(self) -> DataFrame:
        return self._shape.frame(self._session, self._rows)

    def take(self, step: Step, *, writer: str = "auto", way: str = "native") -> None:
        """Do a step, and compare the rows after it. What Spark refuses is refused."""
        try:
            after = self._shape.collected(step.on_rows(self.expected))
        except PySparkException as error:
            self._refuse(step, error)
            return
        with configured(self._session, {WRITE_CONF: writer}):
            step.on_table(self.table, self._url)
        self._rows = after
        self.check(way, str(step))

    def _refuse(self, step: Step, reason: PySparkException) -> None:
        before = self.table.version
        try:
            step.on_table(self.table, self._url)
        except (PySparkException, TarnlogError):
            assert self.table.version == before, f"{step} was refused, and did something"
        else:
            raise AssertionError(f"{step} was done, and plain Spark refuses it: {reason}")

    def check(self, way: str, after: str) -> None:
        found = counted(self._shape.collected(self._read(way)))
        check_same(found, counted(self._rows), f"{after}\nread by {way}")

    def check_feed(self) -> None:
        """The rows that the change feed adds and removes, together, are the rows."""
        feed = self.table.changes(0)
        kinds = [feed.where(F.col("_change_type") == kind) for kind in ("insert", "delete")]
        added, removed = (counted(self._shape.collected(rows.select(*self.expected.columns))) for rows in kinds)
        check_same(removed - added, Counter(), "the rows that the feed removes and never added")
        check_same(added - removed, counted(self._rows), "the rows of the feed")

    def check_filters(self, filters: tuple[str, ...], way: str) -> None:
        """Each filter gives the rows of plain Spark, or is refused as there. Rows are told apart by their keys."""
        taken = [text for text in filters if self._takes(text, way)]
        if not taken:
            return
        found = [self._read(way, text).select("k") for text in taken]
        try:  # one job for all of them; only where it differs, or fails, one for each
            if self._chosen(taken) == _numbered(found):
                return
        except PySparkException:
            pass
        for text, keys in zip(taken, found, strict=True):
            try:
                expected = self._chosen([text])
            except PySparkException:
                continue  # at one of the rows; files without it may be left out
            check_same(_numbered([keys]), expected, f"{text}\nread by {way}")

    def _takes(self, text: str, way: str) -> bool:
        """Whether plain Spark takes the filter. What it does not, a read must refuse."""
        try:
            self.expected.where(text)
        except AnalysisException as reason:
            try:
                self._read(way, text).collect()
            except (PySparkException, TarnlogError):
                return False
            raise AssertionError(f"{text} was taken, and plain Spark refuses it: {reason}") from None
        return True

    def _chosen(self, filters: list[str]) -> Counter[str]:
        """The keys of the rows that plain Spark chooses, each with the number of its filter."""
        asked = self.expected.selectExpr("k", *(f"({text}) AS f{n}" for n, text in enumerate(filters)))
        return counted([(n, row["k"]) for row in asked.collect() for n in range(len(filters)) if row[f"f{n}"]])

    def _read(self, way: str, text: str | None = None) -> DataFrame:
        if way == FORMAT:
            options = {"url": self._url, **({} if text is None else {"pushFilters": "true"})}
            rows = self._session.read.format("tarnlog").options(**options).load(self.table.name)
            return rows if text is None else rows.where(text)
        with configured(self._session, {SCAN_CONF: way}):
            return self.table.read(text)


def _numbered(frames: list[DataFrame]) -> Counter[str]:
    """The keys of several DataFrames, each with the number of its own, by one job."""
    numbered = [frame.select(F.lit(n), "k") for n, frame in enumerate(frames)]
    return counted(reduce(lambda one, other: one.union(other), numbered).collect())


@pytest.mark.parametrize("chosen", SESSIONS, ids=str)
def test_a_table_is_plain_spark_under_these_settings(
    spark: SparkSession, tarnlog_service: ServiceProcess, name: str, chosen: Session
) -> None:
    with session_of(spark, chosen.confs) as session:
        compared = Compared(session, tarnlog_service.url, name, chosen.shape, chosen.rows)
        some = COMMON[SESSIONS.index(chosen) % 3 :: 3]  # a run with --long has them all everywhere
        compared.check_filters((*some, *chosen.filters), "native")
        for number, step in enumerate(chosen.steps):
            compared.take(step, writer=("auto", "arrow")[number % 2])
        for confs in chosen.reads:
            with configured(session, confs):
                compared.check("native", str(confs))
        compared.check("arrow", "all steps")
        compared.check_feed()
        if chosen.pushed is None:
            compared.check(FORMAT, "all steps")
        else:
            with configured(session, PUSHED):
                compared.check_filters((chosen.pushed,), FORMAT)


@pytest.mark.skipif(not LONG, reason="many examples, each of several Spark jobs: with --long")
@pytest.mark.timeout(14_400)
@settings(
    max_examples=300,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_a_table_is_plain_spark_under_any_settings(
    spark: SparkSession, tarnlog_service: ServiceProcess, names: Callable[[], str], data: st.DataObject
) -> None:
    """Settings of two entries together, with any rows, filters and steps of either, in any order and way to write."""
    one = data.draw(st.sampled_from(SESSIONS), "session")
    other = data.draw(st.sampled_from([entry for entry in SESSIONS if entry.shape is one.shape]), "other")
    keys = sorted({**one.confs, **other.confs})
    kept = data.draw(st.sets(st.sampled_from(keys)) if keys else st.just(set()), "kept")
    confs = {key: value for key, value in {**one.confs, **other.confs}.items() if key in kept}
    zone = data.draw(st.sampled_from(["UTC", "America/Los_Angeles", "Asia/Kathmandu"]), "zone")
    rows = data.draw(st.lists(st.sampled_from(one.rows), min_size=2, max_size=10, unique_by=lambda row: row[0]), "rows")
    filters = st.lists(st.sampled_from((*COMMON, *one.filters, *other.filters)), min_size=4, max_size=8, unique=True)
    steps = data.draw(st.permutations([*one.steps, *(other.steps if other is not one else ())]), "steps")[:4]
    with session_of(spark, {**confs, **NEW_DATES, "spark.sql.session.timeZone": zone}) as session:
        compared = Compared(session, tarnlog_service.url, names(), one.shape, rows)
        way = data.draw(st.sampled_from(["native", "arrow"]), "way")
        compared.check_filters(tuple(data.draw(filters, "filters")), way)
        for step in steps:
            if _fails_at_a_row(compared.expected, step):
                continue
            writer = data.draw(st.sampled_from(["auto", "arrow"]), "writer")
            compared.take(step, writer=writer, way=data.draw(st.sampled_from(WAYS), "read"))
        compared.check_feed()


def _fails_at_a_row(rows: DataFrame, step: Step) -> bool:
    """Whether the condition itself fails: then it is not decided which files are asked at all."""
    condition = getattr(step, "condition", "true")
    try:
        found = rows.where(condition)
    except AnalysisException:
        return False
    try:
        found.collect()
    except PySparkException:
        return True
    return False


# Controls: a connector that is broken on purpose does not pass.


def test_the_comparison_finds_a_plan_that_leaves_out_a_file(
    spark: SparkSession, tarnlog_service: ServiceProcess, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = Compared(spark, tarnlog_service.url, name, NARROW, ROWS[:4])
    plan = Client.plan_arrow

    def short(client: Client, *args: Any, **options: Any) -> Any:
        found = plan(client, *args, **options)
        return found if found.filter is None else msgspec.structs.replace(found, files=found.files.slice(1))

    monkeypatch.setattr(Client, "plan_arrow", short)
    with pytest.raises(AssertionError, match=r"missing: \{['\"]"):
        compared.check_filters(("i > 0",), "native")
    with pytest.raises(AssertionError, match=r"too many: \{['\"]"):
        compared.take(Delete("part = 'a'"))


def test_the_comparison_finds_wrong_assignments(
    spark: SparkSession, tarnlog_service: ServiceProcess, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members of a struct by position, and a value that does not fit as a null."""
    update, rows = Table.update, ROWS[:2]
    wrong = {
        "st": "named_struct('a', st.b, 'b', st.a, 'c', st.c)",
        "i": "try_cast(k + 3000000000 AS int)",
    }
    monkeypatch.setattr(
        Table, "update", lambda table, values, *args: update(table, {key: wrong[key] for key in values}, *args)
    )
    compared = Compared(spark, tarnlog_service.url, name, NARROW, rows)
    with pytest.raises(AssertionError, match="was done, and plain Spark refuses it"):
        compared.take(Update({"i": "k + 3000000000"}, "k = 0"))
    compared = Compared(spark, tarnlog_service.url, f"{name}_2", NARROW, rows)
    with pytest.raises(AssertionError, match=r"too many: \{['\"]"):
        compared.take(Update({"st": "named_struct('b', st.b, 'a', st.a, 'c', st.c)"}, "k = 0"))


def test_the_comparison_finds_a_condition_of_another_session(
    spark: SparkSession, tarnlog_service: ServiceProcess, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text in double quotes as text, where the session takes it for a column."""
    delete = Table.delete
    monkeypatch.setattr(Table, "delete", lambda table, text: delete(table, text.replace('"part"', "'part'")))
    with session_of(spark, {"spark.sql.ansi.doubleQuotedIdentifiers": "true"}) as session:
        compared = Compared(session, tarnlog_service.url, name, NARROW, ROWS[:2])
        with pytest.raises(AssertionError, match=r"too many: \{['\"]"):
            compared.take(Delete("\"part\" = 'a'"))


def test_settings_do_not_outlive_their_session(spark: SparkSession) -> None:
    key = "spark.sql.ansi.enabled"
    with pytest.raises(ZeroDivisionError), session_of(spark, {key: "false"}) as session:
        with pytest.raises(ZeroDivisionError), configured(session, {key: "true"}):
            raise ZeroDivisionError
        assert session.conf.get(key) == "false"
        raise ZeroDivisionError
    assert spark.conf.get(key) == "true"
    assert type(spark).active().conf.get(key) == "true"
