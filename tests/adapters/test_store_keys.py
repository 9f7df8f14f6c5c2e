"""The short way through the check of a key lets nothing pass that the long way refuses."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarnlog_server.adapters import store_keys
from tarnlog_server.ports.object_store import KeyRefused

PARTS = st.sampled_from(
    ["", ".", "..", "a", "_b", ".tarnlog-x", ".hidden", "a.b", "-", "d=1", "é", "a\n", "\x7f", "a" * 999]
)


@given(st.lists(PARTS, min_size=1, max_size=4).map("/".join) | st.text(max_size=9))
def test_both_ways_agree(key: str) -> None:
    problem = store_keys._problem(key)
    if problem is None:
        store_keys.check_key(key)
    else:
        with pytest.raises(KeyRefused, match=re.escape(problem)):
            store_keys.check_key(key)
