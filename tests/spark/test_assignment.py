"""Values that updates and merges set: members by name, types by Spark's store assignment, and names of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import types as T  # noqa: N812 (Spark's own convention)

from tarnlog import InvalidRequest
from tarnlog_spark import SchemaMismatch, Table
from tarnlog_spark._fitting import _ANSI, _STRICT, _fault
from tarnlog_spark._scanning import SCAN_CONF
from tarnlog_spark._store_assignment import POLICY_CONF, assigns
from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAIR = T.StructType([T.StructField("a", T.IntegerType()), T.StructField("b", T.IntegerType())])
NEEDED = T.StructType([T.StructField("a", T.IntegerType(), False)])
PLAIN = [
    T.BooleanType(),
    T.ByteType(),
    T.IntegerType(),
    T.LongType(),
    T.FloatType(),
    T.DoubleType(),
    T.DecimalType(10, 2),
    T.StringType(),
    T.BinaryType(),
    T.DateType(),
    T.TimestampType(),
    T.TimestampNTZType(),
]

Make = Callable[[str], Table]


@pytest.fixture
def make(spark: SparkSession, tarnlog_service: ServiceProcess, names: Callable[[], str]) -> Make:
    """Makes empty tables."""
    return lambda ddl: Table.create(spark, names(), ddl, url=tarnlog_service.url)


@pytest.fixture
def confs(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Sets settings of the session until the test ends."""
    before: dict[str, str | None] = {}

    def change(key: str, value: str) -> None:
        before.setdefault(key, spark.conf.get(key, None))
        spark.conf.set(key, value)

    yield change
    for key, value in before.items():
        spark.conf.unset(key) if value is None else spark.conf.set(key, value)


def rows_of(rows: DataFrame) -> list[Any]:
    return sorted(tuple(row) for row in rows.collect())


@pytest.mark.parametrize(
    "given, wanted, ansi, strict",
    [
        (T.LongType(), T.IntegerType(), None, "the value is bigint, the table int"),
        (T.IntegerType(), T.LongType(), None, None),
        (T.StringType(), T.IntegerType(), *["the value is string, the table int"] * 2),
        (T.IntegerType(), T.StringType(), None, "the value is int, the table string"),
        (T.BooleanType(), T.IntegerType(), *["the value is boolean, the table int"] * 2),
        (T.DateType(), T.TimestampType(), None, "the value is date, the table timestamp"),
        (T.LongType(), T.TimestampType(), *["the value is bigint, the table timestamp"] * 2),
        (T.ArrayType(T.StringType()), T.StringType(), *["the value is array<string>, the table string"] * 2),
        (T.NullType(), PAIR, None, None),
        (T.ArrayType(T.NullType()), T.ArrayType(PAIR), None, None),
        (T.StructType(list(reversed(PAIR.fields))), PAIR, None, None),
        (T.StructType([T.StructField("B", T.IntegerType())]), PAIR, None, None),
        (PAIR.add("c", T.IntegerType()), T.StructType(PAIR.fields[:2]), *["the table has no member c"] * 2),
        (
            T.StructType([T.StructField("a", T.IntegerType()), T.StructField("A", T.IntegerType())]),
            NEEDED,
            *["the member A is there twice (case does not count)"] * 2,
        ),
        (
            T.MapType(PAIR, T.IntegerType()),
            T.MapType(NEEDED, T.IntegerType()),
            *["the table has no member key.b"] * 2,
        ),
        (
            T.ArrayType(T.StructType([T.StructField("a", T.IntegerType())])),
            T.ArrayType(NEEDED),
            *["the member element.a may be null, and the table allows no null there"] * 2,
        ),
        (
            T.StructType([]),
            NEEDED,
            *["the member a is missing, and the table allows no null there"] * 2,
        ),
    ],
)
def test_what_may_be_assigned(given: T.DataType, wanted: T.DataType, ansi: str | None, strict: str | None) -> None:
    assert _fault(given, wanted, "", _ANSI) == ansi
    assert _fault(given, wanted, "", _STRICT) == strict


def test_the_rules_for_plain_types_are_sparks(spark: SparkSession) -> None:
    """Spark's own function decides the same for each pair of types."""
    own: Any = spark
    java = [own._jsparkSession.parseDataType(kind.json()) for kind in PLAIN]
    can = own._jvm.org.apache.spark.sql.catalyst.expressions.Cast.canANSIStoreAssign
    for (one, given), (two, wanted) in product(enumerate(PLAIN), repeat=2):
        if one != two:
            assert assigns(given, wanted) == can(java[one], java[two]), (given, wanted)


