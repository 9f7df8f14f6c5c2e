"""The documentation is true: what it shows runs, what it lists is complete, and where it points there is something."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tarnlog import Client
from tarnlog.protocol import actions
from tarnlog.protocol.problems import CODES
from tarnlog_server.codec.version_file import CorruptObject, decode
from tarnlog_server.core.conflict import RULES
from tarnlog_server.core.protocol_gate import WRITER_FEATURES
from tarnlog_server.core.table_settings import ALIASES, SETTINGS, SUPERSEDED
from tarnlog_server.settings import PREFIX, Settings
from tarnlog_server.telemetry.metrics import PrometheusTelemetry
from tests.docs.data_files import live_rows
from tests.docs.pages import GUIDE, README, ROOT, WALKTHROUGH, anchors, blocks, links, marked, pages, run
from tests.docs.tables import PAGES as GENERATED
from tests.docs.tables import default_text, with_tables
from tests.service_process import running_service

PAGES = pages()
RUNNING = [page for page in PAGES if blocks(page) and page not in (README, WALKTHROUGH)]


def text_of(name: str) -> str:
    return (ROOT / name).read_text()


def rows_of(text: str) -> set[str]:
    """What stands in code font in the first cell of a table's row."""
    first_cells = re.findall(r"^\| *(`[^|]*?) *\|", text, re.MULTILINE)
    return {name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)}


