"""Long calls over HTTP: the answer itself if it comes within seconds, else 202 with an operation to look at.

A route becomes a long call by answering with `long_answer` and by having `STILL_RUNNING` among its results.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from tarnlog_server.api.answers import json_answer
from tarnlog_server.api.decoding import query_as
from tarnlog_server.api.examples import OPERATION
from tarnlog_server.api.operation import Operation, Result, audited, caller_of, table_of
from tarnlog_server.api.parameters import NoQuery
from tarnlog_server.usecases.coordinator import Coordinator
from tarnlog_server.usecases.operations import Operations, OperationsView, OperationView, Progress, Running, not_found

T = TypeVar("T")
_TAG = "operations"
LOOK_AGAIN_SECONDS = "1"
STILL_RUNNING: dict[int, Result] = {
    202: Result("It takes longer: the operation, which is also where `Location` points", OperationView, OPERATION)
}
"""What every long call may answer besides its own result."""


async def long_answer(
    request: Request,
    operations: Operations,
    kind: str,
    work: Callable[[Progress], Awaitable[T]],
    *,
    parameters: Hashable = None,
    facts: Callable[[T], dict[str, Any]] = lambda _: {},
) -> Response:
    """Do the work on the table in the path. `facts` says what the audit line tells of its result.

    A second call joins the first while `kind`, table and `parameters` are the same.
    """
    outcome = await operations.run(kind, table_of(request), work, parameters=parameters)
    if isinstance(outcome, Running):
        audited(request, operation=outcome.operation.id, outcome="running")
        return json_answer(outcome.operation, 202, _where(outcome.operation))
    audited(request, **facts(outcome.result))
    return json_answer(outcome.result)


def _where(operation: OperationView) -> dict[str, str]:
    return {"location": f"/v1/operations/{operation.id}", "retry-after": LOOK_AGAIN_SECONDS}


class OperationRoutes:
    """Looking at operations."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._operations = coordinator.operations

    async def listed(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        caller = caller_of(request)
        seen = tuple(view for table, view in self._operations.list() if caller.sees(table.namespace))
        return json_answer(OperationsView(seen))

    async def find(self, request: Request) -> Response:
        query_as(request.scope["query_string"], NoQuery)
        wanted = request.scope["path_params"]["operation"]
        table, view = self._operations.find(wanted)
        if not caller_of(request).sees(table.namespace):
            raise not_found(wanted)  # not `forbidden`: that would tell that there is one
        return json_answer(view, headers={"retry-after": LOOK_AGAIN_SECONDS} if view.status == "running" else None)

    def operations(self) -> list[Operation]:
        """What is served here."""
        return [
            Operation(
                id="listOperations",
                method="GET",
                path="/v1/operations",
                endpoint=self.listed,
                tag=_TAG,
                summary="List long calls",
                description="Those that run in this process, and those that ended within the last hour and had been "
                "answered with 202. A key that is limited to namespaces sees only what is about their tables.",
                results={200: Result("The operations, oldest first", OperationsView, {"operations": [OPERATION]})},
            ),
            Operation(
                id="getOperation",
                method="GET",
                path="/v1/operations/{operation}",
                endpoint=self.find,
                tag=_TAG,
                summary="How a long call does",
                description="`result` is what the call would have answered, `problem` the document it would have been "
                "refused with. An operation is known to the process that runs it, and to no other replica.",
                parameters={"operation": {"type": "string"}},
                results={200: Result("The operation", OperationView, OPERATION)},
                problems=("operation-not-found",),
            ),
        ]
