"""Long calls through a real process: the client waits for them, and a shutdown ends them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tarnlog import Client, Progress
from tests.service_process import ServiceProcess, start_service

__all__ = ["start_service"]  # fixture

SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}


def test_the_client_waits_for_what_is_answered_with_202(
    start_service: Callable[..., ServiceProcess], tmp_path: Path
) -> None:
    service = start_service(env={"TARNLOG_OPERATION_WAIT_SECONDS": "0"})
    told: list[Progress] = []
    with Client(service.url) as client:
        table = client.create_table("db.t", SCHEMA)
        with client.transaction("db.t") as tx:
            tx.add("live.parquet", size=1)
        folder = next(tmp_path.glob("warehouse/db/t-*"))
        for name in ("live.parquet", "orphan.parquet"):
            (folder / name).write_bytes(b"data")
        written = client.checkpoint("db.t", on_progress=told.append)
        assert written.checkpoint_version == table.version + 1
        done = client.vacuum("db.t", dry_run=False, retention_hours=0, override_minimum=True, on_progress=told.append)
        assert (done.orphaned_files_deleted, done.kept.referenced) == (1, 1)
        kinds = [(found.kind, found.status) for found in client.operations()]
        assert kinds == [("checkpoint", "succeeded"), ("vacuum", "succeeded")]
    assert told
    assert sorted(path.name for path in folder.glob("*.parquet")) == ["live.parquet"]
    assert service.stop() == 0
    assert "Traceback" not in service.logs
