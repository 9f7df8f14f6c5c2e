"""Templates to answers: everything is escaped, nothing is loaded from elsewhere, nothing is kept by the browser."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response

from tarnlog.protocol.problems import ProblemError
from tarnlog_server.api.answers import COMPRESS_ABOVE, accepts_gzip
from tarnlog_server.api.auth import LOCAL
from tarnlog_server.api.dashboard import pictures, words
from tarnlog_server.api.operation import CALLER
from tarnlog_server.core.activity import BUCKET_SECONDS, BUCKETS

HERE = Path(__file__).parent
ASSETS = "/dashboard/assets"
SECURITY = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
WORDS: tuple[Callable[..., str], ...] = (
    *(words.size, words.number, words.counted, words.rate, words.share, words.compact, words.short),
    *(words.duration, words.percentiles, words.age, words.moment, words.iso),
)
CHALLENGE = 'Basic realm="tarnlog: key id and secret", charset="UTF-8"'
"""What makes a browser ask: the key's id is the user, its secret the password."""


class Pages:
    """Renders templates."""

    def __init__(self) -> None:
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,  # a package that is replaced under a running service does not mix old and new
            trim_blocks=True,
            lstrip_blocks=True,
        )
        for shown in (*WORDS, pictures.sparkline, pictures.bars, pictures.widths):
            self._templates.filters[shown.__name__] = shown
        self._templates.globals.update(
            assets=ASSETS,
            release=metadata.version("tarnlog-server"),
            window=words.age(BUCKETS * BUCKET_SECONDS),
            bucket=words.age(BUCKET_SECONDS),
        )

    def page(self, request: Request, template: str, status: int = 200, **facts: Any) -> Response:
        """A page."""
        caller = request.scope.get(CALLER, LOCAL)
        body = self._templates.get_template(template).render(caller=caller, **facts).encode("utf-8", "replace")
        headers = {**SECURITY, "vary": "Accept-Encoding"}
        if len(body) >= COMPRESS_ABOVE and accepts_gzip(request.headers.get("accept-encoding", "")):
            body = gzip.compress(body, 1, mtime=0)
            headers["content-encoding"] = "gzip"
        return Response(body, status, headers, "text/html; charset=utf-8")

    def problem(self, request: Request, problem: ProblemError) -> Response:
        """What went wrong, as a page."""
        response = self.page(request, "problem.html", problem.code.status, problem=problem)
        if problem.retry_after is not None:
            response.headers["retry-after"] = str(max(1, math.ceil(problem.retry_after)))
        if problem.code.status == 401:
            response.headers["www-authenticate"] = CHALLENGE
        return response
