"""The Spark benchmark's own code: what it says of numbers, and the files it makes. No timing is asserted."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from bench.spark import page
from bench.spark_data import ROWS_OF_A_SMALL_FILE, small_files
from bench.spark_report import SparkResult, share, targets
from bench.spark_runs import Overhead, Planned, Raced, Tables, Warm
from tarnlog import Client
from tests.service_process import running_service


def system(name: str, append: float, plan: float, failed: int = 0) -> Tables:
    planned = Planned(plan * 2, {way: Warm(plan * 3, plan, None) for way in ("range 0.1 %", "partition", "everything")})
    return Tables(system=name, small=[append] * 10, concurrent=4.0, failed=failed, planned=planned)


def result(**parts: object) -> SparkResult:
    facts = {"date": "2024-01-01", "machine": "2 cores"}
    whole = {"raced": {"scan": Raced(own=[1.0, 2.0, 9.0], native=[1.0, 2.0, 1.0])}, "overhead": Overhead(0.1, 0.1, 6.0)}
    whole |= {"tables": [system("tarnlog", 0.1, 10), system("delta", 0.4, 5, failed=8)]}
    return SparkResult(facts=facts, rounds=3, writers_appends=16, planned_files=1000, **{**whole, **parts})  # type: ignore[arg-type]


def test_a_round_is_compared_with_its_neighbour() -> None:
    assert share(Raced(own=[1.0, 2.0, 9.0], native=[1.0, 2.0, 1.0])) == 1.0


def test_targets_tell_met_missed_and_not_measured() -> None:
    found = {one.name: one for one in targets(result())}
    assert found["scan, against plain Parquet"].met is True
    assert found["write, against plain Parquet"].met is None
    assert (found["plan and commit of a job of 5 s"].reached, found["plan and commit of a job of 5 s"].met) == (
        "4.0%",
        True,
    )
    assert (found["small appends, against delta"].reached, found["small appends, against delta"].met) == ("4.0 ×", True)
    # Only what landed counts: the peer failed half of its appends.
    assert found["appends of 8 writers, against delta"].reached == "2.0 ×"
    assert found["planning 1,000 files, partition, against delta"].met is False
    assert found["small appends, against iceberg"].met is None


def test_the_page_has_every_part() -> None:
    text = page(result(absent={"iceberg": "no jar"}))
    for part in (
        "### Targets",
        "### Beside plain Parquet",
        "### Appends of 1,000 rows",
        "### Planning 1,000 files",
        "no jar",
    ):
        assert part in text


def test_small_files_are_in_the_table_with_their_ranges(tmp_path: Path) -> None:
    with running_service(tmp_path / "warehouse") as service, Client(service.url) as client:
        folder = small_files(client, "bench.many", 5)
        wanted = ROWS_OF_A_SMALL_FILE * 2
        (file,) = client.plan("bench.many", f"id >= {wanted} AND id < {wanted + 3}").files
        assert pq.read_table(folder / file.path).column("id").to_pylist()[0] == wanted
        assert len(list(client.files("bench.many"))) == 5
