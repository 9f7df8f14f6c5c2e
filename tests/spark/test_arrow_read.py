"""Files as batches of exactly the schema, against pyarrow's own values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog import Corrupt
from tarnlog_spark._arrow_read import conform, read_batches
from tarnlog_spark._storage import storage_at

narrow = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.int16())), ("m", pa.map_(pa.string(), pa.int32()))])
wide = pa.struct(
    [
        pa.field("b", pa.list_(pa.field("element", pa.int64()))),
        pa.field("new", pa.string()),
        pa.field("a", pa.int64()),
        pa.field("m", pa.map_(pa.string(), pa.field("value", pa.int64()))),
    ]
)
ints = st.integers(-100, 100) | st.none()
values = st.none() | st.fixed_dictionaries(
    {
        "a": ints,
        "b": st.none() | st.lists(ints, max_size=3),
        "m": st.none() | st.dictionaries(st.text(max_size=2), ints, max_size=3).map(lambda found: list(found.items())),
    }
)


def widened(value: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if value is None else {"b": value["b"], "new": None, "a": value["a"], "m": value["m"]}


@given(st.lists(values, max_size=6), st.integers(0, 3), st.booleans())
def test_nested_values_keep_their_meaning_under_a_wider_type(rows: list[Any], cut: int, in_list: bool) -> None:
    """Also in slices, and below lists: offsets and nulls are those of the slice."""
    if in_list:
        array = pa.array([rows, None, rows], pa.list_(narrow))[cut:]
        found = conform(array, pa.list_(pa.field("element", wide)))
        expected: list[Any] = [
            None if group is None else [widened(row) for row in group] for group in array.to_pylist()
        ]
    else:
        array = pa.array(rows, narrow)[cut:]
        found = conform(array, wide)
        expected = [widened(row) for row in array.to_pylist()]
    found.validate(full=True)
    assert found.to_pylist() == expected


@pytest.mark.parametrize(
    "stored, wanted",
    [
        (pa.array([1, None], pa.int8()), pa.int64()),
        (pa.array([1.5, None], pa.float32()), pa.float64()),
        (pa.array([Decimal("1.25")], pa.decimal128(5, 2)), pa.decimal128(20, 2)),
        (pa.array(["x", None]).dictionary_encode(), pa.string()),
        (pa.array(["x", None], pa.large_string()), pa.string()),
        (pa.array([1_706_659_200_000_000_000], pa.timestamp("ns")), pa.timestamp("us", tz="UTC")),
        (pa.array([[1], None], pa.large_list(pa.int32())), pa.list_(pa.int64())),
    ],
)
def test_narrower_types_widen(stored: pa.Array, wanted: pa.DataType) -> None:
    found = conform(stored, wanted)
    assert found.type == wanted
    assert [str(value)[:19] for value in found.to_pylist()] == [str(value)[:19] for value in stored.to_pylist()]


@pytest.mark.parametrize(
    "stored, wanted",
    [
        (pa.array([2**40]), pa.int32()),
        (pa.array([[1]]), pa.int64()),
        (pa.array(["x"]), pa.int64()),
        (pa.array([{"a": 1}]), pa.list_(pa.int64())),
    ],
)
def test_what_does_not_fit_is_refused(stored: pa.Array, wanted: pa.DataType) -> None:
    with pytest.raises(pa.ArrowException):
        conform(stored, wanted)


def test_columns_come_by_name_with_partition_values_and_nulls_for_the_rest(tmp_path: Path) -> None:
    pq.write_table(pa.table({"B": [1, 2], "a": ["x", "y"]}), tmp_path / "f f.parquet")
    schema = pa.schema(
        [("a", pa.string()), ("day", pa.date32()), ("b", pa.int64()), ("c", pa.float64()), ("v", pa.int64())]
    )
    storage = storage_at(tmp_path.as_uri())
    batches = list(read_batches(storage, "f%20f.parquet", schema, absent={"day": "2024-01-31"}, fixed={"v": 7}))
    assert [batch.schema for batch in batches] == [schema]
    assert batches[0].to_pylist() == [
        {"a": "x", "day": dt.date(2024, 1, 31), "b": 1, "c": None, "v": 7},
        {"a": "y", "day": dt.date(2024, 1, 31), "b": 2, "c": None, "v": 7},
    ]
    only_fixed = pa.schema([("v", pa.int64())])
    assert sum(batch.num_rows for batch in read_batches(storage, "f%20f.parquet", only_fixed, fixed={"v": 7})) == 2


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    storage = storage_at(tmp_path.as_uri())
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    with pytest.raises(Corrupt, match=r"gone\.parquet of the table is gone"):
        list(read_batches(storage, "gone.parquet", schema))
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(Corrupt, match=r"torn\.parquet cannot be read"):
        list(read_batches(storage, "torn.parquet", schema))
    pq.write_table(pa.table({"a": pa.array([1, None], pa.int64())}), tmp_path / "nulls.parquet")
    with pytest.raises(Corrupt, match="column a has nulls"):
        list(read_batches(storage, "nulls.parquet", schema))
