"""The memory of this process, for peers in their own environments."""

from __future__ import annotations

from pathlib import Path


def memory_mb(process: str = "self", kind: str = "VmRSS") -> float:
    """Resident memory now (VmRSS) or at its peak (VmHWM); 0 where the system does not tell."""
    status = Path(f"/proc/{process}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(kind)), 0.0)
