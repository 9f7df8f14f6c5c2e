"""At 80 columns nothing that is copied is broken or cut: ids, paths, locations and commands stay on one line."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text
from typer.testing import CliRunner

from tarnlog import AuditInfo, CheckInfo, Conflicted, OperationInfo, VacuumInfo, Winner, new_commit_id
from tarnlog._results import OrphanInfo
from tarnlog.cli.grids import Grid
from tarnlog.cli.main import app
from tarnlog.testing import FakeTarnlog
from tests.cli.test_commands import Shell, body

WIDTH = 80
TABLE = "warehouse_of_the_sales_department.orders_of_all_customers_of_the_world"
LOCATION = "s3://a-bucket-with-a-long-name/warehouse/" + "folder-of-some-depth/" * 6 + "orders"
PATH = "day=2024-01-01/region=central-europe-1/" + "part-00001-0c5e9f70-27c1-4d4e-9d3b-" * 3 + ".c000.snappy.parquet"
COMMIT = "0189c251-f400-7abc-8def-0123456789ab"
ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture
def fake() -> FakeTarnlog:
    fake = FakeTarnlog(committed_by="the-key-of-the-nightly-job")
    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    fake.create_table(TABLE, schema, location=LOCATION, properties={"owner": LOCATION})
    with fake.transaction(TABLE, commit_id=COMMIT, operation_parameters={"mode": "Append", "from": PATH}) as tx:
        tx.add(PATH, size=2048, num_records=1000, modification_time=0)
    fake.begin_session(TABLE, PATH)
    fake.record_skip(TABLE, PATH, reason="a footer that cannot be read", operation="MERGE")
    return fake


def at_80(fake: FakeTarnlog, *arguments: str, code: int = 0, stdin: str | None = None) -> str:
    """What a terminal of 80 columns gets, stdout then stderr."""
    env = {"COLUMNS": str(WIDTH), "FORCE_COLOR": "1", "TERM": "xterm"}
    result = CliRunner(env=env).invoke(app, list(arguments), obj=Shell(fake).connect, input=stdin, color=True)
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    return ANSI.sub("", result.stdout + result.stderr)


def assert_whole(shown: str, *values: str) -> None:
    for value in values:
        assert value in shown, f"{value} is broken or cut in:\n{shown}"
    for line in shown.splitlines():
        long = max((len(word) for word in line.split()), default=0)
        assert len(line) <= WIDTH or long > 30, f"a line of {len(line)} without anything that is copied: {line}"


def sessions_of(fake: FakeTarnlog) -> str:
    return fake.sessions(TABLE)[0].id


@pytest.mark.parametrize(
    "arguments, values",
    [
        (["tables"], [TABLE, LOCATION]),
        (["describe", TABLE], [TABLE, LOCATION]),
        (["history", TABLE], [COMMIT, "the-key-of-the-nightly-job"]),
        (["files", TABLE], [PATH]),
        (["plan", TABLE], [PATH]),
        (["plan", TABLE, "--explain"], [PATH]),
        (["diff", TABLE, "0", "1"], [PATH]),
        (["sessions", TABLE], [PATH]),
        (["skips", TABLE], [PATH]),
        (["cooldowns", TABLE], [PATH]),
        (["commit-status", TABLE, COMMIT], [COMMIT]),
        (["checkpoint", TABLE], [TABLE]),
        (["cleanup", TABLE], [TABLE]),
        (["verify", TABLE], []),
        (["drop", TABLE, "--yes"], [f"tarnlog register {TABLE} {LOCATION} --foreign-writers-stopped"]),
    ],
    ids=lambda one: " ".join(one[:1] + one[2:]) if isinstance(one, list) else "",
)
def test_listings(fake: FakeTarnlog, arguments: list[str], values: list[str]) -> None:
    if arguments[0] == "sessions":
        values = [*values, sessions_of(fake)]
    if arguments[0] == "describe":
        values = [*values, fake.get_table(TABLE).id]
    assert_whole(at_80(fake, *arguments), *values)


def test_operations_vacuum_and_audits(fake: FakeTarnlog, monkeypatch: pytest.MonkeyPatch) -> None:
    operation = new_commit_id()
    running = (OperationInfo(id=operation, kind="vacuum", table=TABLE, status="running"),)
    found = VacuumInfo(
        table_name=TABLE,
        status="dry-run",
        orphaned_files_found=1,
        examples=(OrphanInfo(path=PATH, size=1, modified_time=0),),
    )
    sentence = f"1 of 2 files are missing: {PATH}, and more words than would ever fit into a line of eighty columns"
    audit = AuditInfo(
        table_name=TABLE, status="failed", checks=(CheckInfo(name="data-files", ok=False, detail=sentence),)
    )
    monkeypatch.setattr(FakeTarnlog, "operations", lambda self: running)
    monkeypatch.setattr(FakeTarnlog, "vacuum", lambda self, table, **_: found)
    monkeypatch.setattr(FakeTarnlog, "verify", lambda self, table, **_: audit)
    assert_whole(at_80(fake, "operations"), operation, TABLE)
    assert_whole(at_80(fake, "vacuum", TABLE), PATH, f"`tarnlog vacuum {TABLE} --delete`")
    assert_whole(at_80(fake, "verify", TABLE, code=1), PATH, f"`tarnlog repair {TABLE}`")


def test_commits_and_errors(fake: FakeTarnlog) -> None:
    mine = new_commit_id()
    assert_whole(at_80(fake, "commit", TABLE, stdin=body(commitId=mine)), mine)
    winner = Winner(version=7, seq=2, commit_id=COMMIT, operation="STREAMING UPDATE")
    fake.next_commit(Conflicted(commit_id="", rule="delete-read", detail="no", winners=(winner,), paths=(PATH,)))
    shown = at_80(fake, "commit", TABLE, code=1, stdin=body())
    assert_whole(shown, PATH, COMMIT, "rule delete-read", "version 7.2")
    assert_whole(at_80(fake, "describe", f"{TABLE}_", code=1), f"{TABLE}_")


def test_a_pipe_gets_a_line_a_row(fake: FakeTarnlog) -> None:
    lines = Shell(fake)("files", TABLE).stdout.splitlines()
    assert len(lines) == 2
    assert PATH in lines[1]
    assert "2.0 KiB" in lines[1]


CELLS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=60)


@given(
    st.lists(st.lists(CELLS, min_size=3, max_size=3), max_size=4),
    st.one_of(st.none(), st.integers(min_value=1, max_value=120)),
    st.lists(st.sampled_from(["a", "b", "c"]), unique=True),
)
def test_every_value_is_whole_at_every_width(rows: list[list[str]], width: int | None, right: list[str]) -> None:
    grid = Grid(("a", "b", "c"), right=tuple(right))
    for one in rows:
        grid.add(*one)
    lines: list[Any] = [line.plain for line in grid.lines(width)]
    shown = "\n".join(lines)
    assert all(cell in shown for one in rows for cell in one)
    if width is None:
        assert len(lines) == 1 + len(rows)


def test_styles_survive(fake: FakeTarnlog) -> None:
    grid = Grid(("check", ""))
    grid.add("x", Text("FAILED", style="red"))
    assert [span.style for line in grid.lines(20) for span in line.spans if span.style == "red"] == ["red"]
