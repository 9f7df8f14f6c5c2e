"""The front door: what the package offers, and that the client, the fake and the interface agree."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import tarnlog
from tarnlog import AsyncClient, Client, TableApi, TarnlogError, _errors
from tarnlog.testing import FakeTarnlog


def test_all_names_are_there_sorted_and_loadable() -> None:
    assert tarnlog.__all__ == sorted(tarnlog.__all__)
    assert set(tarnlog._HOME_OF) == set(tarnlog.__all__)
    for name in tarnlog.__all__:
        assert getattr(tarnlog, name) is not None
    assert set(tarnlog.__all__) <= set(dir(tarnlog))
    with pytest.raises(AttributeError):
        _ = tarnlog.no_such_name


def test_every_exception_is_offered_and_drawn() -> None:
    tree = inspect.getdoc(_errors) or ""
    for name, kind in vars(_errors).items():
        if inspect.isclass(kind) and issubclass(kind, TarnlogError):
            assert name in tarnlog.__all__
            assert name in tree


def test_the_protocol_alone_loads_no_http_library() -> None:
    code = "import sys, tarnlog.protocol.commits; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 0


def methods(kind: type) -> dict[str, Callable[..., Any]]:
    return {name: value for name, value in vars(kind).items() if inspect.isfunction(value) and not name.startswith("_")}


@pytest.mark.parametrize("kind", [Client, FakeTarnlog])
def test_client_and_fake_have_the_interface_to_the_letter(kind: type) -> None:
    for name, wanted in methods(TableApi).items():
        assert inspect.signature(methods(kind)[name]) == inspect.signature(wanted), name


def test_the_asyncio_client_takes_the_same_arguments() -> None:
    for name, wanted in methods(TableApi).items():
        if name in ("close", "table"):  # the one is awaited; rows are read by the blocking client
            continue
        found = inspect.signature(methods(AsyncClient)[name])
        assert found.parameters == inspect.signature(wanted).parameters, name


def test_the_type_checker_agrees() -> None:
    apis: list[TableApi] = [FakeTarnlog(), Client()]
    assert len(apis) == 2
