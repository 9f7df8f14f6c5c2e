"""Every command, through the fake: what people see, what machines get, and the exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from tarnlog import (
    Client,
    Conflicted,
    Corrupt,
    Denied,
    NotNow,
    Rejected,
    TableApi,
    TableEntry,
    Unavailable,
    Unknown,
    VersionChange,
    Winner,
    new_commit_id,
)
from tarnlog.cli.main import app
from tarnlog.testing import FakeTarnlog


class Shell:
    """Runs commands against one api; remembers with which patience it was asked to connect."""

    def __init__(self, api: TableApi) -> None:
        self.api = api
        self.deadlines: list[float] = []

    def connect(self, *, deadline: float) -> TableApi:
        self.deadlines.append(deadline)
        return self.api

    def __call__(self, *arguments: str, code: int = 0, stdin: str | None = None) -> Result:
        result = CliRunner().invoke(app, list(arguments), obj=self.connect, input=stdin)
        assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
        return result

    def document(self, *arguments: str, code: int = 0, stdin: str | None = None) -> Any:
        return json.loads(self(*arguments, "--json", code=code, stdin=stdin).stdout)

    def lines(self, *arguments: str) -> list[Any]:
        return [json.loads(line) for line in self(*arguments, "--json").stdout.splitlines()]


@pytest.fixture
def fake() -> FakeTarnlog:
    return FakeTarnlog()


@pytest.fixture
def run(fake: FakeTarnlog) -> Shell:
    return Shell(fake)


@pytest.fixture
def orders(run: Shell, fake: FakeTarnlog) -> str:
    """Version 0 creates, 1 adds a and b, 2 replaces a by c, 3 alters."""
    run("create", "sales.orders", "--schema", "id long not null, day date", "--partition-by", "day")
    with fake.transaction("sales.orders", operation_parameters={"mode": "Append"}) as tx:
        tx.add("day=1/a", size=2048, partition_values={"day": "2024-01-01"}, num_records=1000, modification_time=0)
        tx.add("day=1/b", size=10, partition_values={"day": None})
    with fake.transaction("sales.orders", operation="MERGE") as tx:
        tx.remove("day=1/a", size=2048)
        tx.add("day=1/c", size=4096)
    run("alter", "sales.orders", "--set", "owner=me", "--add-column", "note string", "--description", "All orders")
    return "sales.orders"


def test_tables(run: Shell, orders: str, fake: FakeTarnlog) -> None:
    run("create", "other.t", "--schema", "id long")
    assert [entry["name"] for entry in run.lines("tables")] == ["other.t", "sales.orders"]
    assert [entry["name"] for entry in run.lines("tables", "--namespace", "sales")] == ["sales.orders"]
    assert [(entry["version"], entry["numFiles"]) for entry in run.lines("tables")] == [(0, 0), (3, 2)]
    assert "version" not in run.lines("tables", "--no-details")[0]
    heading, first, second = (line.split() for line in run("tables").stdout.splitlines())
    assert heading == ["table", "version", "files", "size", "location"]
    assert first[:5] == ["other.t", "0", "0", "0", "B"]
    assert second[:6] == ["sales.orders", "3", "2", "4.0", "KiB", fake.get_table("sales.orders").location]


def test_a_table_that_cannot_be_read_does_not_end_the_listing(
    run: Shell, fake: FakeTarnlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        run("create", f"a.t{number}", "--schema", "id long")
    whole = FakeTarnlog.get_table

    def get_table(self: FakeTarnlog, name: str) -> Any:
        if name == "a.t1":
            raise Corrupt("version 3 cannot be read", slug="log-corrupt")
        return whole(self, name)

    entries = [TableEntry(name=f"a.t{number}", id=str(number), location="x") for number in range(3)]
    monkeypatch.setattr(FakeTarnlog, "list_tables", lambda self, namespace=None: iter(entries))
    monkeypatch.setattr(FakeTarnlog, "get_table", get_table)
    result = run("tables")
    assert "a.t1: version 3 cannot be read" in result.stderr
    assert [line.split()[1] for line in result.stdout.splitlines()[1:]] == ["0", "?", "0"]


def test_a_long_listing_looks_at_the_first_hundred(run: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    run("create", "a.t0", "--schema", "id long")
    asked: list[str] = []
    whole = FakeTarnlog.get_table

    def get_table(self: FakeTarnlog, name: str) -> Any:
        asked.append(name)
        return whole(self, "a.t0")

    entries = [TableEntry(name=f"a.t{number}", id=str(number), location="x") for number in range(150)]
    monkeypatch.setattr(FakeTarnlog, "list_tables", lambda self, namespace=None: iter(entries))
    monkeypatch.setattr(FakeTarnlog, "get_table", get_table)
    result = run("tables")
    assert sorted(asked) == sorted(entry.name for entry in entries[:100])
    assert len(result.stdout.splitlines()) == 151
    assert "the first 100" in result.stderr


def test_no_tables_says_how_to_begin(run: Shell) -> None:
    result = run("tables")
    assert result.stdout == ""
    assert "tarnlog create" in result.stderr
    assert run("tables", "--json").stdout == ""


def test_create_from_a_file_with_everything(run: Shell, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "struct", "fields": [{"name": "id", "type": "long"}, {"name": "d", "type": "date"}]}')
    made = run.document(
        *("create", "a.b", "--schema", str(schema), "--partition-by", "id,d", "--property", "k=v=w"),
        *("--location", "/somewhere", "--description", "words"),
    )
    assert (made["partitionColumns"], made["properties"]) == (["id", "d"], {"k": "v=w"})
    assert (made["location"], made["description"]) == ("/somewhere", "words")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["create", "a.b", "--schema", "id nonsense"], "is no type"),
        (["create", "a.b", "--schema", "id long", "--property", "novalue"], "key=value"),
        (["create", "a.b"], "--schema"),
        (["files", "a.b", "--timestamp", "yesterday"], "ISO 8601"),
        (["files", "a.b", "--timestamp", "0", "--version", "1"], "not both"),
        (["alter", "a.b"], "say what to change"),
        (["alter", "a.b", "--schema", "id long", "--add-column", "x long"], "not both"),
        (["history", "a.b", "--limit", "0"], "limit"),
        (["diff", "a.b", "x", "1"], "integer"),
        (["nonsense"], "nonsense"),
    ],
)
def test_wrong_usage_is_2_and_says_why(run: Shell, arguments: list[str], message: str) -> None:
    result = run(*arguments, code=2)
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert result.stdout == ""


def test_problems_are_1_with_the_code_and_a_way_on(run: Shell, orders: str) -> None:
    result = run("describe", "no.table", code=1)
    assert "table-not-found" in result.stderr
    assert "tarnlog tables" in result.stderr
    assert result.stdout == ""
    assert "namespace.name" in run("describe", "*", code=1).stderr
    assert "table-exists" in run("create", orders, "--schema", "id long", code=1).stderr
    assert "tarnlog history" in run("files", orders, "--version", "99", code=1).stderr
    assert "tarnlog history" in run("files", orders, "--timestamp", "1970-01-02", code=1).stderr


def test_describe(run: Shell, orders: str) -> None:
    shown = run("describe", orders).stdout
    for text in ("All orders", "2 files, 4.0 KiB", "not null", "partition", "owner", "note"):
        assert text in shown, shown
    assert run.document("describe", orders)["version"] == 3


def test_history(run: Shell, orders: str) -> None:
    assert [record["version"] for record in run.lines("history", orders)] == [3, 2, 1, 0]
    assert [record["version"] for record in run.lines("history", orders, "--from", "1", "--to", "2")] == [2, 1]
    assert [record["version"] for record in run.lines("history", orders, "--oldest-first", "--limit", "2")] == [0, 1]
    result = run("history", orders, "--limit", "2")
    assert "MERGE" in result.stdout
    assert "WRITE" not in result.stdout
    assert "--limit" in result.stderr
    assert "mode=Append" in run("history", orders).stdout
    assert " by " not in run("history", orders).stdout


def test_history_says_who_where_that_is_known() -> None:
    fake = FakeTarnlog(committed_by="etl")
    run = Shell(fake)
    run("create", "db.t", "--schema", "id long")
    with fake.transaction("db.t") as tx:
        tx.add("a", size=1)
    shown = run("history", "db.t").stdout
    assert " by " in shown
    assert shown.count("etl") == 2
    assert [record["committedBy"] for record in run.lines("history", "db.t")] == ["etl", "etl"]


def test_files(run: Shell, orders: str, fake: FakeTarnlog) -> None:
    result = run("files", orders)
    assert "day=1/c" in result.stdout
    assert "4.0 KiB" in result.stdout
    assert "version 3" in result.stderr
    shown = run("files", orders, "--version", "1").stdout
    for text in ("day=1/a", "2.0 KiB", "1,000", "day=2024-01-01", "day=null", "1970-01-01"):
        assert text in shown
    then = next(iter(fake.history(orders, from_=1, to=1))).timestamp
    assert {file["path"] for file in run.lines("files", orders, "--timestamp", str(then))} == {"day=1/a", "day=1/b"}
    assert "the first 1 are shown" in run("files", orders, "--limit", "1").stderr


def test_diff(run: Shell, orders: str) -> None:
    found = run.document("diff", orders, "1", "3")
    assert found["added"] == [{"path": "day=1/c", "size": 4096}]
    assert found["removed"] == [{"path": "day=1/a", "size": 2048}]
    assert found["columns"] == [{"name": "note", "before": None, "after": "string"}]
    assert found["properties"] == [{"name": "owner", "before": None, "after": "me"}]
    assert found["table"] == [{"name": "description", "before": None, "after": "All orders"}]
    back = run.document("diff", orders, "3", "1")
    assert (back["added"], back["removed"]) == (found["removed"], found["added"])
    assert back["columns"] == [{"name": "note", "before": "string", "after": None}]
    # a came and went between 0 and 3
    assert [file["path"] for file in run.document("diff", orders, "0", "3")["added"]] == ["day=1/b", "day=1/c"]
    shown = run("diff", orders, "1", "3").stdout
    for text in ("+ day=1/c", "- day=1/a", "column note: - → string", "property owner: - → me"):
        assert text in shown
    assert "No difference" in run("diff", orders, "2", "2").stderr


def test_diff_of_a_file_that_was_removed_and_came_back(run: Shell, orders: str, fake: FakeTarnlog) -> None:
    with fake.transaction(orders) as tx:
        tx.remove("day=1/b")
    with fake.transaction(orders) as tx:
        tx.add("day=1/b", size=99)
    found = run.document("diff", orders, "3", "5")
    assert found["rewritten"] == [{"path": "day=1/b", "size": 99}]
    assert (found["added"], found["removed"]) == ([], [])


def test_alter(run: Shell, orders: str) -> None:
    done = run.document("alter", orders, "--unset", "owner", "--set", "a=b", "--add-column", "x int, y array<int>")
    assert done["properties"] == {"a": "b"}
    assert [field["name"] for field in done["schema"]["fields"]] == ["id", "day", "note", "x", "y"]
    assert done["description"] == "All orders"
    assert run.document("alter", orders, "--description", "")["description"] == ""
    assert "twice" in run("alter", orders, "--add-column", "ID long", code=2).stderr


def test_drop_without_a_terminal_needs_yes(run: Shell, orders: str) -> None:
    """Before, only a purge asked, and a script's `yes | tarnlog drop` was taken for a person."""
    for arguments in (["drop", orders], ["drop", orders, "--purge"]):
        result = run(*arguments, code=2, stdin="y\n")
        assert "Nothing was dropped" in result.stderr
        assert f"`tarnlog {' '.join(arguments)} --yes`" in result.stderr
    assert orders in run("tables").stdout


