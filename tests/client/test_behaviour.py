"""What a user of the interface may rely on, over the fake and over the service."""

from __future__ import annotations

import pytest

from tarnlog import (
    Add,
    Committed,
    Conflict,
    Conflicted,
    InvalidRequest,
    NotFound,
    NotInLog,
    Rejected,
    Remove,
    TableApi,
    Txn,
    new_commit_id,
    raise_for_outcome,
)
from tests.client.scripted import SCHEMA


def add(path: str, size: int = 10, records: int | None = None) -> Add:
    return Add(path=path, partition_values={}, size=size, modification_time=1, data_change=True, num_records=records)


def remove(path: str) -> Remove:
    return Remove(path=path, data_change=True, deletion_timestamp=1)


def paths(api: TableApi, table: str, version: int | None = None) -> set[str]:
    return {file.path for file in api.files(table, version=version)}


def slug(outcome: object) -> str:
    assert isinstance(outcome, Rejected), outcome
    return str(outcome.problem["type"]).rsplit("/", 1)[-1]


def test_a_new_table(api: TableApi, table: str) -> None:
    info = api.get_table(table)
    assert (info.name, info.version, info.num_files, info.description) == (table, 0, 0, "a table")
    assert info.properties["owner"] == "tests"
    assert info.schema["fields"][0]["name"] == "id"
    assert info.id in info.location
    assert table in {entry.name for entry in api.list_tables("behaviour")}
    assert table not in {entry.name for entry in api.list_tables("elsewhere")}
    with pytest.raises(Conflict) as caught:
        api.create_table(table, SCHEMA)
    assert caught.value.slug == "table-exists"


def test_a_table_that_is_not_there(api: TableApi) -> None:
    for act in (
        lambda: api.get_table("behaviour.none"),
        lambda: api.snapshot("behaviour.none"),
        lambda: list(api.files("behaviour.none")),
        lambda: list(api.history("behaviour.none")),
        lambda: api.drop_table("behaviour.none"),
        lambda: api.txn("behaviour.none", "app"),
    ):
        with pytest.raises(NotFound) as caught:
            act()
        assert caught.value.slug == "table-not-found"
    assert slug(api.commit("behaviour.none", [add("a")])) == "table-not-found"


def test_a_bad_schema_is_refused(api: TableApi) -> None:
    with pytest.raises(InvalidRequest) as caught:
        api.create_table("behaviour.bad", {"type": "struct", "fields": [{"name": "x", "type": "nonsense"}]})
    assert caught.value.slug == "schema-invalid"
    with pytest.raises(InvalidRequest):
        api.create_table("behaviour.bad", SCHEMA, partition_by=["missing"])


def test_blind_appends_land_one_after_the_other(api: TableApi, table: str) -> None:
    first = raise_for_outcome(api.commit(table, [add("a", 10, 1), add("b", 20, 2)]))
    second = raise_for_outcome(api.commit(table, [add("c", 30, 3)]))
    assert (first.version, second.version) == (1, 2)
    assert first.timestamp < second.timestamp
    assert paths(api, table) == {"a", "b", "c"}
    assert paths(api, table, version=1) == {"a", "b"}
    assert paths(api, table, version=0) == set()
    info = api.get_table(table)
    assert (info.version, info.num_files, info.total_bytes, info.num_records) == (2, 3, 60, 6)


def test_a_resend_answers_what_happened_then(api: TableApi, table: str) -> None:
    mine = new_commit_id()
    first = raise_for_outcome(api.commit(table, [add("a")], commit_id=mine))
    raise_for_outcome(api.commit(table, [add("b")]))
    again = raise_for_outcome(api.commit(table, [add("a")], commit_id=mine))
    assert again.replayed
    assert (again.version, again.seq, again.timestamp) == (first.version, first.seq, first.timestamp)
    assert api.get_table(table).version == 2
    assert slug(api.commit(table, [add("other")], commit_id=mine)) == "commit-id-reused"


def test_the_status_of_a_commit(api: TableApi, table: str) -> None:
    mine = new_commit_id()
    assert isinstance(api.commit_status(table, mine), NotInLog)
    raise_for_outcome(api.commit(table, [add("a")], commit_id=mine))
    found = api.commit_status(table, mine)
    assert isinstance(found, Committed)
    assert found.version == 1


def test_removing_and_the_second_who_removes(api: TableApi, table: str) -> None:
    raise_for_outcome(api.commit(table, [add("a"), add("b")]))
    winner = raise_for_outcome(api.commit(table, [remove("a"), add("c")], read_version=1, operation="MERGE"))
    assert paths(api, table) == {"b", "c"}
    outcome = api.commit(table, [remove("a"), add("d")], read_version=1, operation="MERGE")
    assert isinstance(outcome, Conflicted)
    assert (outcome.rule, outcome.paths) == ("delete-delete", ("a",))
    assert [(each.version, each.operation) for each in outcome.winners] == [(winner.version, "MERGE")]
    assert paths(api, table) == {"b", "c"}


