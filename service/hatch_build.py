"""Puts the migrations of the index into the wheel: they live at the top of the repository."""  # noqa: INP001

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACES = ("../migrations", "migrations")
"""In the repository, and in a source distribution."""


class MigrationsHook(BuildHookInterface):  # type: ignore[type-arg]
    """An editable install finds them beside the sources, so only real builds carry them."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel or a source distribution is built."""
        if version != "standard":
            return
        root = Path(self.root)
        found = next(root / place for place in PLACES if (root / place / "env.py").is_file())
        inside = "migrations" if self.target_name == "sdist" else "tarnlog_server/migrations"
        for file in sorted(found.rglob("*.py")):
            build_data["force_include"][str(file)] = f"{inside}/{file.relative_to(found).as_posix()}"