# What is shown runs


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder like that of a reader who ran ./dev serve and made a first table, and where the service is."""
    folder = tmp_path_factory.mktemp("reader")
    with running_service(folder / "data") as service:
        with Client(service.url) as client:
            client.create_table("docs.first", {"type": "struct", "fields": [{"name": "id", "type": "long"}]})
            with client.transaction("docs.first") as tx:
                tx.add("part-0001.parquet", size=1)
        yield folder, service.url


@pytest.mark.xdist_group("docs")
@pytest.mark.parametrize("page", RUNNING, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run(page: Path, surroundings: tuple[Path, str]) -> None:
    folder, url = surroundings
    for block in blocks(page):
        result = run(block, folder, url)
        said = f"{block} ended with {result.returncode}\n{result.stdout}\n{result.stderr}"
        assert result.returncode == 0, said
        assert block.shows in result.stdout, f"{block.shows!r} is not in what {said}"
    if page == GUIDE:
        rows_of_the_guide(url)
    if page == ROOT / "client/README.md":
        with Client(url) as client:
            assert [row["id"] for row in live_rows(client, "readme.numbers")] == list(range(10))


def rows_of_the_guide(url: str) -> None:
    """The tables that the guide leaves behind hold the rows it speaks of, in files that the log is right about."""
    with Client(url) as client:
        orders = [(row["id"], row["day"]) for row in live_rows(client, "shop.orders")]
        assert sorted(orders) == [(41, "2024-01-04"), (100, "2024-01-03"), (200, "2024-01-01")]
        assert [row["id"] for row in live_rows(client, "shop.items")] == [1, 2, 3]
        then = client.table("shop.orders").to_arrow("day = '2024-01-01'", version=3, columns=["id", "amount"])
        assert sorted(then.to_pylist(), key=lambda row: row["id"]) == [
            {"id": number, "amount": 100 + number} for number in range(2, 30)
        ]
        for table in client.list_tables("shop"):
            assert [check.name for check in client.verify(table.name).checks if not check.ok] == []


def test_the_ways_to_commit_are_shown_and_run() -> None:
    shown = [(block.kind, block.code) for block in blocks(README)]
    assert any(kind == "bash" and "curl" in code and "/commits" in code for kind, code in shown)
    assert any(kind == "python" and "client.transaction(" in code for kind, code in shown)
    assert any(kind == "bash" and "tarnlog commit " in code for kind, code in shown)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_marked_block_is_found(page: Path) -> None:
    assert len(blocks(page)) == marked(page)


def test_the_version_file_shown_is_one() -> None:
    shown = re.search(r"<!-- version file -->\n```json\n(.*?)```", text_of("docs/format.md"), re.DOTALL)
    assert shown is not None
    data = shown[1].encode()
    record = decode("shown", 12, data)
    assert [len(of) for _, of in record.groups()] == [1, 2]
    with pytest.raises(CorruptObject, match="checksum"):
        decode("shown", 12, data.replace(b"part-0001", b"part-0009"))


# What is listed is complete


@pytest.mark.parametrize("page", GENERATED, ids=lambda page: page.name)
def test_generated_tables_are_fresh(page: Path) -> None:
    assert "<!-- generated: " in page.read_text()
    assert with_tables(page.read_text()) == page.read_text(), "run: python -m tests.docs.tables"


def test_every_problem_code_is_listed() -> None:
    assert rows_of(text_of("docs/api.md")) >= CODES.keys()


def test_every_setting_is_listed_and_no_other() -> None:
    section = text_of("docs/operations.md").split("\n## Settings\n")[1].split("\n## ")[0]
    listed = {name for name in rows_of(section) if name.startswith(PREFIX)}
    assert listed == {PREFIX + name.upper() for name in Settings.model_fields} | {f"{PREFIX}CONFIG"}


def test_the_defaults_listed_are_those_of_the_settings() -> None:
    told = dict(re.findall(rf"^\| `{PREFIX}(\w+)` \| `?([^|`]*?)`? \|", text_of("docs/operations.md"), re.MULTILINE))
    for name, field in Settings.model_fields.items():
        default = field.default
        if isinstance(default, int | float) and default >= 1024 * 1024:
            assert told[name.upper()] == f"{default // 2**20} MiB", name
        elif isinstance(default, bool):
            assert told[name.upper()] == str(default).lower(), name
        elif isinstance(default, int | float | str):
            assert told[name.upper()] == (default if isinstance(default, str) else f"{default:g}"), name


def test_every_metric_is_listed_and_no_other() -> None:
    section = text_of("docs/operations.md").split("\n## Metrics\n")[1].split("| alert on")[0]
    listed = {name for name in rows_of(section) if name.startswith("tarnlog_")}
    families = {family.name for family in PrometheusTelemetry().registry.collect()}
    assert listed == {f"{name}_info" if name == "tarnlog_build" else name for name in families}


def test_the_metrics_to_alert_on_exist() -> None:
    exposed = {
        name
        for family in PrometheusTelemetry().registry.collect()
        for name in (family.name, f"{family.name}_total", f"{family.name}_bucket")
    }
    used = set(re.findall(r"\btarnlog_\w+", text_of("docs/operations.md").split("| alert on")[1].split("\n## ")[0]))
    assert used
    assert used <= exposed


def test_every_action_field_is_listed() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text_of("docs/format.md"), re.MULTILINE))
    for kind, name in actions.WIRE_NAMES.items():
        for field in msgspec.structs.fields(kind):
            assert re.search(rf"\b{field.encode_name}\b", rows[name]), f"{name}.{field.encode_name}"
            bold = f"**{field.encode_name}**" in rows[name]
            assert bold == field.required, f"{name}.{field.encode_name}: bold means required"


def test_every_field_of_a_sub_commit_is_listed() -> None:
    section = text_of("docs/format.md").split("One entry of `subCommits`")[1].split("\n**Unknown")[0]
    for field in msgspec.structs.fields(actions.SubCommit):
        assert re.search(rf"\b{field.encode_name}\b", section), field.encode_name


def test_every_conflict_rule_and_feature_is_listed() -> None:
    assert rows_of(text_of("docs/guide.md")) >= {"expired", *(name for name, _ in RULES)}
    gate = text_of("docs/format.md").split("## Protocol gate")[1]
    assert set(re.findall(r"`(\w+)`", gate)) >= WRITER_FEATURES


def test_table_properties_listed_are_real_and_have_these_defaults() -> None:
    section = text_of("docs/guide.md").split("### Table properties")[1].split("\n## ")[0]
    told = dict(re.findall(r"^\| `([\w.]+)` \| `([^|`]*)` \|", section, re.MULTILINE))
    assert told
    assert told == {name: default_text(SETTINGS[name]) for name in told}


def test_every_table_property_is_listed_and_no_other() -> None:
    section = text_of("docs/operations.md").split("\n## Table properties\n")[1].split("\n## ")[0]
    assert rows_of(section) == SETTINGS.keys()
    for name in SUPERSEDED:
        assert f"`{name}`" in section, "a name that does nothing is explained"


def test_every_superseded_property_is_explained() -> None:
    page = text_of("docs/declined.md")
    assert [name for name in (*SUPERSEDED, *ALIASES) if f"| `{name}`" not in page] == []


def test_every_decision_is_in_the_index() -> None:
    index = text_of("docs/adr/README.md")
    records = sorted(path.name for path in (ROOT / "docs/adr").glob("0*.md"))
    assert [name for name in records if f"({name})" not in index] == []


# Where it points there is something


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        name, _, anchor = target.partition("#")
        file = page if not name else (page.parent / name).resolve()
        assert file.exists(), f"{target} leads nowhere"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{target}: no such heading"


def test_modules_named_in_the_documentation_exist() -> None:
    """`core/ratify.py` and the like; pages name modules below the service, the client or the root."""
    homes = [ROOT, ROOT / "service/src/tarnlog_server", ROOT / "client/src/tarnlog"]
    for page in PAGES:
        for name in re.findall(r"`((?:[\w.-]+/)+[\w-]+\.py)`", page.read_text()):
            assert any((home / name).exists() for home in homes), f"{page.name}: {name}"
