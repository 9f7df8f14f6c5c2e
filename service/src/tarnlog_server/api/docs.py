"""The interactive documentation, without the internet: Swagger UI's files come from a Python package."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from swagger_ui_bundle import swagger_ui_path

from tarnlog_server.api.swagger import for_swagger

ASSETS = "/docs/assets"


def docs_routes(title: str, document: Callable[[], dict[str, Any]]) -> list[BaseRoute]:
    """`/openapi.json`, `/docs` with what it loads. The document is made on demand."""
    whole = cache(lambda: msgspec.json.encode(document()))
    older = cache(lambda: msgspec.json.encode(for_swagger(document())))
    page = get_swagger_ui_html(
        openapi_url=f"{ASSETS}/openapi.json",
        title=title,
        swagger_js_url=f"{ASSETS}/swagger-ui-bundle.js",
        swagger_css_url=f"{ASSETS}/swagger-ui.css",
        swagger_favicon_url=f"{ASSETS}/favicon-32x32.png",
        swagger_ui_parameters={"displayRequestDuration": True, "validatorUrl": None},
    )

    async def docs(_: Request) -> Response:
        return HTMLResponse(bytes(page.body))

    async def described(_: Request) -> Response:
        return Response(whole(), media_type="application/json")

    async def shown(_: Request) -> Response:
        return Response(older(), media_type="application/json")

    assets = StaticFiles(directory=Path(str(swagger_ui_path)))
    return [
        Route("/openapi.json", described, methods=["GET"]),
        Route("/docs", docs, methods=["GET"]),
        Route(f"{ASSETS}/openapi.json", shown, methods=["GET"]),
        Mount(ASSETS, assets),
    ]
