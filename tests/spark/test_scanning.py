"""Scans of exactly the planned files: the contract with Spark's file sink log, and the same rows by both ways."""

from __future__ import annotations

import json
import pickle
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarnlog import InvalidRequest
from tarnlog.protocol.actions import Add
from tarnlog_spark import _manifests, _planned_index, _scanning
from tarnlog_spark._manifests import manifest, write_manifest
from tarnlog_spark._options import Splits
from tarnlog_spark._planned_index import changed, indexed
from tarnlog_spark._scan_lists import list_of_adds, list_of_plan
from tarnlog_spark._scanning import FILE, ROW, SCAN_CONF, file_place, scan, scan_again, scan_rows, scanned
from tarnlog_spark._storage import Storage, storage_at
from tests.spark.oracle_steps import configured

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def schema_of(spark: SparkSession, ddl: str) -> StructType:
    return spark.createDataFrame([], ddl).schema


def put(folder: Path, name: str, table: pa.Table, **fields: Any) -> Add:
    """A data file below the folder, and the entry that the log would have."""
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, place)
    values: dict[str, Any] = {
        "partition_values": {},
        "size": place.stat().st_size,
        "modification_time": 0,
        "data_change": True,
    }
    return Add(path=quote(name), **(values | fields))


@pytest.fixture(params=["native", "indexed", "arrow"])
def way(spark: SparkSession, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Spark's own reader by a manifest, the same by an index, and pyarrow."""
    spark.conf.set(SCAN_CONF, "arrow" if request.param == "arrow" else "native")
    monkeypatch.setattr(_planned_index, "WAIT_FROM", 0)
    if request.param == "native":
        monkeypatch.setattr(_scanning, "indexed", lambda *_: None)
    yield str(request.param)
    spark.conf.unset(SCAN_CONF)


def location_of(rows: DataFrame) -> str:
    """The class by which Spark knows the files of a scan."""
    relation: Any = cast(Any, rows)._jdf.queryExecution().analyzed().relation()
    return str(relation.location().getClass().getName())


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return storage_at((tmp_path / "a table ü%20").as_uri())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "a table ü%20"


def listed(folder: Path, *files: tuple[str, int, int]) -> str:
    """A manifest below the folder."""
    columns = [[file[place] for file in files] for place in range(3)]
    kinds = (pa.string(), pa.int64(), pa.int64())
    arrays = (pa.chunked_array([values], kind) for values, kind in zip(columns, kinds, strict=True))
    return write_manifest(manifest(*arrays), parent=str(folder))


def test_the_form_of_a_manifest(tmp_path: Path) -> None:
    """Golden: what Spark's own file sink writes, but for the values."""
    folder = listed(tmp_path, ("file:///a%20b/%C3%BC%25.parquet", 7, 5), ("s3a://b/x%20y", 1, 0))
    rest = '"isDir":false,"modificationTime":%d,"blockReplication":1,"blockSize":134217728,"action":"add"}'
    assert (Path(folder) / "_spark_metadata" / "0").read_text().split("\n") == [
        "v1",
        '{"path":"file:///a%20b/%C3%BC%25.parquet","size":7,' + rest % 5,
        '{"path":"s3a://b/x%20y","size":1,' + rest % 0,
    ]


def test_spark_still_writes_that_form(spark: SparkSession, tmp_path: Path) -> None:
    """The contract: a stream of this Spark writes the log that our manifests imitate."""
    out = tmp_path / "out"
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    first, *entries = (out / "_spark_metadata" / "0").read_text().split("\n")
    ours = listed(tmp_path, ("file:///x", 1, 0))
    expected = json.loads((Path(ours) / "_spark_metadata" / "0").read_text().split("\n")[1])
    assert first == "v1"
    assert entries
    assert all(json.loads(entry).keys() == expected.keys() for entry in entries)


def test_exactly_the_planned_files_are_read(spark: SparkSession, way: str, storage: Storage, folder: Path) -> None:
    names = ["p=a%20b/x y.parquet", "p=ü/100%.parquet", "left out.parquet", "p=%253D/[a]{b}*?.parquet"]
    adds = [put(folder, name, pa.table({"id": [number]})) for number, name in enumerate(names)]
    rows = scan(spark, storage, list_of_adds([adds[0], adds[1], adds[3]]), schema_of(spark, "id long"))
    assert sorted(row.id for row in rows.collect()) == [0, 1, 3]


def test_no_files_are_no_rows(spark: SparkSession, way: str, storage: Storage) -> None:
    rows = scan(spark, storage, list_of_adds([]), schema_of(spark, "id long, s string"))
    assert (rows.count(), rows.columns) == (0, ["id", "s"])


def test_absent_columns_are_null_and_numbers_widen(
    spark: SparkSession, way: str, storage: Storage, folder: Path
) -> None:
    old = pa.table(
        {
            "id": pa.array([1, None], pa.int32()),
            "f": pa.array([0.5, None], pa.float32()),
            "s": pa.array([{"x": 1}, None], pa.struct([("x", pa.int64())])),
        }
    )
    adds = [put(folder, "old", old)]
    schema = schema_of(spark, "new string, id long, f double, s struct<x: bigint, y: string>")
    rows = scan(spark, storage, list_of_adds(adds), schema).collect()
    assert [(row.new, row.id, row.f, row.s and (row.s.x, row.s.y)) for row in rows] == [
        (None, 1, 0.5, (1, None)),
        (None, None, None, None),
    ]


def test_rows_have_a_place(spark: SparkSession, way: str, storage: Storage, folder: Path) -> None:
    adds = [put(folder, name, pa.table({"id": [7, 8, 9]})) for name in ("a b.parquet", "c=ü%/d%20.parquet")]
    found = scan_rows(spark, storage, list_of_adds(adds), schema_of(spark, "id long")).collect()
    places = {storage.path(add.path) for add in adds}
    assert {(file_place(row[FILE]), row[ROW], row.id) for row in found} == {
        (place, row, 7 + row) for place in places for row in range(3)
    }


def test_a_file_that_is_gone_fails_the_read(spark: SparkSession, way: str, storage: Storage, folder: Path) -> None:
    adds = [put(folder, name, pa.table({"id": [1]})) for name in ("here", "gone")]
    (folder / "gone").unlink()
    with pytest.raises(Exception, match="gone"):
        scan(spark, storage, list_of_adds(adds), schema_of(spark, "id long")).collect()


def test_a_session_does_not_decide_the_reader(spark: SparkSession, way: str, storage: Storage, folder: Path) -> None:
    """Spark's newer reader of Parquet does not know the place of a row."""
    add = put(folder, "x", pa.table({"id": [7, 8]}))
    with configured(spark, {"spark.sql.sources.useV1SourceList": ""}):
        rows = scan_rows(spark, storage, list_of_adds([add]), schema_of(spark, "id long"))
        assert [(row.id, row[ROW]) for row in rows.collect()] == [(7, 0), (8, 1)]


def test_a_session_does_not_decide_which_files_count(
    spark: SparkSession, way: str, storage: Storage, folder: Path
) -> None:
    """A file that is gone or damaged is an error, whatever Spark is set to ignore: its rows would be lost."""
    adds = [put(folder, name, pa.table({"id": [1]})) for name in ("here", "gone", "damaged")]
    (folder / "gone").unlink()
    (folder / "damaged").write_bytes(b"PAR1" + bytes(adds[2].size - 8) + b"PAR1")
    ignored = {"spark.sql.files.ignoreMissingFiles": "true", "spark.sql.files.ignoreCorruptFiles": "true"}
    for lost in adds[1:]:
        with configured(spark, ignored), pytest.raises(Exception, match=lost.path):
            scan(spark, storage, list_of_adds([adds[0], lost]), schema_of(spark, "id long")).collect()


def test_a_spark_that_ignores_manifests_reads_the_same(spark: SparkSession, storage: Storage, folder: Path) -> None:
    """It would find an empty folder, and say that the table is empty."""
    add = put(folder, "a b.parquet", pa.table({"id": [1, 2]}))
    spark.conf.set("spark.sql.streaming.fileStreamSink.ignoreMetadata", "true")
    try:
        schema = schema_of(spark, "id long")
        assert scan(spark, storage, list_of_adds([add]), schema).count() == 2
        assert scan(spark, storage, list_of_adds([]), schema).count() == 0
    finally:
        spark.conf.unset("spark.sql.streaming.fileStreamSink.ignoreMetadata")


def test_partition_columns_that_files_lack_come_from_the_log(
    spark: SparkSession, storage: Storage, folder: Path
) -> None:
    """Another writer leaves partition columns out of its files; Spark's own reader would find null."""
    bare = put(folder, "p=1/x", pa.table({"id": [1]}), partition_values={"p": "1"})
    stored = put(
        folder,
        "p=2/x",
        pa.table({"id": [2], "p": pa.array([2], pa.int32())}),
        partition_values={"p": "2"},
        tags={"partitionColumns": "stored"},
    )
    rows = scan(spark, storage, list_of_adds([bare, stored]), schema_of(spark, "id long, p int"), ["p"]).collect()
    assert sorted((row.id, row.p) for row in rows) == [(1, 1), (2, 2)]


def test_shares_name_each_file_once_with_all_partition_values() -> None:
    """As a task sees them: a plan leaves out a partition value that is null."""
    pairs: list[list[tuple[str, str | None]]] = [[("p", "1"), ("q", "ü")], [("p", "2")], [], [("q", None)]] * 25
    columns: dict[str, Any] = {
        "path": pa.array([f"f{number}" for number in range(100)]),
        "size": pa.array([number * 10**7 for number in range(100)], pa.int64()),
        "modificationTime": pa.array([0] * 100, pa.int64()),
        "partitionValues": pa.array(pairs, pa.map_(pa.string(), pa.string())),
    }
    named = pa.table(columns).replace_schema_metadata({"partitionColumns": '["p", "q"]'})
    plan = pa.concat_tables([named.slice(0, 30), named.slice(30)])
    shares = pickle.loads(pickle.dumps(list_of_plan(plan).shares(Splits(max_bytes=10**9))))
    found = [file for number in range(len(shares)) for file in shares.of(number)]
    assert len(shares) > 10
    absent: dict[str, str | None] = {"p": None, "q": None}
    assert dict(found) == {f"f{number}": absent | dict(pairs[number]) for number in range(100)}
    assert len(found) == 100
    loads = [sum(int(path[1:]) for path, _ in shares.of(number)) for number in range(len(shares))]
    assert max(loads) - min(loads) < 100


@pytest.mark.parametrize("way", ["native", "indexed"], indirect=True)
def test_spark_takes_our_index_for_what_it_is(spark: SparkSession, way: str, storage: Storage, folder: Path) -> None:
    """Both ways tell Spark the same; a test for each Spark that is supported, because `FileIndex` is its own."""
    schema = schema_of(spark, "id long not null, p string")
    adds = [put(folder, f"ü {number}%20'.parquet", pa.table({"id": [number, 10 + number]})) for number in range(3)]
    rows = scan(spark, storage, list_of_adds(adds), schema)
    assert ("TarnlogPlannedFiles" in location_of(rows)) == (way == "indexed")
    assert rows.schema == schema
    assert sorted(row.id for row in rows.collect()) == [0, 1, 2, 10, 11, 12]
    assert rows.join(rows.withColumnRenamed("p", "q"), "id").count() == 6
    assert rows.where("id > 10").count() == 2
    assert len(rows.inputFiles()) == 3
    plan: Any = cast(Any, rows)._jdf.queryExecution().optimizedPlan()
    assert int(plan.stats().sizeInBytes()) == sum(add.size for add in adds)
    rows.createOrReplaceTempView("indexed_or_not")
    try:
        spark.catalog.refreshTable("indexed_or_not")
        assert spark.sql("SELECT count(*) FROM indexed_or_not").collect()[0][0] == 6, "a version does not change"
    finally:
        spark.catalog.dropTempView("indexed_or_not")


def index_of(spark: SparkSession, begin: str, listed: pa.Table) -> DataFrame:
    rows = indexed(spark, "file:///a", begin, listed, schema_of(spark, "id long"))
    assert rows is not None
    return rows


_NAMES = st.text(st.sampled_from("aZ09 %/ü€😀'\"?#[]{}*\\\n=~+&"), min_size=1, max_size=12)
_NUMBERS = st.integers(0, 2**62)


@given(
    files=st.lists(st.tuples(_NAMES, _NUMBERS, _NUMBERS), max_size=12),
    begin=st.sampled_from(["", "file:///a%20b/", "s3a://bucket/%C3%BC/"]),
    cuts=st.tuples(st.integers(0, 12), st.integers(0, 12)),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_jvm_holds_exactly_the_files_that_were_listed(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    files: list[tuple[str, int, int]],
    begin: str,
    cuts: tuple[int, int],
) -> None:
    """Whatever their names are, and however the columns lie in memory."""
    monkeypatch.setattr(_planned_index, "WAIT_FROM", 0)
    sizes = [size % 2**40 for _, size, _ in files]
    rests = [("" if begin else "file:///") + quote(name) for name, *_ in files]
    columns = {"uri": pa.array(rests, pa.string()), "size": pa.array(sizes, pa.int64())}
    columns["modified"] = pa.array([time for *_, time in files], pa.int64())
    # Pieces of a larger whole: none of them begins where its memory does.
    around = pa.concat_tables([pa.table(columns), pa.table(columns)])
    whole = pa.concat_tables([around.combine_chunks().slice(len(files)), pa.table(columns).slice(0, 0)])
    first, second = sorted(min(cut, len(files)) for cut in cuts)
    parts = [whole.slice(0, first), whole.slice(first, second - first), whole.slice(second)]
    rows: Any = index_of(spark, begin, pa.concat_tables(parts))
    location = rows._jdf.queryExecution().analyzed().relation().location()
    (folder,) = _items(location.listFiles(None, None))
    found = [
        (file.getPath().toUri().toString(), file.getLen(), file.getModificationTime(), file.fileStatus())
        for file in _items(folder.files())
    ]
    wanted = [(begin + rest, size, time) for rest, size, (*_, time) in zip(rests, sizes, files, strict=True)]
    normal = [
        (str(cast(Any, spark)._jvm.java.net.URI(uri).normalize().toString()), size, time) for uri, size, time in wanted
    ]
    assert [file[:3] for file in found] == normal
    told = [(one.getPath().toUri().toString(), one.getLen(), one.getModificationTime()) for *_, one in found]
    assert told == normal
    assert location.sizeInBytes() == sum(sizes)
    assert list(location.inputFiles()) == [uri for uri, *_ in normal]


def _items(found: Any) -> list[Any]:
    return [found.apply(number) for number in range(found.length())]


@given(
    sizes=st.lists(st.integers(0, 2**40), max_size=9),
    more=st.lists(st.lists(st.integers(0, 2**40), max_size=4), min_size=1, max_size=3),
    data=st.data(),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_list_goes_on_from_an_older_one(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    sizes: list[int],
    more: list[list[int]],
    data: st.DataObject,
) -> None:
    """Some files go, wherever they stand, and others come at the end; the older list stays what it was."""
    monkeypatch.setattr(_planned_index, "WAIT_FROM", 0)
    names = (f"{number}.parquet" for number in range(10**6))

    def listed(some: list[int]) -> tuple[list[tuple[str, int]], pa.Table]:
        files = [(next(names), size) for size in some]
        numbers = pa.array(some, pa.int64())
        texts = pa.array([name for name, _ in files], pa.string())
        return files, pa.table({"uri": texts, "size": numbers, "modified": numbers})

    def check(rows: Any, files: list[tuple[str, int]]) -> None:
        location = rows._jdf.queryExecution().analyzed().relation().location()
        assert list(location.inputFiles()) == [f"file:///t/{name}" for name, _ in files]
        assert location.sizeInBytes() == sum(size for _, size in files)
        (folder,) = _items(location.listFiles(None, None))
        assert [file.getLen() for file in _items(folder.files())] == [size for _, size in files]

    files, table = listed(sizes)
    rows: DataFrame | None = index_of(spark, "file:///t/", table)
    lists = [(rows, files)]
    for some in more:
        gone = sorted(data.draw(st.sets(st.integers(0, len(files) - 1)) if files else st.just(set())))
        came, table = listed(some)
        rows = changed(spark, scanned(cast(Any, rows)), pa.array(gone, pa.uint64()), "file:///t/", table)
        files = [file for place, file in enumerate(files) if place not in gone] + came
        lists.append((rows, files))
    for one, its in lists:
        check(one, its)


def test_a_list_does_not_go_on_from_a_scan_of_another_kind(spark: SparkSession, storage: Storage, folder: Path) -> None:
    rows = spark.read.parquet(str(_one_file(folder)))
    none = pa.table({"uri": pa.array([], pa.string()), "size": pa.array([], pa.int64())})
    none = none.append_column("modified", none.column("size"))
    assert changed(spark, scanned(rows), pa.array([], pa.uint64()), "", none) is None
    assert _planned_index._compiling(spark).result() is not None, "and others still do"


def _one_file(folder: Path) -> Path:
    put(folder, "a.parquet", pa.table({"id": [1]}))
    return folder / "a.parquet"


def test_very_many_files_are_listed_in_their_order(spark: SparkSession) -> None:
    """As many as several threads make paths for."""
    count = 50_001
    names = pa.array([f"p={number % 7}/{number}.parquet" for number in range(count)])
    numbers = pa.array(range(count), pa.int64())
    rows = index_of(spark, "file:///t/", pa.table({"uri": names, "size": numbers, "modified": numbers}))
    relation: Any = cast(Any, rows)._jdf.queryExecution().analyzed().relation()
    assert list(relation.location().inputFiles()) == [f"file:///t/{name}" for name in names.to_pylist()]
    assert relation.location().sizeInBytes() == sum(range(count))


def test_what_cannot_be_listed_fails_the_read(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_planned_index, "WAIT_FROM", 0)
    one = pa.array([1], pa.int64())
    rows = index_of(spark, "", pa.table({"uri": pa.array(["no uri at all"]), "size": one, "modified": one}))
    with pytest.raises(Exception, match="cannot be listed"):
        rows.count()


@pytest.mark.parametrize("size", ["900b", "64m"])
def test_files_are_split_as_spark_splits_them(spark: SparkSession, storage: Storage, folder: Path, size: str) -> None:
    """By the session's setting at the time of a plan, and to the byte."""
    adds = [put(folder, f"{rows}.parquet", pa.table({"id": range(rows)})) for rows in (0, 1, 500, 3000)]
    schema = schema_of(spark, "id long")

    def splits(frame: Any) -> list[tuple[str, int, int]]:
        scans = frame._jdf.queryExecution().toRdd().partitions()
        return sorted(
            (file.filePath().toString(), file.start(), file.length()) for one in scans for file in one.files()
        )

    def by(way: str, set_to: str | None) -> list[tuple[str, int, int]]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(_planned_index, "WAIT_FROM", 0)
            if way == "manifest":
                patched.setattr(_scanning, "indexed", lambda *_: None)
            frame = scan(spark, storage, list_of_adds(adds), schema)
        assert ("TarnlogPlannedFiles" in location_of(frame)) == (way == "index")
        found = splits(frame)
        if set_to is not None:
            spark.conf.set("spark.sql.files.maxPartitionBytes", set_to)
            found += splits(scan_again(spark, scanned(frame)))
        return found

    spark.conf.set(SCAN_CONF, "native")
    try:
        whole = by("manifest", size)
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
        assert by("index", size) == whole
        assert (len(whole) > 2 * len(adds)) == (size == "900b")
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
        spark.conf.unset(SCAN_CONF)


def test_few_files_do_not_wait_for_the_compiler(
    spark: SparkSession, storage: Storage, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adds = list_of_adds([put(folder, "a.parquet", pa.table({"id": [1, 2]}))])
    schema = schema_of(spark, "id long")
    ready = _planned_index._compiling(spark).result()
    pending: Future[Any] = Future()
    monkeypatch.setattr(_planned_index, "_compiled", {spark._sc: pending})
    assert "TarnlogPlannedFiles" not in location_of(scan(spark, storage, adds, schema))
    pending.set_result(ready)
    rows = scan(spark, storage, adds, schema)
    assert "TarnlogPlannedFiles" in location_of(rows)
    assert rows.count() == 2


_TAGS = st.dictionaries(
    st.sampled_from(["partitionColumns", "other"]), st.none() | st.sampled_from(["stored", "not"]), max_size=2
)


@given(tags=st.lists(st.none() | _TAGS, max_size=6), cut=st.integers(0, 6))
def test_all_files_are_stored_where_each_says_so(tags: list[dict[str, str | None] | None], cut: int) -> None:
    pairs = [None if one is None else list(one.items()) for one in tags]
    columns: dict[str, Any] = {"path": pa.array(["x"] * len(tags), pa.string())}
    columns |= {name: pa.array([0] * len(tags), pa.int64()) for name in ("size", "modificationTime")}
    texts = pa.map_(pa.string(), pa.string())
    columns |= {"partitionValues": pa.nulls(len(tags), texts), "tags": pa.array(pairs, texts)}
    whole = pa.table(columns)
    plan = pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])
    told = all(one is not None and one.get("partitionColumns") == "stored" for one in tags)
    assert list_of_plan(plan).stored == told
    assert list_of_plan(plan.slice(1)).stored == all(
        one is not None and one.get("partitionColumns") == "stored" for one in tags[1:]
    )


@pytest.mark.parametrize("source", ["no Java at all", "public final class Other {}"])
def test_where_spark_does_not_take_an_index_files_are_listed_by_a_manifest(
    spark: SparkSession,
    storage: Storage,
    folder: Path,
    source: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(_planned_index, "WAIT_FROM", 0)
    monkeypatch.setattr(_planned_index, "_SOURCE", source)
    monkeypatch.setattr(_planned_index, "_compiled", weakref.WeakKeyDictionary())
    adds = [put(folder, "a.parquet", pa.table({"id": [1, 2]}))]
    for _ in range(2):
        rows = scan(spark, storage, list_of_adds(adds), schema_of(spark, "id long"))
        assert "TarnlogPlannedFiles" not in location_of(rows)
        assert rows.count() == 2
    assert caplog.text.count("listed in a manifest") == 1, "it is tried, and told, once"


def test_an_unknown_way_is_refused(spark: SparkSession, storage: Storage) -> None:
    spark.conf.set(SCAN_CONF, "fast")
    try:
        with pytest.raises(InvalidRequest, match="auto, native or arrow"):
            scan(spark, storage, list_of_adds([]), schema_of(spark, "id long"))
    finally:
        spark.conf.unset(SCAN_CONF)


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    import os

    stale, young = tmp_path / (_manifests.PREFIX + "stale"), tmp_path / (_manifests.PREFIX + "young")
    stale.mkdir()
    young.mkdir()
    os.utime(stale, (0, 0))
    listed(tmp_path)
    assert not stale.exists()
    assert young.exists()
