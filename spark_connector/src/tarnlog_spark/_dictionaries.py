"""Columns in which a dictionary never pays, learned from the files that a session wrote.

Parquet's writer collects the first page of every column in a dictionary, and throws it away where it does not make the
page smaller: numbers and texts that hardly repeat. In files of a partitioned write that is much of what is written. The
bytes come out the same without trying, so a table's next write does not try where the last one failed, and tries all
columns once in a while: data changes.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tarnlog.protocol.actions import Add
from tarnlog_spark._statistics import flat_columns
from tarnlog_spark._writing import WriteTask

SETTING = "parquet.enable.dictionary"
PAGE_ROWS = 20_000
"""Values on which the writer decides: files with fewer say nothing about larger ones."""

LOOKED_AT = 4
"""Files of a write whose footers are looked at, those with the most rows."""

TRIED_EVERY = 16
MOST_TABLES = 1000
_USED = {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}


class Dictionaries:
    """What one session knows of its tables. Several threads of a job may write at the same time."""

    def __init__(self) -> None:
        self._futile: OrderedDict[str, frozenset[str]] = OrderedDict()
        self._writes: dict[str, int] = {}
        self._lock = threading.Lock()

    def futile(self, table: str) -> frozenset[str] | None:
        """The columns that a table's next write leaves out; None when it tries all, to be learned from."""
        with self._lock:
            if table not in self._futile:
                return None
            self._futile.move_to_end(table)
            self._writes[table] += 1
            return None if self._writes[table] % TRIED_EVERY == 0 else self._futile[table]

    def learn(self, table: str, paid: Iterable[tuple[str, bool]]) -> None:
        """Take in for which columns a dictionary paid in a file, of a write that tried all. One file that has a
        dictionary is enough to try on; columns of which nothing was seen stay what they were."""
        found: dict[str, bool] = {}
        for name, has_paid in paid:
            found[name] = found.get(name, False) or has_paid
        if not found:
            return
        with self._lock:
            known = {name for name in self._futile.get(table, ()) if name not in found}
            self._futile[table] = frozenset(known | {name for name, has_paid in found.items() if not has_paid})
            self._writes.setdefault(table, 0)
            while len(self._futile) > MOST_TABLES:
                gone, _ = self._futile.popitem(last=False)
                del self._writes[gone]


def learn(known: Dictionaries, task: WriteTask, written: Sequence[Add]) -> None:
    """Look at the largest files of a write. Costs their footers, and nothing where all files are small."""
    large = [file for file in written if (file.num_records or 0) >= PAGE_ROWS]
    schema = task.schema()
    seen: list[tuple[str, bool]] = []
    for file in sorted(large, key=lambda file: -(file.num_records or 0))[:LOOKED_AT]:
        with (
            contextlib.suppress(OSError),  # the rows are safe, and the next write will tell
            task.storage.filesystem.open_input_file(task.storage.path(file.path)) as source,
        ):
            seen += _paid(pq.ParquetFile(source).metadata, schema)
    known.learn(task.storage.location, seen)


def _paid(footer: pq.FileMetaData, schema: pa.Schema) -> Iterator[tuple[str, bool]]:
    """Columns with enough values, and whether they have a dictionary."""
    for field, leaf in flat_columns(schema, limit=None):
        if "." in field.name or pa.types.is_boolean(field.type):  # the setting's dots are of nested columns
            continue
        chunks = [footer.row_group(group).column(leaf) for group in range(footer.num_row_groups)]
        if any(_USED & set(chunk.encodings) for chunk in chunks):
            yield field.name, True
        elif any(_values(chunk) >= PAGE_ROWS for chunk in chunks):
            yield field.name, False


def _values(chunk: Any) -> int:
    """Values that are not null, as far as the footer tells."""
    found = chunk.statistics
    return chunk.num_values - found.null_count if found is not None and found.has_null_count else 0


def without_dictionary(columns: frozenset[str]) -> dict[str, str]:
    """The options of a write that leave these columns without a dictionary."""
    return {f"{SETTING}#{name}": "false" for name in sorted(columns)}


def is_users(spark: Any) -> bool:
    """Whether the session or its Hadoop has settings for dictionaries: then nothing of it is decided here."""
    return not spark._jsparkSession.sessionState().newHadoopConf().getPropsWithPrefix(SETTING).isEmpty()


def dictionaries(spark: Any) -> Dictionaries:
    """What a session has learned; it goes with it."""
    with _lock:
        found = _known.get(spark)
        if found is None:
            found = _known[spark] = Dictionaries()
        return found


_lock = threading.Lock()
_known: weakref.WeakKeyDictionary[Any, Dictionaries] = weakref.WeakKeyDictionary()
