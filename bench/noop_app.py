"""The no-op reference: what one FastAPI process can answer at all, under the settings the service runs with."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

app = FastAPI()


class CommitBody(BaseModel):
    """A typed commit request, as an application would first write it."""

    model_config = ConfigDict(alias_generator=to_camel)

    commit_id: str
    coalesce: bool = True
    operation: str = "WRITE"
    operation_parameters: dict[str, str] = {}
    operation_metrics: dict[str, str] = {}
    actions: list[dict[str, dict[str, Any]]]


@app.post("/raw")
async def raw(request: Request) -> Response:
    """Read the body and answer."""
    await request.body()
    return Response(b'{"outcome":"committed"}', status_code=201, media_type="application/json")


@app.post("/model", status_code=201)
async def model(body: CommitBody) -> dict[str, str]:
    """Validate the body and answer."""
    return {"outcome": "committed", "commitId": body.commit_id}
