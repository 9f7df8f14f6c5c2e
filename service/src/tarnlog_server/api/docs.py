"""The interactive documentation, without the internet: Swagger UI's files come from a Python package.

The page has no inline script, so that a Content-Security-Policy of `script-src 'self'` is enough for it. No other page
may show it in a frame: its buttons do what a click on them does.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

ASSETS = "/docs/assets"
START = f"{ASSETS}/start.js"
SECURITY = {
    # Swagger UI sets styles from its script, and has its icons as data in its style sheet.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
}
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="{assets}/favicon.png">
<link rel="stylesheet" href="{assets}/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="{assets}/swagger-ui-bundle.js"></script>
<script src="{start}"></script>
</body>
</html>
"""
_SCRIPT = """SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  displayRequestDuration: true,
  validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis, SwaggerUIBundle.SwaggerUIStandalonePreset],
});
"""


def docs_routes(title: str, document: Callable[[], dict[str, Any]]) -> list[BaseRoute]:
    """`/openapi.json`, `/docs` and the files that it loads. The document is made on demand, once."""
    described = cache(lambda: msgspec.json.encode(document()))
    page = _PAGE.format(title=html.escape(title), assets=ASSETS, start=START)

    async def docs(_: Request) -> Response:
        return HTMLResponse(page, headers=SECURITY)

    async def start(_: Request) -> Response:
        return Response(_SCRIPT, media_type="text/javascript")

    async def openapi(_: Request) -> Response:
        return Response(described(), media_type="application/json")

    assets = StaticFiles(directory=Path(str(resources.files("fastapi_offline") / "static")))
    return [
        Route("/openapi.json", openapi, methods=["GET"]),
        Route("/docs", docs, methods=["GET"]),
        Route(START, start, methods=["GET"]),
        Mount(ASSETS, assets),
    ]
