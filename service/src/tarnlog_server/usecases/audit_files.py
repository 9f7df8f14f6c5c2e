"""Auditing data files: every file that a table shows is there and has the size that the log tells."""

from __future__ import annotations

from tarnlog.protocol.paths import path_key
from tarnlog_server.core.audit import SHOWN, Check, some
from tarnlog_server.core.replay import Snapshot
from tarnlog_server.usecases.operations import Progress
from tarnlog_server.usecases.table_log import TableLog

PAGE = 1000


async def check_data_files(log: TableLog, snapshot: Snapshot, progress: Progress) -> Check:
    """Compare a listing of the table's folder with its files. Costs a LIST a thousand objects. Raises StoreError.

    One listing is far fewer calls than a HEAD a file. Files outside the table's folder, which only logs that were
    taken over have, are not looked for.
    """
    paths = log.paths
    folder = f"{paths.table}/" if paths.table else ""
    expected: dict[str, int] = {}
    elsewhere = 0
    for _, add in snapshot.rows():
        key = path_key(add.path)
        if "://" in key or key.startswith("/"):
            elsewhere += 1
        else:
            expected[key] = add.size
    total = len(expected)
    sizes: list[str] = []
    wrong = 0
    after: str | None = None
    while expected:
        page = await log.store.list(folder, start_after=after, limit=PAGE)
        for info in page:
            size = expected.pop(info.key[len(folder) :], None)
            if size is not None and size != info.size:
                wrong += 1
                if len(sizes) < SHOWN:
                    sizes.append(f"{info.key[len(folder) :]} has {info.size} bytes instead of {size}")
        progress(total - len(expected), total, "files")
        if len(page) < PAGE:
            break
        after = page[-1].key
        if after.startswith(paths.root):
            after = f"{paths.root[:-1]}0"  # the log is no data: go on behind its folder
    notes = [f"{elsewhere} files outside the table's folder were not looked for"] if elsewhere else []
    if expected:
        notes.append(f"{len(expected)} of {total} files are missing: {some(sorted(expected)[:SHOWN], len(expected))}")
    if wrong:
        notes.append(f"{wrong} files have another size: {some(sizes, wrong)}")
    if not expected and not wrong:
        notes.insert(0, f"{total} files are there with the size that the log tells")
    return Check("data-files", not expected and not wrong, "; ".join(notes))
