"""The short way through the check of a key lets nothing pass that the long way refuses."""

from __future__ import annotations

import re

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
    try:
        store_keys.check_key(key)
    except KeyRefused as refused:
        assert problem is not None and problem in str(refused)
    else:
        assert problem is None
    assert not (re.match(store_keys._USUAL, key) and len(key) <= store_keys.MAX_KEY_BYTES and problem)
