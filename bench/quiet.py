"""Was the machine ours? A number taken while something else was running says little, and a slow peer flatters us."""

from __future__ import annotations

import time
from pathlib import Path

DISTURBED = 0.25
"""Above this share of all cores in use just before or after a run, the run counts as disturbed."""

_STAT = Path("/proc/stat")


def busy_between(before: str, after: str) -> float:
    """The share of CPU time in use between two readings of /proc/stat; waiting for the disk is not use."""
    first, second = ([int(field) for field in text.splitlines()[0].split()[1:9]] for text in (before, after))
    spent = [late - early for early, late in zip(first, second, strict=True)]
    idle = spent[3] + spent[4]
    return 1 - idle / sum(spent) if sum(spent) else 0.0


def busy_share(seconds: float = 0.3) -> float:
    """The share of all cores in use now; 0 where the system does not tell."""
    if not _STAT.exists():
        return 0.0
    before = _STAT.read_text()
    time.sleep(seconds)
    return busy_between(before, _STAT.read_text())
