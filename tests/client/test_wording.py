"""Advice fits where it appears: no HTTP calls, headers or JSON fields in exceptions and at the command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tarnlog import Client, CommitConflict, Committed, Conflicted, Remove, TarnlogError, Winner, raise_for_outcome
from tarnlog._wording import CALLS, FIELDS, command_words, python_words
from tarnlog.cli.main import app
from tarnlog.testing import FakeTarnlog
from tests.cli.test_commands import Shell, body
from tests.client.scripted import SCHEMA
from tests.docs.tables import operations

HTTP = re.compile(
    r"\b(GET|POST|PUT|PATCH|DELETE) /|/v1/|\bAuthorization\b|\bBearer\b|\b[a-z]+[a-z]*Stopped\b|readVersion"
    r"|adoptExistingFiles|cooldownHours"
)


def test_every_call_of_the_service_has_its_method_and_its_command() -> None:
    served = {(one.method, re.sub(r":path}", "}", one.path)) for one in operations() if one.path.startswith("/v1")}
    assert served == CALLS.keys()
    commands = {one.name for one in app.registered_commands}
    for words in CALLS.values():
        method = re.match(r"client\.(\w+)\(", words.python)
        assert method is not None
        assert hasattr(Client, method[1]), words.python
        command = re.match(r"`tarnlog ([\w-]+)", words.command)
        assert command is None or command[1] in commands, words.command


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_a_call_is_named_in_the_readers_words(call: tuple[str, str]) -> None:
    method, path = call
    text = f"ask again ({method} {re.sub(r'{[^}]*}', 'sales.orders', path)}), then go on"
    for say in (python_words, command_words):
        assert not HTTP.search(say("", text))
        assert say("", text).startswith("ask again (")
        assert say("", text).endswith("), then go on")


def test_fields_are_arguments_and_options() -> None:
    text = "register it again with foreignWritersStopped: true to write to it"
    assert python_words("", text) == "register it again with foreign_writers_stopped=True to write to it"
    assert command_words("", text) == "register it again with --foreign-writers-stopped to write to it"
    assert command_words("", "create it with adoptExistingFiles: true") == "create it with --adopt-existing-files"
    assert python_words("", "/retentionHours: too low") == "retention_hours: too low"
    assert python_words("", "/actions/0/add/partitionValues: no") == "/actions/0/add/partitionValues: no"
    assert all(words.python != name for name, words in FIELDS.items())


def no_table(client: Client) -> Any:
    return client.get_table("no.table")


def no_table_to_commit_to(client: Client) -> Any:
    with client.transaction("no.table") as tx:
        tx.add("a", size=1)


def no_table_to_verify(client: Client) -> Any:
    return client.verify("no.table")


def no_read_version(client: Client) -> Any:
    if not [*client.list_tables("words")]:
        client.create_table("words.t", SCHEMA)
    return raise_for_outcome(client.commit("words.t", [Remove(path="a", data_change=True)]))


def no_log(client: Client) -> Any:
    place = client.get_table("words.t").location if [*client.list_tables("words")] else "/nowhere"
    return client.register_table("words.u", place + "-not")


def location_not_empty(client: Client) -> Any:
    if not [*client.list_tables("words")]:
        client.create_table("words.t", SCHEMA)
    table = client.get_table("words.t").location
    place = Path(unquote(urlsplit(table).path)).parent / "own"
    place.mkdir(exist_ok=True)
    (place / "mine.parquet").touch()
    return client.create_table("words.own", SCHEMA, location=str(place))


@pytest.mark.parametrize(
    "call", [no_table, no_table_to_commit_to, no_table_to_verify, no_read_version, no_log, location_not_empty]
)
def test_the_exceptions_of_a_live_service(live_url: str, call: Callable[[Client], Any]) -> None:
    with Client(live_url) as client, pytest.raises(TarnlogError) as caught:
        call(client)
    assert not HTTP.search(str(caught.value)), str(caught.value)
    if caught.value.slug == "table-not-found":
        assert "client.create_table(" in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [["describe", "no.table"], ["verify", "no.table"], ["commit", "no.table"], ["vacuum", "no.table"]],
    ids=lambda arguments: arguments[0],
)
def test_the_messages_of_the_command_line(live_url: str, arguments: list[str]) -> None:
    with Client(live_url) as client:
        shown = Shell(client)(*arguments, code=1, stdin=body()).stderr
    assert "table-not-found" in shown
    assert "tarnlog create" in shown
    assert not HTTP.search(shown), shown


def test_a_conflict_names_its_rule_its_winners_and_its_paths() -> None:
    winners = tuple(Winner(version=7, seq=seq, commit_id=None, operation="MERGE") for seq in range(5))
    conflict = CommitConflict(
        Conflicted(commit_id="c", rule="append", detail="added since readVersion", winners=winners, paths=("a", "b"))
    )
    text = str(conflict)
    assert text.startswith("added since read_version (rule append; won by version 7 (MERGE), version 7.1 (MERGE), ")
    assert "and 2 more" in text
    assert text.endswith("about a, b)")


def test_a_live_conflict_says_what_won(live_url: str) -> None:
    with Client(live_url) as client:
        client.create_table("words.conflict", SCHEMA)
        with client.transaction("words.conflict") as tx:
            tx.add("a", size=1)
        for number in range(2):
            with client.transaction("words.conflict", operation="DELETE", read_version=1, check=False) as tx:
                tx.remove("a")
            assert tx.outcome is not None
            if number == 0:
                assert str(tx.outcome) == f"committed at version 2 (commit {tx.commit_id})"
                continue
            with pytest.raises(
                CommitConflict, match=r"rule delete-delete; won by version 2 \(DELETE, commit .*about a"
            ):
                raise_for_outcome(tx.outcome)


def test_a_seq_is_shown_where_there_is_one() -> None:
    first = Committed(commit_id="c", version=3, seq=0, timestamp=1)
    assert str(first) == "committed at version 3 (commit c)"
    assert "version 3.2," in str(Committed(commit_id="c", version=3, seq=2, timestamp=1, replayed=True))


def test_the_fake_advises_as_the_client_does() -> None:
    with pytest.raises(TarnlogError, match=r"client\.create_table\("):
        FakeTarnlog().get_table("no.table")
