"""`serve`: the service in this process, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import structlog
import uvicorn

import tarnlog_server.adapters.allocator  # noqa: F401  # first: it has to be there before Arrow is loaded
from tarnlog_server.adapters.lean_arrow import without_pandas
from tarnlog_server.api.http_protocol import ConnectionLimits, bounded_http
from tarnlog_server.bootstrap import Service
from tarnlog_server.settings import BadSettings, Settings, load_settings
from tarnlog_server.telemetry.logs import configure_logs

_log = structlog.get_logger("tarnlog.server")
GRACE_BEYOND_SECONDS = 5.0
LAST_REQUESTS_SECONDS = 0.25
LAST_LOOKS = 10
"""How long a shutdown still answers requests that were on their way before idle connections are closed, and how often
it looks for them meanwhile: after a stall of the whole machine, one look would find the time over and see nothing."""

KEEP_ALIVE_SECONDS = 75
"""Longer than clients and proxies keep idle connections, so that it is they who close them."""

BACKLOG = 2048
OTHER_FILES = 512
"""Open files that are not connections of clients: storage, the index, other replicas."""
COLLECT_AFTER = (20_000, 10, 10)
"""When the garbage collector looks: a hundred requests at once hold thousands of objects and let go of them by
themselves, so that Python's 700 would have it look several times in each version, for nothing."""
STUCK_SECONDS = 2.0


def serve(
    host: str | None = None,
    port: int | None = None,
    warehouse: str | None = None,
    config: str | Path | None = None,
) -> int:
    """Run the service; arguments beat settings. The exit code: 0 after SIGTERM or Ctrl-C, 2 for bad settings."""
    try:
        settings = load_settings(config, host=host, port=port, warehouse=warehouse)
        configure_logs(settings.log_level, settings.log_format)
        service = Service(settings)
        listening = _listen(settings)
    except BadSettings as error:
        sys.stderr.write(f"tarnlog: {error}\n")
        return 2
    server = _Server(service)
    # What is there now lives as long as the process: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    gc.enable()
    with contextlib.closing(listening), without_pandas():
        _run(server, listening)
    return 0 if server.started else 1


class _Server(uvicorn.Server):
    """uvicorn, except that a shutdown first answers everyone who waits, and that SIGTERM ends the process with 0."""

    def __init__(self, service: Service) -> None:
        config = uvicorn.Config(
            service.app,
            http=bounded_http(_connection_limits(service.settings)),
            loop="uvloop" if sys.platform != "win32" else "asyncio",
            lifespan="on",
            ws="none",
            log_config=None,
            access_log=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=int(service.settings.shutdown_grace_seconds + GRACE_BEYOND_SECONDS),
        )
        super().__init__(config)
        self._service = service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            url = f"http://{shown}:{port}"
            warehouse = self._service.coordinator.roots.warehouse.uri
            sys.stdout.write(f"tarnlog serves {warehouse} on {url} (dashboard: {url}/, API: {url}/docs)\n")
            sys.stdout.flush()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        answered = asyncio.create_task(self._service.stop_serving(), name="answer everyone")
        try:
            # A request under way on an idle connection would be cut off: everyone is told to go elsewhere first.
            for _ in range(LAST_LOOKS):
                await asyncio.sleep(LAST_REQUESTS_SECONDS / LAST_LOOKS)
            leaving = asyncio.create_task(self._end_stuck(answered), name="end stuck connections")
            await super().shutdown(sockets)
            leaving.cancel()
        finally:
            await asyncio.gather(answered, return_exceptions=True)

    async def _end_stuck(self, answered: asyncio.Task[None]) -> None:
        """Once everyone was answered, a follower that does not read its stream must not hold up the end."""
        await asyncio.wait({answered})
        await asyncio.sleep(STUCK_SECONDS)
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _connection_limits(settings: Settings) -> ConnectionLimits:
    """The limits of the settings, with as many connections as this process may open files for."""
    files = _openable(settings.max_connections + OTHER_FILES)
    connections = min(settings.max_connections, max(files - OTHER_FILES, files // 2))
    if connections < settings.max_connections:
        _log.warning(
            "fewer connections than TARNLOG_MAX_CONNECTIONS: raise the limit on open files (ulimit -n)",
            connections=connections,
            wanted=settings.max_connections,
        )
    return ConnectionLimits(
        head_seconds=settings.request_head_seconds,
        body_seconds=settings.request_body_seconds,
        connections=connections,
    )


def _openable(files: int) -> int:
    """How many files this process may open, raised to `files` where the hard limit allows it."""
    if sys.platform == "win32":
        return files
    import resource  # Windows does not have it

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= files:
        return files
    allowed = files if hard == resource.RLIM_INFINITY else min(files, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (ValueError, OSError):
        return soft
    return allowed


def _run(server: _Server, listening: socket.socket) -> None:
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(server.serve([listening]))


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host.strip("[]"), settings.port))
    except OSError as error:
        listening.close()
        raise BadSettings(
            f"TARNLOG_HOST {settings.host}, TARNLOG_PORT {settings.port}: cannot listen there ({error.strerror}); "
            "stop what does, or choose another port"
        ) from error
    listening.setblocking(False)
    return listening
