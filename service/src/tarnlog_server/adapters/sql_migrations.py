"""The schema of the index, by Alembic: up to the newest revision, down, and what is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection

import tarnlog_server
from tarnlog_server.ports.index import IndexUnavailable


def folder() -> Path:
    """Where the migrations are: inside an installed package, or beside the sources."""
    package = Path(str(tarnlog_server.__file__)).resolve().parent
    inside = package / "migrations"
    return inside if (inside / "env.py").is_file() else package.parents[2] / "migrations"


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Bring the schema up to a revision."""
    _run(connection, lambda config: command.upgrade(config, revision))


def downgrade(connection: Connection, revision: str = "base") -> None:
    """Take it back to a revision; `base` is none at all. The index loses what newer revisions held."""
    _run(connection, lambda config: command.downgrade(config, revision))


def revisions() -> list[str]:
    """All revisions, the oldest first."""
    scripts = ScriptDirectory.from_config(_config())
    return [script.revision for script in scripts.walk_revisions()][::-1]


def _run(connection: Connection, act: Callable[[Config], None]) -> None:
    config = _config()
    config.attributes["connection"] = connection
    try:
        act(config)
    except CommandError as error:
        raise IndexUnavailable(f"the schema cannot be changed: {error}") from error


def _config() -> Config:
    config = Config()
    # The parser behind it gives percent signs a meaning.
    config.set_main_option("script_location", str(folder()).replace("%", "%%"))
    return config
