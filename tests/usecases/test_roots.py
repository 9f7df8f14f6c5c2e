"""Locations of tables in roots whose names need escapes in a URI."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.adapters.memory_store import MemoryStore
from tarnlog_server.usecases.roots import Root, Roots

FOLDERS = ("/data", "/ware house", "/w\u00e4re", "/100% full", "/a#b")


def roots(folder: str) -> Roots:
    return Roots(Root(Path(folder).as_uri(), MemoryStore("x")), Root("s3://bucket/p", MemoryStore("y")))


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_table_is_found_at_the_location_that_it_reports(folder: str) -> None:
    found = roots(folder)
    if "%" not in folder and "#" not in folder:  # such folders cannot be named, only be the warehouse
        for location in (found.uri(found.warehouse, "ns/t-1"), f"{folder}/ns/t-1", f"file://{folder}/ns/t-1"):
            assert found.find(location) == (found.warehouse, "ns/t-1")
    assert found.resolve("ns/t-1") == (found.warehouse, "ns/t-1")
    assert found.find("s3://bucket/p/ns/t")[1] == "ns/t"


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize(
    "location", ["/elsewhere/t", "file:///ware%2F%2Fhouse/t", "s3://bucket/p%20q/t", "file:///a/%2e%2e/t"]
)
def test_what_lies_elsewhere_is_refused_and_nothing_breaks(folder: str, location: str) -> None:
    with pytest.raises(ProblemError) as caught:
        roots(folder).find(location)
    assert caught.value.slug == "location-not-allowed"
