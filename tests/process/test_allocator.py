"""The allocator's settings are in place before the libraries that read them are loaded."""

from __future__ import annotations

import subprocess
import sys

SHOW = """
import sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in ("pyarrow", "datafusion"):
            import os
            print(name, os.environ.get("MIMALLOC_PURGE_DELAY"))
sys.meta_path.insert(0, Watch())
import tarnlog_server.cli
"""


def test_arrow_is_loaded_after_its_allocator_was_told() -> None:
    shown = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True).stdout.split("\n")
    assert "pyarrow 0" in shown
    assert not [line for line in shown if line.endswith("None")]
