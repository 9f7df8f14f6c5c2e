"""The tables of the documentation that come from code. `python -m tests.docs.tables` writes them anew; a test compares.

A table stands between `<!-- generated: name -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tarnlog.protocol.problems import CODES
from tarnlog_server.adapters.memory_store import MemoryStore
from tarnlog_server.adapters.system_world import SystemWorld
from tarnlog_server.api.app import create_app
from tarnlog_server.api.operation import Operation
from tarnlog_server.api.readiness import Readiness
from tarnlog_server.core.setting_values import Choice, Duration, Flag, Number, Values, Whole
from tarnlog_server.core.table_settings import SETTINGS, Setting
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.roots import Root, Roots

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = (DOCS / "api.md", DOCS / "operations.md")
_MARKED = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def operations() -> list[Operation]:
    """Every call the service has."""
    store = MemoryStore("docs")
    return create_app(Coordinator(Roots(Root(store.uri, store)), SystemWorld()), Readiness()).operations


def calls_table() -> str:
    """A row for each call: who may, what it answers, and its own problems."""
    rows = ["| call | scope | answers | problems of its own |", "|---|---|---|---|"]
    for operation in operations():
        path = operation.path.replace(":path}", "}")
        answers = "<br>".join(f"{status} {result.description}" for status, result in operation.results.items())
        problems = ", ".join(f"`{slug}`" for slug in operation.problems)
        rows.append(f"| `{operation.method} {path}` | {operation.scope or 'none'} | {answers} | {problems} |")
    return "\n".join(rows) + "\n"


def problems_table() -> str:
    """A row for each problem code."""
    rows = ["| code | HTTP | kind | meaning |", "|---|---|---|---|"]
    codes = sorted(CODES.values(), key=lambda code: (code.status, code.slug))
    rows += [f"| `{code.slug}` | {code.status} | {code.kind.value} | {code.title} |" for code in codes]
    return "\n".join(rows) + "\n"


def properties_table() -> str:
    """A row for each property of a table that means something."""
    rows = ["| property | default | may be | meaning |", "|---|---|---|---|"]
    rows += [
        f"| `{one.name}` | `{default_text(one)}` | {_may_be(one.values)} | {one.meaning} |" for one in SETTINGS.values()
    ]
    return "\n".join(rows) + "\n"


def default_text(one: Setting) -> str:
    """The default as one would write it."""
    if isinstance(one.default, bool):
        return str(one.default).lower()
    if isinstance(one.values, Duration):
        units = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
        unit = next(name for name, size in units.items() if int(one.default) % size == 0)
        return f"{int(one.default) // units[unit]}{unit}"
    return str(one.default)


def _may_be(values: Values) -> str:
    match values:
        case Flag():
            return "`true`, `false`"
        case Choice(words=words):
            return ", ".join(f"`{word}`" for word in words)
        case Whole(least=least, most=most) | Number(least=least, most=most):
            return f"{least} to {most}"
    return "a time"


TABLES: dict[str, Callable[[], str]] = {
    "calls": calls_table,
    "problems": problems_table,
    "properties": properties_table,
}


def with_tables(text: str) -> str:
    """The text with every generated table made anew."""
    return _MARKED.sub(lambda match: match[1] + TABLES[match[2]]() + match[3], text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_tables(page.read_text()))