def test_drop_says_where_the_files_are_and_how_to_register_them(run: Shell, orders: str, fake: FakeTarnlog) -> None:
    location = fake.get_table(orders).location
    shown = run("drop", orders, "--yes").stdout
    assert location in shown
    assert f"tarnlog register {orders} {location} --foreign-writers-stopped" in shown.splitlines()
    assert run.lines("tables") == []
    assert "table-not-found" in run("drop", orders, "--yes", code=1).stderr


def test_a_purge_leaves_nothing_to_register(run: Shell, orders: str, fake: FakeTarnlog) -> None:
    location = fake.get_table(orders).location
    run("create", "sales.more", "--schema", "id long")
    assert "cannot be registered again" in run("drop", "sales.more", "--purge", "--yes").stdout
    done = run.document("drop", orders, "--purge", "--yes")
    assert done == {"dropped": orders, "purged": True, "location": location}
    assert run.lines("tables") == []


def test_register_hands_the_problem_on(run: Shell) -> None:
    assert "log-not-supported" in run("register", "a.b", "/somewhere", code=1).stderr


def body(**fields: Any) -> str:
    add = {"path": "new", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    return json.dumps({"actions": [{"add": add}], **fields})


def test_commit_from_stdin_and_from_a_file(run: Shell, orders: str, tmp_path: Path) -> None:
    mine = new_commit_id()
    file = tmp_path / "commit.json"
    file.write_text(body(commitId=mine, operation="LOAD"))
    done = run.document("commit", orders, "--file", str(file))
    assert (done["outcome"], done["version"], done["commitId"]) == ("committed", 4, mine)
    again = run("commit", orders, stdin=body(commitId=mine, operation="LOAD"))
    assert "version 4," in again.stdout
    assert "there already" in again.stdout
    assert run.document("commit-status", orders, mine)["version"] == 4
    assert run.lines("history", orders, "--limit", "1")[0]["operation"] == "LOAD"


def test_a_commit_without_an_id_gets_one_and_says_so_first(run: Shell, orders: str) -> None:
    result = run("commit", orders, stdin=body())
    commit_id = result.stderr.split()[-1]
    assert commit_id in result.stdout
    assert run.document("commit-status", orders, commit_id)["outcome"] == "committed"


@pytest.mark.parametrize(
    "text", ["", "nonsense", "{}", '{"actions": []}', '{"actions": [{}]}', body(readVersion=-1), body(unknown=1)]
)
def test_a_commit_that_is_none_is_wrong_usage(run: Shell, orders: str, text: str) -> None:
    run("commit", orders, code=2, stdin=text)


@pytest.mark.parametrize(
    "outcome, code, words",
    [
        (Unknown, 3, ["Delete nothing", "commit-status"]),
        (NotNow, 1, ["commit-contended", "again in 1 seconds"]),
        (Rejected, 1, ["commit-invalid"]),
        (
            Conflicted(
                commit_id="",
                rule="append",
                detail="somebody was first",
                winners=(Winner(version=7, seq=1, commit_id=None, operation="MERGE"),),
                paths=("some/path",),
            ),
            1,
            ["somebody was first", "rule append", "version 7.1 (MERGE)", "some/path", "Read the table again"],
        ),
    ],
    ids=["unknown", "not-now", "rejected", "conflict"],
)
def test_outcomes(run: Shell, orders: str, fake: FakeTarnlog, outcome: Any, code: int, words: list[str]) -> None:
    fake.next_commit(outcome)
    result = run("commit", orders, code=code, stdin=body())
    for word in words:
        assert word in result.stderr
    fake.next_commit(outcome)
    assert run.document("commit", orders, code=code, stdin=body())["outcome"] != "committed"


def test_a_commit_that_is_not_in_the_log_is_not_final(run: Shell, orders: str) -> None:
    missing = new_commit_id()
    result = run("commit-status", orders, missing, code=3)
    assert "not final" in result.stderr
    assert run.document("commit-status", orders, missing, code=3)["outcome"] == "not-in-log"


def test_watch(run: Shell, orders: str) -> None:
    assert [change["version"] for change in run.lines("watch", orders, "--from", "1")] == [1, 2, 3]
    result = run("watch", orders, "--from", "1")
    assert "+2 files (2.0 KiB)" in result.stdout
    assert "-1 file" in result.stdout
    assert "MERGE" in result.stdout
    assert "Ctrl-C" in result.stderr
    assert max(run.deadlines) > 60


def test_ctrl_c_is_the_clean_end_of_watching(run: Shell, orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: FakeTarnlog, table: str, *, after: int | None = None) -> Iterator[VersionChange]:
        yield from self.changes(table, 1, 1)
        raise KeyboardInterrupt

    monkeypatch.setattr(FakeTarnlog, "events", interrupted)
    result = run("watch", orders)
    assert "+2 files" in result.stdout
    assert "Traceback" not in result.stderr


def test_markup_in_names_is_only_text(run: Shell) -> None:
    run("create", "a.b", "--schema", "`[red]x[/nonsense]` long", "--property", "[bold]=[/x]")
    shown = run("describe", "a.b").stdout
    assert "[red]x[/nonsense]" in shown
    assert "[/x]" in shown


def broken(error: Exception) -> Shell:
    class Broken(FakeTarnlog):
        def get_table(self, name: str) -> Any:
            raise error

    return Shell(Broken())


def test_advice_for_keys_and_for_later() -> None:
    assert "TARNLOG_API_KEY" in broken(Denied("no", slug="unauthenticated"))("describe", "a.b", code=1).stderr
    assert "in 7 seconds" in broken(Unavailable("no", retry_after=7.0))("describe", "a.b", code=1).stderr


def refusing(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("Connection refused")


@pytest.mark.parametrize(
    "arguments", [["tables"], ["describe", "a.b"], ["watch", "a.b"], ["commit", "a.b", "--deadline", "1"]]
)
def test_a_service_that_is_not_there_is_4(arguments: list[str]) -> None:
    client = Client(transport=httpx.MockTransport(refusing), deadline=0)
    result = Shell(client)(*arguments, code=4, stdin=body())
    assert "Is it running?" in result.stderr
    assert "tarnlog serve" in result.stderr
    assert "Connection refused" in result.stderr
    assert result.stdout == ""


def test_serve_without_the_service_says_what_to_install(monkeypatch: pytest.MonkeyPatch, run: Shell) -> None:
    monkeypatch.setitem(sys.modules, "tarnlog_server.cli", None)
    assert "pip install tarnlog-server" in run("serve", code=1).stderr


def test_serve_hands_its_arguments_on(monkeypatch: pytest.MonkeyPatch, run: Shell, tmp_path: Path) -> None:
    given: dict[str, Any] = {}
    module = ModuleType("tarnlog_server.cli")
    module.__dict__["serve"] = lambda **arguments: given.update(arguments)
    monkeypatch.setitem(sys.modules, "tarnlog_server.cli", module)
    config = tmp_path / "tarnlog.toml"
    config.touch()
    run("serve", "--port", "9000", "--warehouse", "s3://b/p", "--config", str(config))
    assert given == {"host": None, "port": 9000, "warehouse": "s3://b/p", "config": config}


def test_version_and_help(run: Shell) -> None:
    assert run("--version").stdout.startswith("tarnlog ")
    assert "commit-status" in run("--help").stdout
