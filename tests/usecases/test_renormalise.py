"""Mappings that other writers named by their own rules get one name for each meaning; every file keeps its mapping."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tarnlog.arrow_files import adds_of
from tarnlog.protocol.actions import Add
from tarnlog.protocol.ids import TableName
from tarnlog.protocol.plans import PlanRequest
from tarnlog_server.codec.paths import LogPaths
from tarnlog_server.core.schema_dedup import canonical_json, mapping_ref
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.packing import pack
from tests.usecases.field_writers import METADATA
from tests.usecases.replicas import Warehouse, add_line, commit, register, remove_line, set_properties

EVENTS = TableName("field", "events")
LOG = LogPaths("field/events-log")
SPELLINGS = [
    '[{"name":"a","type":"text"},{"name":"b"}]',
    '[{"name":"b"},{"type":"text","name":"a"}]',
    '[ {"name": "b"}, {"name": "a", "type": "text"} ]',
    '[{"name":"c"}]',
    '[ {"name":"c"} ]',
    '{"x":1}',
    "not JSON",
]
MAPPINGS = {f"r{number}": text for number, text in enumerate(SPELLINGS)}
PREFIX = "docMappingSchema."


async def field_log(warehouse: Warehouse, refs: dict[str, str], **properties: str) -> None:
    """A log of another writer with a file for each mapping, one whose mapping is lost, one that has it inline."""
    configuration = {**{PREFIX + ref: text for ref, text in refs.items()}, **properties}
    adds = [add_line(f"f-{ref}.split", docMappingRef=ref) for ref in refs]
    others = [add_line("lost.split", docMappingRef="gone"), add_line("plain.split")]
    inline = add_line("inline.split", docMappingRef="r0", docMappingJson='[{"name":"own"}]')
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 4, "minWriterVersion": 4}},
        {"metaData": {**METADATA, "configuration": configuration}},
        *adds,
        *others,
        inline,
    ]
    await warehouse.store.put(LOG.version(0), b"\n".join(map(msgspec.json.encode, actions)) + b"\n")


async def listed(replica: Coordinator, version: int | None = None) -> dict[str, Add]:
    page = await replica.snapshots.files(EVENTS, version, None, 0, 1000, None)
    return {file.path: file for file in page.files}


async def meanings(replica: Coordinator, version: int | None = None) -> dict[str, str | None]:
    """What each file's mapping means, however it is spelled."""
    return {path: _meaning(file.doc_mapping_json) for path, file in (await listed(replica, version)).items()}


def _meaning(text: str | None) -> str | None:
    try:
        return text if text is None else canonical_json(text)
    except ValueError:
        return text


async def taken_over(
    warehouse: Warehouse, properties: dict[str, str] | None = None, refs: dict[str, str] = MAPPINGS
) -> Coordinator:
    await field_log(warehouse, refs, **(properties or {}))
    replica = warehouse.replica()
    await register(replica, "field.events", "memory://w/field/events-log", stopped=True)
    return replica


@pytest.mark.parametrize("format", ["avro", "json", "parquet"])
async def test_files_keep_reading_their_mapping_and_equal_ones_get_one_name(warehouse: Warehouse, format: str) -> None:  # noqa: A002
    await field_log(warehouse, MAPPINGS, **{"state.format": format})
    reader = warehouse.replica()
    await register(reader, "field.events", "memory://w/field/events-log")
    before = await meanings(reader)
    assert before["f-r1.split"] == before["f-r0.split"] == canonical_json(SPELLINGS[0])
    replica = warehouse.replica()
    await register(replica, "field.events", "memory://w/field/events-log", stopped=True)
    assert await meanings(replica) == before

    reopened = warehouse.replica()
    files = await listed(reopened)
    assert await meanings(reopened) == before
    for ref, text in MAPPINGS.items():
        assert files[f"f-{ref}.split"].doc_mapping_ref == mapping_ref(text)
    assert files["lost.split"].doc_mapping_ref == "gone"
    assert files["plain.split"].doc_mapping_ref is None
    properties = (await reopened.tables.describe(EVENTS)).properties
    assert {key: properties[key] for key in properties if key.startswith(PREFIX + "r")} == {
        PREFIX + ref: text for ref, text in MAPPINGS.items()
    }, "old names stay: version files and older states use them"
    for version in (0, 1):
        assert await meanings(reopened, version) == before
    report = await reopened.verifying.verify(EVENTS)
    assert [check for check in report.checks if not check.ok and check.name != "data-files"] == []


async def every_answer(replica: Coordinator, version: int) -> list[dict[str, Any]]:
    """The files of a version by every way in which they are told."""
    page = await replica.snapshots.files(EVENTS, version, None, 0, 1000, None)
    encoded = await replica.snapshots.encoded_files(EVENTS, version, None, 0, 1000, None)
    asked = PlanRequest(version=version)
    plan = await replica.plans.encoded(EVENTS, asked, None)
    stream = b"".join([chunk async for chunk in (await replica.plans.arrow(EVENTS, asked, None)).chunks])
    batches = pa.ipc.open_stream(stream)
    arrow = [msgspec.to_builtins(add) for batch in batches for add in adds_of(batch)]
    pages = [
        msgspec.to_builtins(page.files),
        msgspec.json.decode(encoded.files),
        msgspec.json.decode(plan.files),
        arrow,
    ]
    return [{file["path"]: file for file in files} for files in pages]


