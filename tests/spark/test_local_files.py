"""The file system that local files are written with: the modes that Hadoop sets, without starting processes."""

from __future__ import annotations

import logging
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tarnlog import Client
from tarnlog_spark import Table, _local_files
from tarnlog_spark._local_files import HADOOPS, OURS, local_file_system
from tests.service_process import ServiceProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known yet of any Spark."""
    monkeypatch.setattr(_local_files, "_names", weakref.WeakKeyDictionary())


@contextmanager
def processes(spark: Any, folder: Path) -> Iterator[list[str]]:
    """Collects the commands of the processes that the JVM starts in the block."""
    try:
        recording = spark._jvm.jdk.jfr.Recording()
    except TypeError:  # py4j's answer where there is no such class
        pytest.skip("this Java has no flight recorder")
    started: list[str] = []
    recording.enable("jdk.ProcessStart")
    recording.start()
    try:
        yield started
    finally:
        recording.stop()
        place = spark._jvm.java.nio.file.Paths.get(
            str(folder / "recording.jfr"), spark._sc._gateway.new_array(spark._jvm.String, 0)
        )
        recording.dump(place)
        recording.close()
        events = spark._jvm.jdk.jfr.consumer.RecordingFile.readAllEvents(place)
        started += [event.getString("command") for event in events]


def modes(folder: Path) -> set[tuple[str, int]]:
    """What kinds of things are in a folder, and with which modes."""
    found = [path for path in folder.rglob("*") if not path.relative_to(folder).parts[0].startswith("_")]
    return {("folder" if path.is_dir() else "file", stat.S_IMODE(path.stat().st_mode)) for path in found}


def test_writes_start_no_process_and_set_the_same_modes(
    spark: SparkSession,
    tarnlog_service: ServiceProcess,
    client: Client,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = spark.range(0, 40, 1, 2).selectExpr("id", "CAST(id % 2 AS INT) AS p")
    assert local_file_system(spark) == OURS
    left = []
    for number, chosen in enumerate((OURS, HADOOPS)):
        monkeypatch.setattr(_local_files, "local_file_system", lambda _, chosen=chosen: chosen)
        table = Table.for_name(spark, f"{name}_{number}", url=tarnlog_service.url)
        with processes(spark, tmp_path) as started:
            table.write(rows, partition_by=["p"], writer="native")
        chmods = [command for command in started if "chmod" in command]
        assert bool(chmods) == (chosen == HADOOPS), chmods
        assert table.read().count() == 40
        left.append(modes(Path(client.get_table(table.name).location.removeprefix("file://"))))
    ours, hadoops = left
    assert ours == hadoops
    assert {kind for kind, _ in ours} == {"file", "folder"}


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o777, 0o000, 0o1777])
def test_any_mode(spark: SparkSession, tmp_path: Path, mode: int) -> None:
    path = tmp_path / "a folder ü"
    path.mkdir()
    set_mode(spark, path, mode)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_folder_goes_on_to_give_its_group(spark: SparkSession, tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    file.write_bytes(b"")
    for path in (folder, file):
        path.chmod(0o6777)
        set_mode(spark, path, 0o755)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, file)] == [0o6755, 0o755], "as chmod has it"


def set_mode(spark: SparkSession, path: Path, mode: int) -> None:
    """By the class that writes use."""
    own = cast(Any, spark)
    hadoop = own._jvm.org.apache.hadoop
    loaded = own._jvm.java.lang.Class.forName(local_file_system(spark))
    system = loaded.getConstructors()[0].newInstance(own._sc._gateway.new_array(own._jvm.Object, 0))
    system.initialize(own._jvm.java.net.URI("file:///"), hadoop.conf.Configuration())
    system.setPermission(hadoop.fs.Path(str(path)), hadoop.fs.permission.FsPermission(f"{mode:04o}"))


@pytest.mark.usefixtures("fresh")
def test_it_is_made_once_for_a_jvm(spark: SparkSession) -> None:
    assert [local_file_system(spark), local_file_system(spark)] == [OURS, OURS]


@pytest.mark.usefixtures("fresh")
def test_hadoops_own_serves_where_ours_cannot_be_had(
    spark: SparkSession,
    tarnlog_service: ServiceProcess,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(_local_files, "OURS", "org.apache.hadoop.fs.Missing")
    monkeypatch.setattr(_local_files, "_SOURCE", "this is not Java")
    with caplog.at_level(logging.WARNING):
        table = Table.for_name(spark, name, url=tarnlog_service.url)
        for _ in range(2):
            table.write(spark.range(3), writer="native")
    assert local_file_system(spark) == HADOOPS
    assert table.read().count() == 6
    assert len([record for record in caplog.records if record.name == _local_files.__name__]) == 1


class Cluster:
    """A context whose tasks run elsewhere: no class of ours gets there."""

    _jsc: Cluster
    _sc: Cluster

    def __init__(self) -> None:
        self._jsc = self._sc = self

    def sc(self) -> Cluster:
        return self

    def isLocal(self) -> bool:  # noqa: N802 (Spark's name)
        return False


def test_tasks_on_other_machines_use_hadoops_own() -> None:
    assert local_file_system(Cluster()) == HADOOPS
