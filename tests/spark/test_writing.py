"""The task's half of a write, without Spark: files, partitions, paths, and statistics that never lie."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarnlog.protocol.actions import Add
from tarnlog.protocol.paths import check_new_path
from tarnlog.protocol.predicates import Compare, IsNotNull, IsNull
from tarnlog.protocol.schema import parse_schema_string
from tarnlog_server.core.match import may_match
from tarnlog_server.core.stats_truncation import cut_max, cut_min
from tarnlog_spark import SchemaMismatch, _statistics, _writing
from tarnlog_spark._arrow_types import arrow_schema
from tarnlog_spark._storage import storage_at
from tarnlog_spark._writing import WriteTask, decode_message, encode_message, new_path, split, write_batches


def schema_string(**columns: Any) -> str:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return json.dumps({"type": "struct", "fields": fields})


def task_at(folder: Path, columns: dict[str, Any], *partition_columns: str, **options: Any) -> WriteTask:
    return WriteTask(
        storage=storage_at(folder.as_uri()),
        schema_string=schema_string(**columns),
        partition_columns=partition_columns,
        **options,
    )


def rows_of(task: WriteTask, columns: dict[str, list[Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns, schema=task.schema())


def read_back(task: WriteTask, add: Add) -> list[dict[str, Any]]:
    with task.storage.filesystem.open_input_file(task.storage.path(add.path)) as source:
        return list(pq.read_table(source).to_pylist())


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    task = task_at(tmp_path, {"id": "long"})
    assert list(write_batches(task, [rows_of(task, {"id": []})])) == []
    assert list(tmp_path.iterdir()) == []


def test_each_partition_is_a_file_with_its_column_inside(tmp_path: Path) -> None:
    task = task_at(tmp_path, {"id": "long", "day": "date"}, "day")
    days = [dt.date(2024, 1, 1), None, dt.date(2024, 1, 2)]
    batches = [rows_of(task, {"id": [n, n + 1, n + 2], "day": days}) for n in (0, 10, 20)]
    adds = list(write_batches(task, batches))
    assert {add.partition_values["day"] for add in adds} == {"2024-01-01", None, "2024-01-02"}
    for add in adds:
        rows = read_back(task, add)
        assert len(rows) == add.num_records == 3
        assert {row["day"] and row["day"].isoformat() for row in rows} == {add.partition_values["day"]}
        assert add.size == Path(task.storage.path(add.path)).stat().st_size
    assert sorted(add.path.split("/")[0] for add in adds) == [
        "day=2024-01-01",
        "day=2024-01-02",
        "day=__HIVE_DEFAULT_PARTITION__",
    ]


def test_files_end_at_the_target_size_and_lose_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_writing, "ROW_GROUP_ROWS", 100)
    task = task_at(tmp_path, {"id": "long"}, target_bytes=1500)
    batches = [rows_of(task, {"id": list(range(start, start + 50))}) for start in range(0, 1000, 50)]
    adds = list(write_batches(task, batches))
    assert len(adds) > 2
    assert sorted(row["id"] for add in adds for row in read_back(task, add)) == list(range(1000))


@pytest.mark.parametrize("target", [20_000, 100_000, 1_000_000])
@pytest.mark.parametrize("rows_a_batch", [1_000, 300_000])
def test_files_end_near_a_small_target(tmp_path: Path, target: int, rows_a_batch: int) -> None:
    """However large the batches are that come."""
    task = task_at(tmp_path, {"id": "long", "v": "string"}, target_bytes=target)
    batches = [
        rows_of(task, {"id": list(ids), "v": [f"v{number}" for number in ids]})
        for ids in (range(start, start + rows_a_batch) for start in range(0, 300_000, rows_a_batch))
    ]
    adds = list(write_batches(task, batches))
    assert all(target <= add.size <= 1.4 * target for add in adds[:-1])
    assert adds[-1].size <= 1.4 * target
    assert len(adds) >= 2
    assert sum(add.num_records or 0 for add in adds) == 300_000
    starts = [int((add.min_values or {})["id"]) for add in adds]
    assert starts == sorted(starts), "rows keep their order"
    with pq.ParquetFile(tmp_path / adds[0].path) as file:
        assert 1 < file.num_row_groups <= 8


def test_a_target_of_next_to_nothing_is_no_file_for_each_row(tmp_path: Path) -> None:
    task = task_at(tmp_path, {"id": "long"}, target_bytes=1)
    adds = list(write_batches(task, [rows_of(task, {"id": list(range(1000))})]))
    assert 1 < len(adds) < 20


def test_few_files_are_open_at_once_and_little_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_writing, "MAX_OPEN", 3)
    monkeypatch.setattr(_writing, "WAITING_BYTES", 200)
    task = task_at(tmp_path, {"id": "long", "p": "integer"}, "p")
    writer = _writing._TaskWriter(task)
    adds: list[Add] = []
    for start in range(0, 200, 20):
        batch = rows_of(task, {"id": list(range(start, start + 20)), "p": [n % 10 for n in range(20)]})
        adds += writer.take(batch)
        assert len(writer._open) <= 3
        assert sum(file.waiting_bytes for file in writer._open.values()) <= 200
    adds += writer.finish()
    found = [(row["id"], row["p"], add.partition_values["p"]) for add in adds for row in read_back(task, add)]
    assert sorted(row[0] for row in found) == list(range(200))
    assert all(str(p) == value for _, p, value in found)


def test_two_attempts_never_share_a_name(tmp_path: Path) -> None:
    task = task_at(tmp_path, {"id": "long"})
    batch = rows_of(task, {"id": [1]})
    paths = [add.path for _ in range(3) for add in write_batches(task, [batch])]
    assert len(set(paths)) == 3
    assert len(list(tmp_path.iterdir())) == 3


def test_a_message_survives_its_way(tmp_path: Path) -> None:
    task = task_at(tmp_path, {"id": "long", "p ü%": "string"}, "p ü%")
    (add,) = write_batches(task, [rows_of(task, {"id": [1], "p ü%": ["a/b=c d%20\x01é"]})])
    assert decode_message(encode_message(add)) == add
    assert add.partition_values == {"p ü%": "a/b=c d%20\x01é"}


@given(name=st.text(min_size=1), value=st.none() | st.text())
def test_every_partition_value_makes_a_path_that_a_commit_may_add(name: str, value: str | None) -> None:
    name, clean = name.encode(errors="replace").decode(), value and value.encode(errors="replace").decode()
    path = new_path((name,), (clean,))
    assert check_new_path(path) is None
    assert len(path.split("/")) == 2


def test_nulls_in_a_required_column_are_refused_by_name(tmp_path: Path) -> None:
    text = json.dumps({"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": False}]})
    task = WriteTask(storage=storage_at(tmp_path.as_uri()), schema_string=text)
    batch = pa.RecordBatch.from_pydict({"id": pa.array([1, None], pa.int64())})
    with pytest.raises(SchemaMismatch) as error:
        list(write_batches(task, [batch]))
    assert error.value.columns == {"id": "null where the table allows none"}


@pytest.mark.parametrize("kind", ["variant", "interval day", "void", "interval"])
def test_types_without_a_place_in_a_file_are_refused_by_name(kind: str) -> None:
    with pytest.raises(SchemaMismatch) as error:
        arrow_schema(parse_schema_string(schema_string(ok="long", odd=kind)))
    assert list(error.value.columns) == ["odd"]


def test_binary_cannot_name_partitions(tmp_path: Path) -> None:
    task = task_at(tmp_path, {"b": "binary"}, "b")
    with pytest.raises(SchemaMismatch, match="b: binary cannot name partitions"):
        list(write_batches(task, [rows_of(task, {"b": [b"x"]})]))


# --- statistics ---------------------------------------------------------------------------------------------------

_text = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=80)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "long": st.integers(-(2**63), 2**63 - 1),
    "byte": st.integers(-128, 127),
    "double": st.floats(),
    "float": st.floats(width=32),
    "string": _text,
    "boolean": st.booleans(),
    "decimal(12,3)": st.decimals(-(10**8), 10**8, places=3),
    "decimal(38,10)": st.decimals(-(10**27), 10**27, places=10),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(dt.UTC)),
    "timestamp_ntz": st.datetimes(),
}


def literal(value: Any) -> Any:
    """A value as a filter writes it."""
    if isinstance(value, dt.datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, dt.date | Decimal):
        return str(value) if isinstance(value, Decimal) else value.isoformat()
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("partitioned", [False, True])
@settings(max_examples=40)
@given(data=st.data())
def test_no_file_is_skipped_that_holds_the_value(
    tmp_path_factory: pytest.TempPathFactory, kind: str, partitioned: bool, data: st.DataObject
) -> None:
    """Every value that was written is found through the bounds and partition values of its file, by the service."""
    values = data.draw(st.lists(st.none() | KINDS[kind], min_size=1, max_size=8))
    task = task_at(tmp_path_factory.getbasetemp() / "statistics", {"c": kind}, *(["c"] if partitioned else []))
    schema = parse_schema_string(task.schema_string)
    adds = list(write_batches(task, [rows_of(task, {"c": values})]))
    assert sum(add.num_records or 0 for add in adds) == len(values)
    for add in adds:
        rows = [row["c"] for row in read_back(task, add)]
        assert json.loads(add.stats or "")["nullCount"] == {"c": rows.count(None)}
        for value in rows:
            asked = IsNull("c") if value is None else Compare("eq", "c", literal(value))
            for predicate in (asked, IsNotNull("c") if value is not None else asked):
                assert may_match(
                    predicate, schema, task.partition_columns, add.partition_values, add.min_values, add.max_values
                )


@given(text=_text, units=st.integers(1, 40))
def test_text_is_cut_as_the_service_cuts_it(text: str, units: int) -> None:
    assert _statistics._cut_min(text, pa.string(), units) == cut_min(text, units)
    assert _statistics._cut_max(text, pa.string(), units) == cut_max(text, units)


def test_what_has_no_order_has_no_bounds(tmp_path: Path) -> None:
    columns = {"b": "binary", "s": {"type": "struct", "fields": [{"name": "x", "type": "long"}]}, "n": "double"}
    task = task_at(tmp_path, {**columns, "after": "long", "long text": "string"})
    one: dict[str, list[Any]] = {"b": [b"x"]}
    row = one | {"s": [{"x": 1}], "n": [float("nan")], "after": [7], "long text": ["z" * 5000]}
    (add,) = write_batches(task, [rows_of(task, row)])
    assert add.min_values == {"after": "7"}
    assert add.max_values == {"after": "7"}
    assert json.loads(add.stats or "")["nullCount"] == {"b": 0, "n": 0, "after": 0, "long text": 0}


def test_days_and_moments_beyond_the_calendar_are_numbers(tmp_path: Path) -> None:
    task = task_at(tmp_path, {"d": "date", "t": "timestamp"})
    days = pa.array([-800_000, 2_932_897], pa.int32()).cast(pa.date32())
    moments = pa.array([-70_000_000_000_000_000, 1], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    (add,) = write_batches(task, [pa.RecordBatch.from_arrays([days, moments], schema=task.schema())])
    assert add.min_values == {"d": "-800000", "t": "-70000000000000000"}
    assert add.max_values == {"d": "2932897", "t": "1970-01-01T00:00:00.000001Z"}


@given(
    rows=st.lists(st.tuples(st.none() | st.sampled_from(["a", "b", "ü"]), st.none() | st.integers(0, 2))),
    one=st.booleans(),
)
def test_split_is_a_partition_of_the_rows(rows: list[tuple[str | None, int | None]], one: bool) -> None:
    columns = {
        "p": pa.array([row[0] for row in rows], pa.string()),
        "q": pa.array([row[1] for row in rows], pa.int32()),
        "n": pa.array(range(len(rows)), pa.int64()),
    }
    names = ("p",) if one else ("p", "q")
    parts = list(split(pa.RecordBatch.from_pydict(columns), names))
    assert len({values for values, _ in parts}) == len(parts)
    expected = Counter((p, n) if one else (p, None if q is None else str(q), n) for n, (p, q) in enumerate(rows))
    assert Counter((*values, n) for values, part in parts for n in part.column("n").to_pylist()) == expected