@pytest.mark.parametrize("format", ["avro", "json", "parquet"])
async def test_every_replica_tells_the_same_of_a_file_at_a_version(warehouse: Warehouse, format: str) -> None:  # noqa: A002
    """Whether it replayed the log, packed what it replayed, or opened a state before or after it was renormalised."""
    replica = await taken_over(warehouse, {"state.format": format})
    later = warehouse.replica()
    await listed(later)
    await commit(replica, add_line("by-old-name.split", docMappingRef="r4"), to=EVENTS)
    await commit(replica, add_line("moved.split", docMappingRef="r1", dataChange=False), to=EVENTS)
    head = (await replica.tables.describe(EVENTS)).version
    packed = warehouse.replica()
    await listed(packed)
    await pack(packed.open_tables.opened()[0].live)
    newest = warehouse.replica()
    await newest.checkpoints.compact(EVENTS)
    reopened = warehouse.replica()
    for version in range(2, head + 1):
        expected, *others = await every_answer(replica, version)
        assert all(other == expected for other in others)
        for one in (later, packed, newest, reopened):
            for answer in await every_answer(one, version):
                assert answer == expected, version
    assert (
        expected["f-r1.split"]["docMappingRef"] == expected["f-r0.split"]["docMappingRef"] == mapping_ref(SPELLINGS[0])
    )
    assert expected["f-r1.split"]["docMappingJson"] == expected["f-r0.split"]["docMappingJson"]
    assert expected["by-old-name.split"]["docMappingRef"] == mapping_ref(SPELLINGS[4])
    assert (expected["inline.split"]["docMappingRef"], expected["inline.split"]["docMappingJson"]) == (
        "r0",
        '[{"name":"own"}]',
    )
    assert expected["lost.split"]["docMappingRef"] == "gone"
    assert {file["dataChange"] for file in expected.values()} == {False}


@pytest.mark.parametrize("threshold,renamed", [(7, True), (8, False)])
async def test_nothing_is_renamed_up_to_the_threshold(warehouse: Warehouse, threshold: int, renamed: bool) -> None:
    # Seven names that resolve, and one that does not.
    replica = await taken_over(warehouse, {"state.schema.renormalizeThreshold": str(threshold)})
    reopened = warehouse.replica()
    file = (await listed(reopened))["f-r1.split"]
    assert (file.doc_mapping_ref != "r1") == renamed
    assert (await replica.tables.describe(EVENTS)).version == (2 if renamed else 1)


async def test_it_is_done_once_and_later_states_change_nothing(warehouse: Warehouse) -> None:
    replica = await taken_over(warehouse)
    before = await meanings(replica)
    version = (await replica.tables.describe(EVENTS)).version
    for one in (replica, warehouse.replica(), warehouse.replica()):
        await one.checkpoints.compact(EVENTS)
        assert (await one.tables.describe(EVENTS)).version == version
        assert await meanings(one) == before


async def test_commits_after_it_are_told_by_either_name(warehouse: Warehouse) -> None:
    replica = await taken_over(warehouse)
    before = await meanings(replica)
    await commit(replica, add_line("new.split", docMappingJson=SPELLINGS[2]), to=EVENTS)
    await commit(replica, add_line("by-old-name.split", docMappingRef="r4"), to=EVENTS)
    head = (await replica.tables.describe(EVENTS)).version
    await commit(replica, remove_line("f-r0.split"), to=EVENTS, readVersion=head)
    expected = {path: text for path, text in before.items() if path != "f-r0.split"} | {
        "new.split": canonical_json(SPELLINGS[2]),
        "by-old-name.split": canonical_json(SPELLINGS[4]),
    }
    await replica.checkpoints.checkpoint(EVENTS)
    assert await meanings(warehouse.replica()) == expected
    await replica.checkpoints.compact(EVENTS)
    last = warehouse.replica()
    assert await meanings(last) == expected
    assert (await listed(last))["by-old-name.split"].doc_mapping_ref == mapping_ref(SPELLINGS[4])
    await last.tables.alter(EVENTS, set_properties(owner="ops"))
    assert await meanings(last) == expected


async def test_a_name_that_means_something_else_already_is_left_to_its_owner(warehouse: Warehouse) -> None:
    taken = mapping_ref(SPELLINGS[3])
    refs = {**MAPPINGS, taken: '{"something":"else"}'}
    replica = await taken_over(warehouse, refs=refs)
    found = await listed(warehouse.replica())
    assert found["f-r3.split"].doc_mapping_ref == "r3"
    assert found["f-r3.split"].doc_mapping_json == SPELLINGS[3]
    assert json.loads(found[f"f-{taken}.split"].doc_mapping_json or "") == {"something": "else"}
    assert (await replica.verifying.verify(EVENTS)).checks


async def test_a_table_whose_properties_cannot_be_committed_keeps_its_names_and_gets_its_state(
    warehouse: Warehouse,
) -> None:
    replica = await taken_over(warehouse, {"checkpoint.interval": "often"})
    before = await meanings(replica)
    state = await replica.checkpoints.describe(EVENTS)
    assert (state.status, state.version) == ("ours", 1)
    reopened = warehouse.replica()
    assert await meanings(reopened) == before
    assert (await listed(reopened))["f-r1.split"].doc_mapping_ref == "r1"
