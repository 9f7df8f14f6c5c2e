"""A real Postgres in a container, by testcontainers: the image that docker-compose.yml runs."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import asyncpg
from testcontainers.core.container import DockerContainer

from tests.postgres_server import PostgresServer

IMAGE = "postgres:17-alpine"
PORT = 5432
START_SECONDS = 120.0
QUICK = ["postgres", "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off"]
HERE = ("localhost", "127.0.0.1")


class PostgresContainer(PostgresServer):
    """A server whose data goes with its container. Quick rather than durable."""

    def __init__(self, image: str = IMAGE) -> None:
        self._container = (
            DockerContainer(image)
            .with_env("POSTGRES_HOST_AUTH_METHOD", "trust")
            .with_env("POSTGRES_INITDB_ARGS", "--no-sync --locale=C -E UTF8")
            .with_command([*QUICK, "-c", "max_connections=60"])
            .with_exposed_ports(PORT)
        )

    def start(self) -> PostgresContainer:
        """Start it; RuntimeError unless it is reached through a port of this machine, which tests cut and freeze."""
        self._container.start()
        try:
            host = self._container.get_container_host_ip()
            if host not in HERE:
                raise RuntimeError(f"the container is reached at {host}, and tests need it on this machine")
            self.port = int(self._container.get_exposed_port(PORT))
            with ThreadPoolExecutor(1) as beside:  # whoever asks for the server may be inside a running loop
                beside.submit(lambda: asyncio.run(self._until_it_answers())).result()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End it, with its data."""
        self._container.stop()

    async def _until_it_answers(self) -> None:
        """The image starts a server that only prepares, and then the real one: twice in a row is the real one."""
        end = time.monotonic() + START_SECONDS
        answered = 0
        while answered < 2:
            try:
                await self.execute("SELECT 1")
                answered += 1
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                answered = 0
                if time.monotonic() > end:
                    raise RuntimeError(f"Postgres did not start in its container: {error}") from error
            await asyncio.sleep(0.2)
