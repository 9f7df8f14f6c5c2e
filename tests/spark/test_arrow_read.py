"""Files as batches of exactly the schema, against pyarrow's own values."""

from __future__ import annotations

import datetime as dt
import errno
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog import Corrupt, Unavailable
from tarnlog_spark._arrow_read import conform, read_batches
from tarnlog_spark._storage import Storage, storage_at
from tests.service_process import free_port

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


NUMBERS = pa.schema([("a", pa.int64())])


def numbers(folder: Path) -> Storage:
    """A table's folder with one file of two row groups, f.parquet."""
    pq.write_table(
        pa.table({"a": range(200_000)}), folder / "f.parquet", row_group_size=100_000, write_page_checksum=True
    )
    return storage_at(folder.as_uri())


class Troubled:
    """What a reader asks of a file system, whose files fail from a byte on, as often as it is told to."""

    def __init__(self, error: OSError, *, after: int, times: int) -> None:
        self.error, self.after, self.times = error, after, times

    def open_input_file(self, path: str) -> Any:
        if self.after == 0:
            self.fail()
        trouble = self

        class File(io.FileIO):
            def read(self, size: int | None = -1) -> bytes:
                if self.tell() + (size or 0) > trouble.after:
                    trouble.fail()
                return super().read(size) or b""

        return pa.PythonFile(File(path), mode="r")

    def fail(self) -> None:
        if self.times > 0:
            self.times -= 1
            raise self.error


@pytest.mark.parametrize("after", [0, 300_000])
@pytest.mark.parametrize("times", [1, 100])
def test_storage_that_does_not_answer_says_nothing_about_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, times: int
) -> None:
    """No permission, or a connection that breaks, at the first byte or later, once or for good: never Corrupt."""
    storage = numbers(tmp_path)
    trouble = Troubled(PermissionError(errno.EACCES, "Permission denied"), after=after, times=times)
    monkeypatch.setattr(Storage, "filesystem", trouble)
    with pytest.raises(Unavailable, match=r"did not give out the data file f\.parquet.*Permission denied") as error:
        list(read_batches(storage, "f.parquet", NUMBERS))
    assert error.value.slug == "data-file-unreachable"
    assert trouble.times in (0, *range(90, 99))


def test_a_refused_connection_says_nothing_about_the_file() -> None:
    keys = {"s3.endpoint": f"http://127.0.0.1:{free_port()}", "s3.accesskey": "k", "s3.secretkey": "s"}
    with pytest.raises(Unavailable, match=r"NETWORK_CONNECTION"):
        list(read_batches(storage_at("s3://bucket/table", keys), "f.parquet", NUMBERS))


def test_a_table_that_is_not_there_at_all_has_no_missing_files(tmp_path: Path) -> None:
    """A disk that is not mounted."""
    with pytest.raises(Unavailable, match=r"did not give out the data file gone\.parquet"):
        list(read_batches(storage_at((tmp_path / "away").as_uri()), "gone.parquet", NUMBERS))


@pytest.mark.parametrize("place", [1000, 500_000, -8])
def test_bytes_that_are_read_and_not_understood_are_damage(tmp_path: Path, place: int) -> None:
    """In the first pages, in later ones, in the footer."""
    storage = numbers(tmp_path)
    data = bytearray((tmp_path / "f.parquet").read_bytes())
    data[place] ^= 0xFF
    (tmp_path / "f.parquet").write_bytes(data)
    with pytest.raises(Corrupt, match=r"f\.parquet cannot be read"):
        list(read_batches(storage, "f.parquet", NUMBERS))
