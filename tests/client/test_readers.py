"""Rows without Spark: exactly the planned files of one version, filtered exactly, whatever the files look like."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from tarnlog import Add, Client, Corrupt, InvalidRequest, raise_for_outcome
from tarnlog._arrow_schema import partition_scalar
from tests.servers import S3Server
from tests.service_process import ServiceProcess, running_service, start_service

__all__ = ["start_service"]  # a fixture


def column(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [column("id", "integer"), column("name", "string"), column("day", "date"), column("amount", "double")],
}
DAYS = [date(2024, 1, 1), date(2024, 1, 2), None]


def rows_of(number: int) -> list[dict[str, Any]]:
    """Ten rows of one file, with nulls and NaN among them."""
    day = DAYS[number % 3]
    return [
        {
            "id": None if at == 9 else 10 * number + at,
            "name": None if at == 8 else f"n{number}-{at}",
            "day": day,
            "amount": [0.5, float("nan"), None, 2.5, -1.0][at % 5],
        }
        for at in range(10)
    ]


def added(number: int, path: str, size: int) -> Add:
    ids = [row["id"] for row in rows_of(number) if row["id"] is not None]
    day = DAYS[number % 3]
    return Add(
        path=path,
        partition_values={"day": None if day is None else str(day)},
        size=size,
        modification_time=0,
        data_change=True,
        min_values={"id": str(min(ids))},
        max_values={"id": str(max(ids))},
    )


def written(filesystem: Any, root: str, number: int) -> Add:
    """A data file: some hold the partition column, some do not, and one has a name that must be encoded."""
    rows = rows_of(number)
    names = ["id", "name", "amount"] if number % 2 else ["id", "name", "day", "amount"]
    schema = pa.schema([("id", pa.int32()), ("name", pa.string()), ("day", pa.date32()), ("amount", pa.float64())])
    table = pa.Table.from_pylist(rows, schema=schema).select(names)
    path = f"day={DAYS[number % 3]}/part %25 {number}.parquet".replace(" ", "%20")
    place = f"{root}/{unquote(path)}"
    if isinstance(filesystem, pafs.LocalFileSystem):
        filesystem.create_dir(place.rsplit("/", 1)[0])
    pq.write_table(table, place, filesystem=filesystem)
    return added(number, path, filesystem.get_file_info(place).size)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with running_service(tmp_path_factory.mktemp("rows") / "ware house") as service, Client(service.url) as client:
        info = client.create_table("db.rows", SCHEMA, partition_by=["day"])
        filesystem, root = pafs.LocalFileSystem(), unquote(info.location.removeprefix("file://"))
        for number in range(6):
            raise_for_outcome(client.commit("db.rows", [written(filesystem, root, number)]))
        yield client


ALL = [row for number in range(6) for row in rows_of(number)]
FILTERS: list[tuple[str | None, Any]] = [
    (None, lambda row: True),
    ("day = '2024-01-01'", lambda row: row["day"] == date(2024, 1, 1)),
    ("day IS NULL AND id > 25", lambda row: row["day"] is None and row["id"] is not None and row["id"] > 25),
    ("id BETWEEN 5 AND 14", lambda row: row["id"] is not None and 5 <= row["id"] <= 14),
    ("NOT (id < 50)", lambda row: row["id"] is not None and row["id"] >= 50),
    ("name LIKE 'n1-%'", lambda row: row["name"] is not None and row["name"].startswith("n1-")),
    ("amount > 1", lambda row: row["amount"] is not None and not row["amount"] <= 1),
    ("amount <=> NULL", lambda row: row["amount"] is None),
    ("id IN (3, 33, NULL) OR name IS NULL", lambda row: row["id"] in (3, 33) or row["name"] is None),
    ("FALSE", lambda row: False),
]


def plain(rows: list[dict[str, Any]]) -> list[str]:
    return [repr(row) for row in rows]


@pytest.mark.parametrize("asked, wanted", FILTERS, ids=[str(asked) for asked, _ in FILTERS])
def test_the_rows_of_a_filter(client: Client, asked: str | None, wanted: Any) -> None:
    found = client.table("db.rows").to_arrow(asked)
    assert plain(found.to_pylist()) == plain([row for row in ALL if wanted(row)])
    assert found.schema.field("day").type == pa.date32()


def test_versions_columns_and_frames(client: Client) -> None:
    table = client.table("db.rows")
    assert table.to_arrow(version=2).num_rows == 20
    assert table.to_arrow(timestamp=client.snapshot("db.rows", version=1).timestamp).num_rows == 10
    chosen = table.to_arrow("day = '2024-01-01' AND amount > 1", columns=["NAME"], version=1)
    assert chosen.to_pydict() == {"name": ["n0-1", "n0-3", "n0-6", None]}
    assert list(table.to_pandas("id < 3", columns=["id"])["id"]) == [0, 1, 2]
    assert table.to_polars("id < 3", columns=["id"]).equals(pl.DataFrame({"id": [0, 1, 2]}, schema={"id": pl.Int32}))
    with duckdb.connect() as connection:
        relation = table.to_duckdb("id < 3", columns=["id"], connection=connection)
        assert relation.aggregate("sum(id)").fetchall() == [(3,)]
    assert table.to_duckdb("id < 3").fetchall()[0][0] == 0
    assert "db.rows" in repr(table)


def test_only_planned_files_are_read(client: Client) -> None:
    info = client.create_table("db.few", SCHEMA, partition_by=["day"])
    root = unquote(info.location.removeprefix("file://"))
    here = written(pafs.LocalFileSystem(), root, 0)
    raise_for_outcome(client.commit("db.few", [here, added(1, "day=2024-01-02/never-written", 1)]))
    table = client.table("db.few")
    assert table.to_arrow("day = '2024-01-01'").num_rows == 10
    assert table.to_arrow("id < 10").num_rows == 9
    with pytest.raises(Corrupt, match="never-written is missing"):
        table.to_arrow()
    Path(root, "day=2024-01-02").mkdir(exist_ok=True)
    Path(root, "day=2024-01-02/never-written").write_bytes(b"no parquet")
    with pytest.raises(Corrupt, match="never-written cannot be read"):
        table.to_arrow()


def test_old_files_of_an_evolved_table(client: Client) -> None:
    info = client.create_table("db.older", SCHEMA, partition_by=["day"])
    root = unquote(info.location.removeprefix("file://"))
    raise_for_outcome(client.commit("db.older", [written(pafs.LocalFileSystem(), root, 1)]))
    wider = [column("id", "long"), *SCHEMA["fields"][1:], column("note", "string")]
    client.alter_table("db.older", schema={"type": "struct", "fields": wider})
    found = client.table("db.older").to_arrow("note IS NULL AND id = 12")
    assert found.schema.field("id").type == pa.int64()
    assert found.to_pylist() == [{**rows_of(1)[2], "note": None}]


def test_what_cannot_be_read(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match="no column 'nobody'"):
        client.table("db.rows").to_arrow(columns=["nobody"])
    with pytest.raises(InvalidRequest):
        client.table("nonsense")
    for module, method, extra in (
        ("pyarrow", "to_arrow", "arrow"),
        ("pandas", "to_pandas", "pandas"),
        ("polars", "to_polars", "polars"),
        ("duckdb", "to_duckdb", "duckdb"),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(InvalidRequest, match=rf"tarnlog\[{extra}\]"):
                getattr(client.table("db.rows"), method)()


VALUES: list[tuple[str | None, pa.DataType, Any]] = [
    (None, pa.int32(), None),
    ("__HIVE_DEFAULT_PARTITION__", pa.string(), None),
    ("", pa.string(), ""),
    ("", pa.int32(), None),
    ("7", pa.int64(), 7),
    ("1.5", pa.decimal128(38, 4), Decimal("1.5000")),
    ("True", pa.bool_(), True),
    ("2024-01-31", pa.date32(), date(2024, 1, 31)),
    ("19722", pa.date32(), date(2023, 12, 31)),
    ("1704067200000000", pa.date32(), date(2024, 1, 1)),
    ("1704067200000000", pa.timestamp("us", tz="UTC"), datetime(2024, 1, 1, tzinfo=UTC)),
    ("2024-01-01 10:00:00", pa.timestamp("us"), datetime.fromisoformat("2024-01-01T10:00:00")),
    ("0.5", pa.float64(), 0.5),
]


@pytest.mark.parametrize("text, kind, wanted", VALUES)
def test_partition_values(text: str | None, kind: pa.DataType, wanted: Any) -> None:
    assert partition_scalar(text, kind).as_py() == wanted


@pytest.mark.parametrize("text, kind", [("x", pa.int32()), ("maybe", pa.bool_()), ("soon", pa.date32())])
def test_partition_values_that_are_none(text: str, kind: pa.DataType) -> None:
    with pytest.raises((ValueError, KeyError)):
        partition_scalar(text, kind)


@pytest.mark.s3
def test_rows_on_s3(
    s3_server: S3Server,
    s3_bucket: str,
    start_service: Callable[..., ServiceProcess],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = s3_server.environment()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    filesystem = pafs.S3FileSystem(
        access_key=s3_server.access_key,
        secret_key=s3_server.secret_key,
        endpoint_override=s3_server.endpoint,
        region=s3_server.region,
    )
    with Client(start_service(f"s3://{s3_bucket}/rows", environment).url) as client:
        info = client.create_table("db.rows", SCHEMA, partition_by=["day"])
        for number in range(3):
            added_file = written(filesystem, info.location.removeprefix("s3://"), number)
            raise_for_outcome(client.commit("db.rows", [added_file]))
        found = client.table("db.rows").to_arrow("id BETWEEN 5 AND 14")
        assert plain(found.to_pylist()) == plain([row for row in ALL if row["id"] in range(5, 15)])
