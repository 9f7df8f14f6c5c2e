"""`help()` of everything public says what it does."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import tarnlog
import tarnlog.testing

PUBLIC = {
    **{name: getattr(tarnlog, name) for name in tarnlog.__all__ if name != "CommitOutcome"},  # a union of those here
    **{name: getattr(tarnlog.testing, name) for name in tarnlog.testing.__all__},
}


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class has from this package, whatever base they come from."""
    for base in kind.__mro__:
        if not base.__module__.startswith("tarnlog"):
            continue
        for name, value in vars(base).items():
            if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, (property, classmethod))):
                yield name, value


def assert_sentence(where: str, doc: str | None) -> None:
    text = inspect.cleandoc(doc or "")
    assert text, f"{where} has no docstring"
    first = text.split("\n\n")[0].replace("\n", " ").strip()
    assert first.endswith((".", ":", "!", "?")), f"{where}: {first!r} is no full sentence"
    assert len(first.split()) >= 3, f"{where}: {first!r} says nothing"
    assert first[0].isupper() or first[0] in "`[('\"", f"{where}: {first!r} does not begin as a sentence"


@pytest.mark.parametrize("name", PUBLIC)
def test_help_says_what_it_does(name: str) -> None:
    public = PUBLIC[name]
    assert_sentence(name, vars(public).get("__doc__") if inspect.isclass(public) else public.__doc__)
    if inspect.isclass(public):
        for method, value in members(public):
            assert_sentence(f"{name}.{method}", value.__doc__)


def test_the_two_clients_say_the_same() -> None:
    differ = {("AsyncClient", "events")}  # begins at the first iteration
    for name, method in members(tarnlog.TableApi):
        for kind in (tarnlog.Client, tarnlog.AsyncClient):
            if name in vars(kind) and (kind.__name__, name) not in differ:
                assert inspect.getdoc(getattr(kind, name)) == inspect.getdoc(method), f"{kind.__name__}.{name}"