def test_invalid_commits_write_nothing(api: TableApi, table: str) -> None:
    raise_for_outcome(api.commit(table, [add("a")]))
    assert slug(api.commit(table, [add("a")])) == "commit-invalid"
    assert slug(api.commit(table, [add("b"), add("b")])) == "commit-invalid"
    assert slug(api.commit(table, [add("../b")])) == "commit-invalid"
    assert slug(api.commit(table, [remove("a")])) == "commit-invalid"
    assert slug(api.commit(table, [remove("a")], read_version=99)) == "commit-invalid"
    assert api.get_table(table).version == 1


def test_an_application_does_not_go_back(api: TableApi, table: str) -> None:
    assert api.txn(table, "stream") is None
    raise_for_outcome(api.commit(table, [add("a"), Txn(app_id="stream", version=5)], read_version=0))
    txn = api.txn(table, "stream")
    assert txn is not None
    assert txn.version == 5
    outcome = api.commit(table, [add("b"), Txn(app_id="stream", version=5)], read_version=1)
    assert isinstance(outcome, Conflicted)
    assert (outcome.rule, outcome.retry, outcome.last_txn_version) == ("txn", "never", 5)
    raise_for_outcome(api.commit(table, [add("b"), Txn(app_id="stream", version=9)], read_version=1))
    assert api.snapshot(table).txns == {"stream": 9}
    assert api.snapshot(table, version=1).txns == {"stream": 5}


def test_history_newest_first_and_the_other_way(api: TableApi, table: str) -> None:
    for name in "abc":
        raise_for_outcome(api.commit(table, [add(name)], operation=f"WRITE {name}", operation_parameters={"n": name}))
    assert [record.version for record in api.history(table)] == [3, 2, 1, 0]
    assert [record.version for record in api.history(table, from_=1, to=2, order="asc")] == [1, 2]
    newest = next(iter(api.history(table)))
    assert (newest.operation, newest.operation_parameters, newest.is_blind_append) == ("WRITE c", {"n": "c"}, True)
    assert [record.version for record in api.history(table, page_size=1)] == [3, 2, 1, 0]


def test_one_version(api: TableApi, table: str) -> None:
    raise_for_outcome(api.commit(table, [add("a")]))
    info = api.version(table, 1)
    assert [action for action in info.actions if isinstance(action, Add)] == [add("a")]
    assert len(info.commits) == 1
    assert info.action_counts == (len(info.actions),)
    with pytest.raises(NotFound) as caught:
        api.version(table, 7)
    assert caught.value.slug == "version-not-found"


def test_time_travel(api: TableApi, table: str) -> None:
    first = raise_for_outcome(api.commit(table, [add("a")]))
    second = raise_for_outcome(api.commit(table, [add("b")]))
    assert api.snapshot(table, timestamp=first.timestamp).version == 1
    assert api.snapshot(table, timestamp=second.timestamp - 1).version == 1
    assert api.snapshot(table, timestamp=second.timestamp).version == 2
    assert api.snapshot(table, timestamp=second.timestamp + 10**7).version == 2
    with pytest.raises(NotFound):
        api.snapshot(table, timestamp=1)
    with pytest.raises(NotFound):
        api.snapshot(table, version=9)


def test_changes_are_complete(api: TableApi, table: str) -> None:
    raise_for_outcome(api.commit(table, [add("a")]))
    raise_for_outcome(api.commit(table, [remove("a"), add("b")], read_version=1))
    found = list(api.changes(table, 1))
    assert [change.version for change in found] == [1, 2]
    assert [file.path for file in found[1].adds] == ["b"]
    assert [file.path for file in found[1].removes] == ["a"]
    assert [change.version for change in api.changes(table, 0, 1, page_size=1)] == [0, 1]
    feed = api.events(table, after=0)
    assert [next(feed).version, next(feed).version] == [1, 2]


def test_altering(api: TableApi, table: str) -> None:
    wider = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "x", "type": "string", "nullable": True, "metadata": {}}]}
    info = api.alter_table(table, set_properties={"team": "red"}, unset_properties=["owner"], schema=wider)
    assert info.version == 1
    assert info.properties.get("team") == "red"
    assert "owner" not in info.properties
    assert [field["name"] for field in info.schema["fields"]] == ["id", "x"]
    assert info.description == "a table"
    assert api.alter_table(table, description="another").description == "another"


