"""Rows of the fake's tables: those of real files, where a table was given the folder that they are in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tarnlog._errors import InvalidRequest
from tarnlog._table import Table

if TYPE_CHECKING:
    from tarnlog._plans import Filter
    from tarnlog._wire import Timestamp


class FakeRows(Table):
    """A table of the fake that can be read, if it has a folder. What it cannot answer truthfully is refused."""

    def to_arrow(
        self,
        filter: Filter | None = None,  # noqa: A002
        *,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        columns: Sequence[str] | None = None,
    ) -> Any:
        """Read the rows that a tree selects, as a `pyarrow.Table`. InvalidRequest for SQL text or without a folder."""
        if isinstance(filter, str):
            raise InvalidRequest(
                "The fake reads no SQL. Give the filter as a tree, such as "
                '{"op": "gt", "column": "id", "value": 5}, or run a service for this test.'
            )
        if self._api.get_table(self.name).location.startswith("memory://"):
            raise InvalidRequest(
                f"The fake has no files of {self.name}. Create the table with location=<a folder>, and write the files "
                "that the test adds into it."
            )
        return super().to_arrow(filter, version=version, timestamp=timestamp, columns=columns)
