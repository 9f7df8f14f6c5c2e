"""Collect the actions of one commit in a `with` block; leaving it sends them, an exception inside sends nothing.

    with client.transaction("sales.orders", operation="MERGE") as tx:
        tx.read(filter="date = '2024-01-01'")
        tx.remove(old)
        tx.add(new, size=1234)
    tx.outcome

Leaving the block without an exception means that it is committed, unless `check=False` asks for the outcome alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tarnlog._errors import raise_for_outcome
from tarnlog._plans import Filter, filter_document
from tarnlog.protocol.actions import Action, Add, Remove, Txn
from tarnlog.protocol.commits import CommitOutcome, Isolation, Reads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tarnlog._api import TableApi
    from tarnlog._async_client import AsyncClient


class Draft:
    """The commit as it grows; knows nothing of sending."""

    def __init__(
        self,
        table: str,
        commit_id: str,
        *,
        operation: str,
        operation_parameters: Mapping[str, Any] | None,
        isolation: Isolation | None,
        read_version: int | None,
        check: bool,
    ) -> None:
        self.table = table
        self.commit_id = commit_id
        self.read_version = read_version
        self.outcome: CommitOutcome | None = None
        self.operation_metrics: dict[str, Any] = {}
        self._operation = operation
        self._operation_parameters = operation_parameters
        self._isolation = isolation
        self._check = check
        self._actions: list[Action] = []
        self._filters: list[Any] = []
        self._paths: list[str] = []
        self._app_ids: list[str] = []
        self._whole_table = False

    def add(
        self,
        path: str,
        *,
        size: int,
        partition_values: Mapping[str, str | None] | None = None,
        modification_time: int | None = None,
        data_change: bool = True,
        **fields: Any,
    ) -> None:
        """A file that becomes part of the table; `fields` are the other fields of `Add`, such as num_records."""
        changed = time.time_ns() // 1_000_000 if modification_time is None else modification_time
        self._actions.append(
            Add(
                path=path,
                partition_values=dict(partition_values or {}),
                size=size,
                modification_time=changed,
                data_change=data_change,
                **fields,
            )
        )

    def remove(self, path: str, *, data_change: bool = True, **fields: Any) -> None:
        """A file that stops being part of the table."""
        fields.setdefault("deletion_timestamp", time.time_ns() // 1_000_000)
        self._actions.append(Remove(path=path, data_change=data_change, **fields))

    def set_txn(self, app_id: str, version: int) -> None:
        """How far an application gets with this commit."""
        self._actions.append(Txn(app_id=app_id, version=version))

    def action(self, action: Action) -> None:
        """Any other action."""
        self._actions.append(action)

    def _note_read(
        self, filter_: Filter | None, paths: tuple[str, ...], app_ids: tuple[str, ...], whole_table: bool
    ) -> None:
        if filter_ is not None:
            self._filters.append(filter_document(filter_))
        self._paths.extend(paths)
        self._app_ids.extend(app_ids)
        self._whole_table = self._whole_table or whole_table

    def _reads(self) -> Reads | None:
        if not (self._filters or self._paths or self._app_ids or self._whole_table):
            return None
        return Reads(
            whole_table=self._whole_table,
            filters=tuple(self._filters),
            paths=tuple(self._paths),
            app_ids=tuple(self._app_ids),
        )

    def _needs_version(self) -> bool:
        """Only a blind append goes without one."""
        return self.read_version is None and not all(isinstance(action, Add) for action in self._actions)

    def _arguments(self) -> dict[str, Any]:
        return {
            "commit_id": self.commit_id,
            "read_version": self.read_version,
            "reads": self._reads(),
            "isolation": self._isolation,
            "operation": self._operation,
            "operation_parameters": self._operation_parameters,
            "operation_metrics": self.operation_metrics or None,
        }

    def _settle(self, outcome: CommitOutcome) -> None:
        self.outcome = outcome
        if self._check:
            raise_for_outcome(outcome)


class Transaction(Draft):
    """One commit; made by `Client.transaction`. `outcome` is None when nothing was sent."""

    def __init__(self, api: TableApi, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._api = api

    def pin(self) -> int:
        """The version this commit is based on: the newest one at the first call."""
        if self.read_version is None:
            self.read_version = self._api.snapshot(self.table).version
        return self.read_version

    def read(
        self,
        *,
        filter: Filter | None = None,  # noqa: A002 (the API's word)
        paths: tuple[str, ...] | list[str] = (),
        app_ids: tuple[str, ...] | list[str] = (),
        whole_table: bool = False,
    ) -> int:
        """State what this commit rests on, before reading it; returns the version to read at.

        `filter` is a SQL predicate or a tree, as for `plan`: the commit conflicts with changes of rows that it selects.
        Times in SQL text that name no zone are UTC; of a plan in another zone, pass `plan.filter`.
        """
        version = self.pin()
        self._note_read(filter, tuple(paths), tuple(app_ids), whole_table)
        return version

    def files(self) -> Iterator[Add]:
        """The live files at the pinned version. What the commit rests on is still to be stated with `read`."""
        return self._api.files(self.table, version=self.pin())

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None or not self._actions:
            return
        if self._needs_version():
            self.pin()
        self._settle(self._api.commit(self.table, self._actions, **self._arguments()))


class AsyncTransaction(Draft):
    """One commit; made by `AsyncClient.transaction`. `outcome` is None when nothing was sent."""

    def __init__(self, api: AsyncClient, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._api = api

    async def pin(self) -> int:
        """The version this commit is based on: the newest one at the first call."""
        if self.read_version is None:
            self.read_version = (await self._api.snapshot(self.table)).version
        return self.read_version

    async def read(
        self,
        *,
        filter: Filter | None = None,  # noqa: A002 (the API's word)
        paths: tuple[str, ...] | list[str] = (),
        app_ids: tuple[str, ...] | list[str] = (),
        whole_table: bool = False,
    ) -> int:
        """State what this commit rests on, before reading it; returns the version to read at.

        `filter` is a SQL predicate or a tree, as for `plan`: the commit conflicts with changes of rows that it selects.
        Times in SQL text that name no zone are UTC; of a plan in another zone, pass `plan.filter`.
        """
        version = await self.pin()
        self._note_read(filter, tuple(paths), tuple(app_ids), whole_table)
        return version

    async def files(self) -> AsyncIterator[Add]:
        """The live files at the pinned version. What the commit rests on is still to be stated with `read`."""
        async for file in self._api.files(self.table, version=await self.pin()):
            yield file

    async def __aenter__(self) -> AsyncTransaction:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None or not self._actions:
            return
        if self._needs_version():
            await self.pin()
        self._settle(await self._api.commit(self.table, self._actions, **self._arguments()))
