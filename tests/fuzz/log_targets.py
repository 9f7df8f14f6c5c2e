"""Damaged objects under a running table: every read answers, with a value or with a problem that names the damage."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence

from tarnlog_server.adapters.memory_store import MemoryStore
from tests.api.conftest import Api, add
from tests.conftest import LONG
from tests.fuzz.harness import Target
from tests.fuzz.served import JSON, asked, judge
from tests.fuzz.storage_targets import resealed_document, resealed_lines, unpacked

READS = ("", "/snapshot", "/files", "/commits", "/changes", "/state", "/skips", "/commits/2", "/txns/a")
PLAN = b'{"filter":"id = 5 AND name = \'1\'"}'
Objects = dict[str, bytes]


@functools.cache
def runner() -> asyncio.Runner:
    return asyncio.Runner()


@functools.cache
def stored(state_format: str | None) -> Objects:
    """The objects of a warehouse with one table: four versions, and a state of the third where a format is given."""

    async def written() -> Objects:
        async with Api() as api:
            await api.create(partitionColumns=["name"], properties={"state.format": state_format or "avro"})
            for number in range(3):
                action = add(f"name={number}/f", partitionValues={"name": str(number)}, numRecords=1, tags={"t": "u"})
                commit = {"actions": [action, {"txn": {"appId": "a", "version": number}}], "readVersion": number}
                assert (await api.post("/v1/tables/db.t/commits", json=commit)).status_code == 201
                if number == 1 and state_format is not None:
                    assert (await api.post("/v1/tables/db.t/checkpoint")).status_code == 200
            keys = [info.key for info in await api.store.list("", limit=1000)]
            return {key: await api.store.get(key) for key in keys}

    return runner().run(written())


def _key(objects: Objects, ending: str) -> str:
    return next(key for key in sorted(objects) if ending in key)


def opened(state_format: str | None, ending: str) -> Callable[[bytes], None]:
    """Put bytes in the place of an object and read the table in every way."""

    async def read(data: bytes) -> None:
        objects = stored(state_format)
        damaged = _key(objects, ending)
        async with Api() as api:
            store: MemoryStore = api.store
            for key, content in objects.items():
                await store.put_if_absent(key, data if key == damaged else content)
            requests = [("GET", f"/v1/tables/db.t{path}", b"") for path in READS]
            requests += [("POST", "/v1/tables/db.t/plan", PLAN), ("GET", "/v1/tables", b"")]
            if LONG:  # both take a second
                requests += [("GET", "/dashboard/tables/db.t", b""), ("POST", "/v1/tables/db.t/verify", b"{}")]
            for method, path, body in requests:
                status, content = await asked(api.app, method, path, b"", body, JSON)
                if not path.startswith("/dashboard"):
                    judge(status, content)

    return lambda data: runner().run(read(data))


def samples(state_format: str | None, ending: str) -> Callable[[], Sequence[bytes]]:
    return lambda: [stored(state_format)[_key(stored(state_format), ending)]]


TARGETS: tuple[Target, ...] = (
    *(
        Target(
            f"log-version-{name}",
            samples(form, f"_transaction_log/{number:020d}.json"),
            opened(form, f"_transaction_log/{number:020d}.json"),
            (),
            "lines",
            resealed_lines,
            unpacked,
        )
        for name, form, number in (("first", None, 0), ("middle", None, 2), ("after-state", "avro", 3))
    ),
    Target(
        "log-state-document",
        samples("avro", "_manifest.json"),
        opened("avro", "_manifest.json"),
        (),
        "json",
        resealed_document,
    ),
    Target("log-manifest", samples("avro", "/manifest-"), opened("avro", "/manifest-"), ()),
    Target(
        "log-json-checkpoint",
        samples("json", ".checkpoint.json"),
        opened("json", ".checkpoint.json"),
        (),
        "lines",
        resealed_lines,
        unpacked,
    ),
    Target("log-parquet-checkpoint", samples("parquet", ".checkpoint.parquet"), opened("parquet", ".parquet"), ()),
    Target("log-hint", samples("avro", "_last_checkpoint"), opened("avro", "_last_checkpoint"), (), "json"),
    Target("catalog-entry", samples(None, "_catalog/"), opened(None, "_catalog/"), (), "json"),
)