def test_members_of_structs_go_by_name(spark: SparkSession, make: Make) -> None:
    pair = "struct<a: int, b: int>"
    table = make(f"id long, s {pair}, l array<array<{pair}>>, m map<{pair}, {pair}>")
    swapped = "named_struct('b', 2L, 'A', 1)"
    sets = {"s": swapped, "l": f"array(array({swapped}))", "m": f"map({swapped}, named_struct('b', 2))"}
    right = ((1, 2), [[(1, 2)]], {(1, 2): (None, 2)})
    table.write(spark.sql("select 1L id"))
    table.update(sets)
    columns = [f"{value} AS {name}" for name, value in sets.items()]
    source = spark.range(1, 4).selectExpr("id", *columns).where("id < 4").repartition(1)
    assert rows_of(table.read()) == [(1, *right)]
    table.update(dict.fromkeys(sets, "null"))
    merge = table.merge(source.where("id < 3"), "target.id = source.id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert rows_of(table.read()) == [(1, *right), (2, *right)]
    table.update(dict.fromkeys(sets, "null"))
    merge = table.merge(source, "target.id = source.id").when_not_matched_insert({"id": "source.id", **sets})
    merge.when_matched_update({name: f"source.{name}" for name in sets}).execute()
    assert rows_of(table.read()) == [(number, *right) for number in (1, 2, 3)]
    with pytest.raises(SchemaMismatch, match="s: the table has no member c"):
        table.update({"s": "named_struct('a', 1, 'b', 2, 'c', 3)"})


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_value_that_does_not_fit_is_an_error(spark: SparkSession, make: Make, confs: Any, ansi: str) -> None:
    confs("spark.sql.ansi.enabled", ansi)
    table = make("id long, n int, f float, d decimal(5, 2), t string, l array<struct<a: int>>")
    table.write(spark.sql("select 1L id, 7 n"))
    misfits = [
        ("n", "3000000000", r"n: 3000000000 \(bigint\) does not fit int\."),
        ("n", "double('NaN')", r"n: NaN \(double\) does not fit int"),
        ("f", "double('1e300')", r"f: 1.0E300 \(double\) does not fit float"),
        ("d", "id * 1000", r"d: 1000 \(bigint\) does not fit decimal\(5,2\)"),
        ("l", "array(named_struct('a', id + 3000000000))", r"l: 3000000001 \(bigint\) does not fit int at element.a"),
        ("n", "'abc'", r"n: the value is string, the table int\. .*CAST"),
        ("n", "current_date()", "n: the value is date, the table int"),
    ]
    for column, value, sentence in misfits:
        with pytest.raises(SchemaMismatch, match=sentence):
            table.update({column: value})
    source = spark.sql("select 1L id, 3000000000 n union all select 2L, 3000000000")
    for clause in ("when_matched_update_all", "when_not_matched_insert_all"):
        with pytest.raises(SchemaMismatch, match=r"n: 3000000000 \(bigint\) does not fit int"):
            getattr(table.merge(source, "target.id = source.id"), clause)().execute()
    with pytest.raises(SchemaMismatch, match="n: the value is string"):
        table.merge(source, "false").when_not_matched_insert({"n": "'7'"}).execute()
    assert table.version == 1
    # Only values that are set count; what fits is stored as Spark stores it.
    table.update({"n": "3000000000"}, "id = 2")
    table.update({"n": "double(-1.9)", "f": "double('Infinity')", "d": "1.005", "t": "id", "l": "array()"})
    assert rows_of(table.read()) == [(1, -1, float("inf"), Decimal("1.01"), "1", [])]
    confs(POLICY_CONF, "LEGACY")
    with pytest.raises(SchemaMismatch, match="does not fit int"):
        table.update({"n": "3000000000"})
    confs(POLICY_CONF, "STRICT")
    with pytest.raises(SchemaMismatch, match="n: the value is bigint, the table int"):
        table.update({"n": "7L"})
    table.update({"n": "7S", "t": "'x'"})
    assert rows_of(table.read().select("n", "t")) == [(7, "x")]


@pytest.mark.parametrize("way", ["auto", "arrow"])
def test_nulls_where_none_are_allowed_are_refused(spark: SparkSession, make: Make, confs: Any, way: str) -> None:
    confs(SCAN_CONF, way)
    table = make("id long not null, v string, s struct<a: int not null, b: int>")
    table.write(spark.sql("select 1L id, 'x' v, named_struct('a', 1, 'b', 2) s"))
    with pytest.raises(SchemaMismatch, match="id: null where the table allows none"):
        table.update({"id": "nullif(id, 1)"})
    with pytest.raises(SchemaMismatch, match="s: the member a may be null"):
        table.update({"s": "named_struct('a', cast(null as int))"})
    with pytest.raises(SchemaMismatch, match="id: it is not set, and the table allows no null there"):
        table.merge(spark.range(1), "false").when_not_matched_insert({"v": "'y'"}).execute()
    assert table.version == 1
    table.update({"s": "named_struct('b', 3, 'a', 4)", "id": "id + 1"})
    table.merge(spark.range(1), "false").when_not_matched_insert({"id": "9", "s": "named_struct('a', 5)"}).execute()
    assert rows_of(table.read()) == [(2, "x", (4, 3)), (9, None, (5, None))]


def test_columns_are_set_by_their_exact_names(spark: SparkSession, make: Make) -> None:
    table = make("`a``b` int, `x` int, ```x``` int, `a.b` int, st struct<a: int>")
    table.write(spark.sql("select 0 `a``b`, 0 `x`, 0 ```x```, 0 `a.b`, named_struct('a', 0) st"))
    table.update({"a`b": "1", "`x`": "2", "X": "3", "`a.b`": "4"})
    assert rows_of(table.read()) == [(1, 3, 2, 4, (0,))]
    table.update({"`a``b`": "5", "```x```": "6", "a.b": "7"})
    assert rows_of(table.read()) == [(5, 3, 6, 7, (0,))]
    with pytest.raises(InvalidRequest, match=r"'st\.a' is a member of 'st'.* a struct of all its members"):
        table.update({"st.a": "1"})
    with pytest.raises(InvalidRequest, match="'x' is set twice"):
        table.update({"x": "1", "X": "2"})


def test_names_that_the_connector_uses_too(spark: SparkSession, make: Make) -> None:
    names = ["_metadata", "_tarnlog_row", "_TARNLOG_FILE", "_tarnlog_in_source", "_tarnlog_drop", "_tarnlog_order"]
    table = make(", ".join(["id long", *(f"{name} string" for name in names)]))
    rows = spark.range(3).selectExpr("id", *(f"concat('{name}', id) AS {name}" for name in names)).repartition(1)
    table.write(rows)
    table.delete("_metadata = '_metadata0' AND _tarnlog_row IS NOT NULL")
    table.update({"_metadata": "_tarnlog_file", "_tarnlog_row": "'set'"}, "_tarnlog_order = '_tarnlog_order1'")
    twice = rows.where("id > 0").selectExpr("id", "_tarnlog_drop", "_tarnlog_in_source")
    source = twice.union(twice.selectExpr("id", "'no'", "_tarnlog_in_source")).union(
        twice.selectExpr("id + 2", "'2'", "'2'")
    )
    merge = table.merge(source, "target.id = source.id")
    merge.when_matched_update({"_tarnlog_in_source": "source._tarnlog_drop"}, "source._tarnlog_drop != 'no'")
    merge.when_not_matched_insert_all().execute()
    assert [(row[0], *row[1:3], row[4]) for row in rows_of(table.read().na.fill("null"))] == [
        (1, "_TARNLOG_FILE1", "set", "_tarnlog_drop1"),
        (2, "_metadata2", "_tarnlog_row2", "_tarnlog_drop2"),
        (3, "null", "null", "2"),
        (4, "null", "null", "2"),
    ]
    assert table.changes(2).where("_change_type = 'delete' AND _tarnlog_file = '_TARNLOG_FILE0'").count() == 1
    feed = make("id long, _Change_type string")
    feed.write(spark.sql("select 1L id"))
    with pytest.raises(InvalidRequest, match="has a column _Change_type, and the change feed adds one"):
        feed.changes(0)


def test_errors_name_no_column_of_the_connector(spark: SparkSession, make: Make) -> None:
    table = make("id long")
    table.write(spark.range(2))
    merge = table.merge(spark.range(1), "target.id = source.id")
    wrong: list[Callable[[], Any]] = [
        lambda: table.delete("_tarnlog_rov = 1"),
        lambda: table.update({"id": "_tarnlog_rov"}),
        lambda: table.update({"id": "1"}, "_tarnlog_row = 1"),
        lambda: table.merge(spark.range(1), "_tarnlog_rov = 1").when_matched_delete().execute(),
        lambda: merge.when_matched_delete("_tarnlog_in_source").execute(),
    ]
    for attempt in wrong:
        with pytest.raises(AnalysisException) as error:
            attempt()
        suggested = str(error.value).partition("Did you mean")[2]
        assert "_tarnlog" not in suggested.partition("SQLSTATE")[0], str(error.value)
    assert table.version == 1


def test_names_that_differ_in_case_alone(spark: SparkSession, make: Make, confs: Any) -> None:
    confs("spark.sql.caseSensitive", "true")
    table = make("id long, N int")
    table.write(spark.sql("select 1L ID, 2 n"))
    table.update({"n": "N + 1"}, "id = 1")
    assert rows_of(table.read()) == [(1, 3)]
    both = spark.sql("select 1L id, 7 n, 8 N")
    with pytest.raises(SchemaMismatch, match="there twice"):
        table.write(both)
    for clause in ("when_matched_update_all", "when_not_matched_insert_all"):
        with pytest.raises(InvalidRequest, match="'N' is set twice"):
            getattr(table.merge(both, "target.id = source.id"), clause)().execute()
    table.merge(both, "target.id = source.id").when_matched_update({"N": "source.n"}).execute()
    assert rows_of(table.read()) == [(1, 7)]
    with pytest.raises(AnalysisException, match="`n`"):
        table.delete("n = 7")
