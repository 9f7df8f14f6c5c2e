"""The places this service may keep tables in, each with the store that reaches it."""

from __future__ import annotations

import dataclasses
from urllib.parse import unquote

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.core.locations import LocationError, below, parse_location
from tarnlog_server.ports.object_store import ObjectStore

OWN_FOLDER = ".tarnlog"
"""Where the embedded index of a local warehouse is."""


@dataclasses.dataclass(frozen=True, slots=True)
class Root:
    """A store and what its root is called. `hedge`: whether a second PUT can help there (not on a local disk)."""

    uri: str
    store: ObjectStore
    hedge: bool = False


class Roots:
    """The warehouse, and other roots that tables may be registered in or created at."""

    def __init__(self, warehouse: Root, *others: Root) -> None:
        self.warehouse = warehouse
        self.all = (warehouse, *others)

    def find(self, location: str) -> tuple[Root, str]:
        """The root and the key prefix of a location; ProblemError `location-not-allowed` when it is in none."""
        try:
            parsed = parse_location(_plain(location))
        except LocationError as error:
            raise ProblemError("location-not-allowed", f"location {location[:200]!r}: {error}") from error
        for root in self.all:
            inside = below(root.uri if root.uri.endswith("://") else _plain(root.uri).rstrip("/"), parsed)
            if inside:
                first = inside.split("/")[0]
                if first.startswith("_") or first == OWN_FOLDER:
                    detail = f"folders that start with '_', and {OWN_FOLDER}, at a root are the service's own"
                    raise ProblemError("location-not-allowed", detail)
                return root, inside
        allowed = ", ".join(root.uri for root in self.all)
        raise ProblemError("location-not-allowed", f"a table lies inside a folder of: {allowed}; {parsed} does not")

    def resolve(self, stored: str) -> tuple[Root, str]:
        """Where a catalog entry points: relative entries are in the warehouse, so that a warehouse can be moved."""
        return self.find(stored) if "://" in stored else (self.warehouse, stored)

    def stored(self, root: Root, prefix: str) -> str:
        """How the catalog writes a place down."""
        return prefix if root is self.warehouse else self.uri(root, prefix)

    def uri(self, root: Root, prefix: str) -> str:
        """How people write a place down."""
        return f"{root.uri}{prefix}" if root.uri.endswith("/") else f"{root.uri}/{prefix}"

    async def close(self) -> None:
        """Close every store."""
        for root in self.all:
            await root.store.close()


def _plain(location: str) -> str:
    """A location without escapes: a folder's URI, as tables report it, has them where its name needs them."""
    return unquote(location) if location.lower().startswith("file://") else location
