"""Plans through the interface: over the fake and over a service, and what both clients send and read."""

from __future__ import annotations

import io
import sys
from typing import Any

import httpx
import msgspec
import pyarrow as pa
import pytest

from tarnlog import Add, Client, InvalidRequest, Ledger, NotFound, Reads, ServerFault, TableApi
from tarnlog.arrow_files import adds_of
from tarnlog.protocol.actions import Remove
from tarnlog.protocol.plans import PlanSince
from tarnlog.protocol.predicates import And, Compare, IsNotNull
from tests.client.scripted import Scripted, answer

PAGE_ADD = {"path": "p", "partitionValues": {"d": None}, "size": 1, "modificationTime": 2, "dataChange": True}
COUNTS = {"filesTotal": 9, "filesAfterPartitionPruning": 5, "filesAfterDataSkipping": 3, "filesAfterCooldowns": 2}


def add(number: int) -> Add:
    return Add(
        path=f"f{number}",
        partition_values={},
        size=10,
        modification_time=1,
        data_change=True,
        min_values={"id": str(10 * number)},
        max_values={"id": str(10 * number + 9)},
    )


@pytest.fixture
def filled(api: TableApi, table: str) -> str:
    for number in range(3):
        api.commit(table, [add(2 * number), add(2 * number + 1)])
    return table


def paths(files: Any) -> list[str]:
    return [file.path for file in files]


def test_without_a_filter_everything_is_planned(api: TableApi, filled: str) -> None:
    plan = api.plan(filled, page_size=4)
    assert paths(plan.files) == [f"f{number}" for number in range(6)]
    assert (plan.version, plan.ledger.files_total, plan.ledger.files_after_cooldowns, plan.filter) == (3, 6, 6, None)
    assert paths(api.plan(filled, version=1).files) == ["f0", "f1"]


def test_a_filter_never_loses_a_file_that_may_match(api: TableApi, filled: str) -> None:
    tree = And((Compare("ge", "id", 25), Compare("lt", "id", 40)))
    for asked in (tree, {"op": "in", "column": "id", "values": [25, 35]}, "id BETWEEN 25 AND 39"):
        found = api.plan(filled, asked)
        assert {"f2", "f3"} <= set(paths(found.files))
        assert found.ledger.files_after_data_skipping == len(found.files)
    assert api.plan(filled, tree).filter == tree


def test_the_arrow_form_holds_the_same(api: TableApi, filled: str) -> None:
    plan, arrow = api.plan(filled, IsNotNull("id")), api.plan_arrow(filled, IsNotNull("id"))
    assert (arrow.version, arrow.ledger.files_after_cooldowns) == (3, len(plan.files))
    assert tuple(one for batch in arrow.files.to_batches() for one in adds_of(batch)) == plan.files


def test_some_fields_of_the_arrow_form(api: TableApi, filled: str) -> None:
    found = api.plan_arrow(filled, fields=["size"]).files
    assert found.to_pylist() == [{"path": file.path, "size": file.size} for file in api.plan(filled).files]


def test_what_came_and_went_since_a_version(api: TableApi, filled: str) -> None:
    """The answer may be whole, and says whether it is; put together it is the same."""
    known = {file.path for file in api.plan(filled).files}
    api.commit(filled, [Remove(path="f1", data_change=True), add(7)], read_version=3, reads=Reads(paths=("f1",)))
    plan = api.plan_arrow(filled, since=3)
    came = set(plan.files.column("path").to_pylist())
    if plan.since is not None:
        assert (plan.since.version, plan.since.came, plan.since.gone) == (3, len(came), ("f1",))
        before = api.snapshot(filled, version=3)
        told = (plan.since.timestamp, plan.since.num_files, plan.since.total_bytes)
        assert told == (before.timestamp, before.num_files, before.total_bytes)
        came |= known - {"f1"}
    assert came == (known - {"f1"}) | {"f7"}
    assert plan.ledger.files_after_cooldowns == 6


def test_cooldowns(api: TableApi, filled: str) -> None:
    api.record_skip(filled, "f1", reason="broken", operation="compact")
    assert "f1" in paths(api.plan(filled).files)
    without = api.plan(filled, exclude_cooldowns=True)
    assert "f1" not in paths(without.files)
    assert (without.ledger.files_after_data_skipping, without.ledger.files_after_cooldowns) == (6, 5)
    lines = {line.path: line for line in api.explain_plan(filled, exclude_cooldowns=True).files}
    assert [(lines["f1"].kept, lines["f1"].because[0].by), lines["f2"].kept] == [(False, "cooldown"), True]


