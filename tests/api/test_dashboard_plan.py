"""The plan explorer: the funnel, the reasons in words, and a form that keeps what was typed."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest

from tarnlog.protocol.plans import Reason
from tarnlog_server.api.dashboard import plan_page
from tarnlog_server.api.dashboard.plan_page import reason_text
from tests.api.conftest import Api, add
from tests.api.pages import Page

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "day", "type": "string", "nullable": True, "metadata": {}},
    ],
}


@pytest.fixture
async def planned(api: Api) -> Api:
    """Two days of six files each; ids go up by ten."""
    await api.create("db.t", schema=SCHEMA, partitionColumns=["day"])
    for number in range(12):
        bounds = {"minValues": {"id": str(10 * number)}, "maxValues": {"id": str(10 * number + 9)}}
        action = add(f"file-{number:02}", partitionValues={"day": f"d{number % 2}"}, **bounds)
        answer = await api.post("/v1/tables/db.t/commits", json={"actions": [action]})
        assert answer.status_code == 201, answer.text
    return api


async def plan(api: Api, status: int = 200, **query: str) -> Page:
    path = "/dashboard/tables/db.t/plan" + (f"?{urlencode(query)}" if query else "")
    answer = await api.get(path)
    assert answer.status_code == status, answer.text
    return Page(answer)


async def test_nothing_is_planned_before_it_is_asked(planned: Api) -> None:
    shown = await plan(planned)
    assert "to read at version" not in shown.text
    assert {"filter", "version"} <= shown.labels


async def test_a_funnel_and_the_files_that_are_left(planned: Api) -> None:
    shown = await plan(planned, filter="day = 'd0' AND id >= 75")
    assert "2 of 12 files to read at version 12" in shown.text
    steps = "in the table 12 after partition values 6 after column bounds 2 after cooldowns 2"
    assert steps in shown.text
    assert [label for label in shown.pictures if "files" in label] == ["12 files", "6 files", "2 files", "2 files"]
    assert re.findall(r"file-\d\d", shown.text) == ["file-08", "file-10"]
    assert shown.inputs["filter"]["value"] == "day = 'd0' AND id >= 75"


async def test_without_a_filter_every_file_is_read(planned: Api) -> None:
    shown = await plan(planned, filter="", version="3")
    assert "3 of 3 files to read at version 3" in shown.text


async def test_every_file_says_why(planned: Api) -> None:
    shown = await plan(planned, filter="day = 'd0' AND id >= 75", show="why")
    assert re.findall(r"file-(\d\d) (kept|dropped)", shown.text) == [
        (f"{number:02}", "kept" if number in (8, 10) else "dropped") for number in range(12)
    ]
    assert "file-01 dropped day is 'd1'" in shown.text
    assert "file-00 dropped id is in '0' to '9'" in shown.text


async def test_files_in_a_cooldown_are_left_out_on_request(planned: Api) -> None:
    skip = {"path": "file-08", "reason": "r", "operation": "o"}
    assert (await planned.post("/v1/tables/db.t/skips", json=skip)).status_code == 201
    asked = "day = 'd0' AND id >= 75"
    assert "after cooldowns 2" in (await plan(planned, filter=asked)).text
    shown = await plan(planned, filter=asked, cooldowns="exclude", show="why")
    assert "after cooldowns 1" in shown.text
    assert re.search(r"file-08 dropped it is left alone until \d{4}-\d\d-\d\d [\d:]+ UTC", shown.text)


@pytest.mark.parametrize("show", ["files", "why"])
async def test_a_long_plan_comes_in_pages(planned: Api, monkeypatch: pytest.MonkeyPatch, show: str) -> None:
    monkeypatch.setattr(plan_page, "FILES_A_PAGE", 5)
    shown = await plan(planned, filter="id < 1000", show=show)
    names = re.findall(r"file-\d\d", shown.text)
    while (link := next((link for link in shown.links if re.search(r"cursor=\w", link)), None)) is not None:
        shown = Page(await planned.get("/dashboard/tables/db.t/plan" + link))
        names += re.findall(r"file-\d\d", shown.text)
        assert "12 of 12 files to read at version 12" in shown.text
    assert names == [f"file-{number:02}" for number in range(12)]


@pytest.mark.parametrize(
    "query, status, says",
    [
        ({"filter": "nothing = 1"}, 422, "nothing"),
        ({"filter": "day = "}, 422, "filter"),
        ({"version": "minus one"}, 422, "a version is a whole number"),
        ({"version": "99"}, 404, "version 99 does not exist"),
    ],
)
async def test_what_cannot_be_planned_is_said_beside_the_form(
    planned: Api, query: dict[str, str], status: int, says: str
) -> None:
    shown = await plan(planned, status, **query)
    assert says in shown.text
    for name, value in query.items():
        assert shown.inputs[name]["value"] == value


@pytest.mark.parametrize(
    "reason, text",
    [
        (Reason(by="partition", column="day", value="x"), "day is 'x'"),
        (Reason(by="partition", column="day"), "day is null"),
        (Reason(by="partition", column="day", least="a", greatest="b"), "day is in 'a' to 'b'"),
        (Reason(by="bounds", column="id", least="1", greatest="9"), "id is in '1' to '9'"),
        (Reason(by="cooldown", until=0), "it is left alone until 1970-01-01 00:00:00 UTC"),
        (Reason(by="never"), "no row can satisfy the filter"),
        (Reason(by="nothing", column="name"), "nothing is known of name"),
        (Reason(by="nothing"), "nothing is known of it"),
    ],
)
def test_reasons_in_words(reason: Reason, text: str) -> None:
    assert reason_text(reason) == text
