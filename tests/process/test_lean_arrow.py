"""The service's Arrow works without pandas, which stays away also where it is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

ASK = """
import sys
from tarnlog_server.adapters.lean_arrow import without_pandas
import pyarrow as pa
import pyarrow.compute as pc
with without_pandas():
    assert pc.greater_equal(pa.array([1, 7]), 5).to_pylist() == [False, True]
    print("loaded inside:", "pandas" in sys.modules)
import pandas
print("loaded after:", "pandas" in sys.modules)
"""


def test_arrow_does_not_load_pandas_where_the_service_runs() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed, so there is nothing to stay away")
    shown = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == ["loaded inside: False", "loaded after: True"]