def test_explanations_stop_where_they_are_told(api: TableApi, filled: str) -> None:
    some = api.explain_plan(filled, max_files=4)
    assert (len(some.files), some.complete) == (4, False)
    every = api.explain_plan(filled, max_files=None)
    assert (len(every.files), every.complete) == (6, True)


def test_what_is_refused(api: TableApi, filled: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        api.plan(filled, Compare("eq", "nobody", 1))
    assert caught.value.slug == "filter-invalid"
    with pytest.raises(InvalidRequest) as caught:
        api.plan(filled, {"op": "nonsense"})
    assert caught.value.slug == "filter-invalid"
    with pytest.raises(InvalidRequest):
        api.plan(filled, version=1, timestamp=5)
    with pytest.raises(NotFound):
        api.plan("behaviour.none")
    with pytest.raises(NotFound):
        api.plan_arrow(filled, version=99)


def page(next_: str | None, **more: Any) -> Any:
    return answer(200, {"version": 4, "files": [PAGE_ADD], "next": next_, "ledger": COUNTS, "later": 1, **more})


TREE = {"op": "eq", "column": "id", "value": 1}


def test_pages_are_followed_with_the_same_question() -> None:
    script = Scripted(page("c1", filter=TREE), page("c2"), page(None))
    plan = script.client().plan("s.t", "id = 1", version=4, exclude_cooldowns=True, page_size=1)
    asked = {"filter": "id = 1", "version": 4, "excludeCooldowns": True, "limit": 1}
    assert script.bodies == [asked, {**asked, "cursor": "c1"}, {**asked, "cursor": "c2"}]
    assert {request.url.path for request in script.requests} == {"/v1/tables/s.t/plan"}
    assert (plan.version, len(plan.files), plan.filter) == (4, 3, Compare("eq", "id", 1))
    assert plan.ledger == Ledger(
        files_total=9, files_after_partition_pruning=5, files_after_data_skipping=3, files_after_cooldowns=2
    )


async def test_the_asyncio_client_follows_too() -> None:
    script = Scripted(page("c1"), page(None), page(None, explain={"files": [{"path": "p", "kept": False}]}))
    async with script.async_client() as client:
        assert len((await client.plan("s.t")).files) == 2
        told = await client.explain_plan("s.t", max_files=7)
    assert (told.files[0].kept, told.complete) == (False, True)
    assert script.bodies[-1] == {"limit": 7, "explain": True}


def stream(rows: int, **told: Any) -> bytes:
    schema = pa.schema([("path", pa.string())], {key: msgspec.json.encode(value) for key, value in told.items()})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch([["p"] * rows], schema=schema))
    return sink.getvalue()


def arrow_answer(content: bytes) -> Any:
    return httpx.Response(200, content=content)


async def test_streams_are_asked_for_and_checked() -> None:
    content = stream(2, version=4, ledger=COUNTS, filter=TREE)
    script = Scripted(arrow_answer(content))
    assert script.client().plan_arrow("s.t", "id = 1").files.num_rows == 2
    assert script.requests[0].headers["accept"] == "application/vnd.apache.arrow.stream"
    async with Scripted(arrow_answer(content)).async_client() as client:
        assert (await client.plan_arrow("s.t")).filter == Compare("eq", "id", 1)


def test_a_stream_may_have_only_what_came_since() -> None:
    about = {"version": 3, "timestamp": 9, "numFiles": 7, "totalBytes": 8, "came": 1, "gone": ["a", "b"]}
    script = Scripted(arrow_answer(stream(1, version=4, ledger=COUNTS, since=about)))
    plan = script.client().plan_arrow("s.t", since=3)
    assert script.bodies == [{"since": 3}]
    older = {"version": 3, "timestamp": 9, "num_files": 7, "total_bytes": 8}
    assert plan.since == PlanSince(**older, came=1, gone=("a", "b"))
    assert (plan.files.num_rows, plan.ledger.files_after_cooldowns) == (1, 2)
    cut = Scripted(arrow_answer(stream(0, version=4, ledger=COUNTS, since=about)))
    with pytest.raises(ServerFault, match="fewer files"):
        cut.client().plan_arrow("s.t", since=3)


@pytest.mark.parametrize(
    "content", [b"nonsense", stream(1, version=4, ledger=COUNTS), stream(2, version=4), stream(2, ledger="x")]
)
def test_a_stream_that_is_not_whole_is_no_plan(content: bytes) -> None:
    with pytest.raises(ServerFault):
        Scripted(arrow_answer(content)).client().plan_arrow("s.t")


def test_without_pyarrow_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidRequest, match=r"tarnlog\[arrow\]"):
        Client("http://service").plan_arrow("s.t")
