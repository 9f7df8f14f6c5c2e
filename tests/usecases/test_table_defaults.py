"""Table property > service setting > default: for every property, and in what the service then does."""

from __future__ import annotations

from typing import Any

import pytest

from tarnlog.protocol.ids import TableName
from tarnlog.protocol.plans import PlanRequest
from tarnlog.protocol.predicates import Compare, to_builtins
from tarnlog.protocol.problems import ProblemError
from tarnlog.protocol.tables import AlterTable, PropertyChanges
from tarnlog_server.core.setting_values import Choice, Duration, Flag, Number, Whole
from tarnlog_server.core.table_settings import SETTINGS, Setting
from tarnlog_server.usecases.coordinator import Coordinator
from tests.usecases.replicas import ORDERS, Warehouse, add_line, commit, create, together
from tests.usecases.test_new_files import SCHEMA, stored_add


def two_values(known: Setting) -> tuple[str, str]:
    """Two texts of a property, neither of them its default."""
    kind: Any = known.values
    if isinstance(kind, Flag):
        return ("false", "true") if known.default else ("true", "false")
    if isinstance(kind, Choice):
        words = [word for word in kind.words if word != known.default]
        return words[0], words[-1] if len(words) > 1 else str(known.default)
    if isinstance(kind, Number):
        return "0.2", "0.3"
    assert isinstance(kind, Whole | Duration)
    least = max(kind.least, 1)
    near = 2 * int(known.default)
    first, second = (least + 1, least + 2) if near + 1 > kind.most else (near, near + 1)
    return str(first), str(second)


@pytest.mark.parametrize("name", SETTINGS)
async def test_the_table_beats_the_service_which_beats_the_default(warehouse: Warehouse, name: str) -> None:
    known = SETTINGS[name]
    of_service, of_table = two_values(known)
    plain, set_up = warehouse.replica(), warehouse.replica(table_defaults={name: of_service})
    await create(plain)
    await create(plain, "sales.own", properties={name: of_table})

    async def value(replica: Coordinator, table: str) -> Any:
        return (await replica.open_tables.get(TableName.parse(table), 0)).live.setting(name)

    assert await value(plain, "sales.orders") == known.default
    assert await value(set_up, "sales.orders") == known.values.parse(of_service)
    assert await value(plain, "sales.own") == await value(set_up, "sales.own") == known.values.parse(of_table)
    assert (await set_up.tables.describe(ORDERS)).defaults == {name: of_service}
    assert (await set_up.tables.describe(TableName.parse("sales.own"))).defaults == {}


async def test_the_interval_and_the_format_of_states(warehouse: Warehouse) -> None:
    replica = warehouse.replica(table_defaults={"checkpoint.interval": "3", "state.format": "json"})
    log = warehouse.log(await create(replica))
    table = await replica.open_tables.get(ORDERS)
    for number in range(2):
        assert not replica.checkpoints.due(table), number
        await commit(replica, add_line(f"f{number}"))
    assert replica.checkpoints.due(table)
    await replica.checkpoints.checkpoint(ORDERS)
    assert [key for key in warehouse.store.keys(log) if ".checkpoint.json" in key]
    await replica.tables.alter(ORDERS, properties(state__format="avro", checkpoint__interval="50"))
    assert not replica.checkpoints.due(table)
    assert not [key for key in warehouse.store.keys(log) if "state-v" in key]
    await replica.checkpoints.checkpoint(ORDERS)
    assert [key for key in warehouse.store.keys(log) if "state-v" in key]


def properties(**given: str) -> AlterTable:
    return AlterTable(properties=PropertyChanges(set={name.replace("__", "."): text for name, text in given.items()}))


async def test_commits_share_no_version_where_the_service_says_so(warehouse: Warehouse) -> None:
    for defaults, shared in (({}, True), ({"commit.coalesce": "false"}, False)):
        replica = warehouse.replica(table_defaults=defaults)
        name = f"sales.t{shared}"
        await create(replica, name)
        done = await together(replica, "a", "b", "c", "d", "e", to=TableName.parse(name))
        assert (len({one.version for one in done}) < 5) is shared


async def test_bounds_are_cut_to_the_services_length_and_no_filter_becomes_wrong(warehouse: Warehouse) -> None:
    """A replica without the setting, which reads the log alone, must not take a cut maximum for the true one."""
    replica = warehouse.replica(table_defaults={"stats.truncation.maxLength": "4"})
    log = warehouse.log(await create(replica, schema=SCHEMA))
    await commit(replica, add_line("a", minValues={"note": "abcdef"}, maxValues={"note": "abcdzz" * 10}))
    stored = stored_add(warehouse, log, 1)
    assert stored["minValues"] == {"note": "abcd"}
    assert stored["maxValues"] == {"note": ("abcdzz" * 10)[:32]}
    short = await commit(replica, add_line("b", minValues={"note": "abcdef"}, maxValues={"note": "abcdzz"}))
    assert stored_add(warehouse, log, short.version)["maxValues"] == {"note": "abcdzz"}
    for reader in (replica, warehouse.replica()):
        for value in ("abcdzy", "abcdzz", "abcdzza"):
            tree = to_builtins(Compare("ge", "note", value))
            page = await reader.plans.page(ORDERS, PlanRequest(filter=tree), None)
            assert "a" in [file.path for file in page.files], value


async def test_the_state_of_an_erase_follows_the_service_too(warehouse: Warehouse) -> None:
    replica = warehouse.replica(table_defaults={"state.entriesPerManifest": "2"})
    log = warehouse.log(await create(replica))
    await commit(replica, *(add_line(str(number)) for number in range(6)))
    await replica.erasing.erase(ORDERS)
    assert len(warehouse.store.keys(f"{log}manifests/")) == 3


async def test_a_mistyped_property_is_refused_and_a_superseded_one_explained(warehouse: Warehouse) -> None:
    replica = warehouse.replica()
    with pytest.raises(ProblemError, match=r"did you mean checkpoint\.interval\?"):
        await create(replica, properties={"checkpoint.intervall": "5"})
    view = await create(replica, properties={"checkpoint.retention": "5"})
    assert [note.property for note in view.notes] == ["checkpoint.retention"]
    with pytest.raises(ProblemError, match=r"did you mean state\.format\?") as caught:
        await replica.tables.alter(ORDERS, properties(state__formt="json"))
    assert caught.value.slug == "property-invalid"
    after = await replica.tables.alter(ORDERS, properties(transaction__useOptimized="true"))
    assert [note.property for note in after.notes] == ["checkpoint.retention", "transaction.useOptimized"]
    assert all("does nothing" in note.message for note in after.notes)