def test_dropped_is_gone_and_the_name_is_free(api: TableApi, table: str) -> None:
    before = api.get_table(table).id
    api.drop_table(table)
    with pytest.raises(NotFound):
        api.get_table(table)
    assert api.create_table(table, SCHEMA).id != before


def test_only_changes_tell_whether_a_commit_changed_data(api: TableApi, table: str) -> None:
    """A listing is of files, and says the same from a log and from a state, which does not keep it."""
    raise_for_outcome(api.commit(table, [add("a")]))
    for _ in range(2):
        assert [file.data_change for file in api.files(table)] == [False]
        assert [file.data_change for file in api.plan(table).files] == [False]
        api.checkpoint(table, "json")
    (change,) = api.changes(table, 1, 1)
    assert [file.data_change for file in change.adds] == [True]


def test_a_skipped_file_stays_live(api: TableApi, table: str) -> None:
    raise_for_outcome(api.commit(table, [add("a")]))
    first = api.record_skip(table, "a", reason="broken footer", operation="MERGE", cooldown_hours=1)
    assert (first.path, first.skip_count) == ("a", 1)
    second = api.record_skip(table, "a", reason="broken footer", operation="MERGE", cooldown_hours=2)
    assert second.skip_count == 2
    assert paths(api, table) == {"a"}
    assert [skip.reason for skip in api.skips(table)] == ["broken footer"]
    assert api.cooldowns(table) == {"a": second.retry_after}
    third = api.record_skip(table, "a", reason="broken footer", operation="MERGE", cooldown_hours=0.5)
    assert (third.skip_count, third.retry_after) == (3, second.retry_after), "the longer cooldown stays"
    raise_for_outcome(api.commit(table, [remove("a")], read_version=api.get_table(table).version))
    assert list(api.skips(table)) == []
    assert api.cooldowns(table) == {}


def test_a_transaction(api: TableApi, table: str) -> None:
    raise_for_outcome(api.commit(table, [add("a")]))
    with api.transaction(table, operation="REWRITE") as tx:
        tx.read(paths=["a"])
        assert [file.path for file in tx.files()] == ["a"]
        tx.remove("a")
        tx.add("a2", size=5)
    assert isinstance(tx.outcome, Committed)
    assert paths(api, table) == {"a2"}
    assert next(iter(api.history(table))).operation == "REWRITE"


def test_health_and_caches(api: TableApi) -> None:
    assert api.health().ready
    assert isinstance(api.cache_stats(), dict)


def test_a_cleanup_keeps_what_is_young(api: TableApi, table: str) -> None:
    api.commit(table, [add("a")])
    for dry_run, status in ((True, "dry-run"), (False, "success")):
        done = api.cleanup(table, dry_run=dry_run)
        assert (done.table_name, done.status, done.floor, done.checkpoint_version) == (table, status, 0, None)
        assert (done.versions_deleted, done.states_deleted, done.files_preserved) == (0, 0, 2)
        assert done.message
    with pytest.raises(NotFound):
        api.cleanup("behaviour.none")


def test_states_are_written_when_asked_for(api: TableApi, table: str) -> None:
    api.commit(table, [add("a", 10), add("b", 5)])
    none = api.state(table)
    assert (none.status, none.version, none.format, none.num_files, none.total_bytes) == ("none", None, None, 2, 15)
    written = api.checkpoint(table)
    assert (written.table_name, written.status, written.checkpoint_version) == (table, "success", 1)
    assert (written.num_files, written.num_actions, written.protocol_version) == (2, 4, 4)
    state = api.state(table)
    assert (state.status, state.version, state.format) == ("ours", 1, "avro-state")
    assert (state.num_files, state.num_manifests, state.total_bytes, state.needs_compaction) == (2, 1, 15, False)
    api.commit(table, [add("c")])
    assert api.checkpoint(table, "parquet").checkpoint_version == 2
    api.commit(table, [add("d", 7)])
    state = api.state(table)
    assert (state.format, state.version, state.num_files) == ("parquet", 2, 3), "the files of its own version"
    assert api.compact(table).num_files == 4
    assert (api.state(table).format, api.state(table).num_tombstones) == ("avro-state", 0)
    with pytest.raises(NotFound):
        api.checkpoint("behaviour.none")


def test_a_transaction_may_say_what_it_read_in_sql(api: TableApi, table: str) -> None:
    for asked in ("id > 5", {"op": "gt", "column": "id", "value": 5}):
        with api.transaction(table, isolation="serializable") as tx:
            assert tx.read(filter=asked) == api.get_table(table).version
            tx.add(f"{tx.commit_id}", size=1)
        assert isinstance(tx.outcome, Committed)
