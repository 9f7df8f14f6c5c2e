"""Columns in which a dictionary never pays, learned from the files that a session wrote.

Parquet's writer collects the first page of every column in a dictionary, and throws it away where it does not make the
page smaller: numbers and texts that hardly repeat. In files of a partitioned write that is much of what is written. The
bytes come out the same without trying, so a table's next writes do not try where none of its files had one, and try all
columns once in a while: data changes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tarnlog_spark._per_session import PerSession
from tarnlog_spark._statistics import flat_columns
from tarnlog_spark._writing import WriteTask

SETTING = "parquet.enable.dictionary"
USERS = (SETTING, "parquet.dictionary")
"""How settings begin that say how dictionaries are to be made."""

PAGE_ROWS = 20_000
"""Values on which the writer decides: files with fewer say nothing about larger ones."""

TRIED_EVERY = 16
MOST_COLUMNS, MOST_TABLES = 100, 1000
"""Each column that is left out is an option of the write, which costs Spark time."""
_USED = {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}


class Dictionaries:
    """What one session knows of its tables. Several threads of a job may write at the same time."""

    def __init__(self) -> None:
        self._futile: OrderedDict[tuple[str, str], frozenset[str]] = OrderedDict()
        self._writes: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def futile(self, task: WriteTask) -> frozenset[str] | None:
        """The columns that a table's next write leaves out; None when it tries all, to be learned from."""
        key = _key(task)
        with self._lock:
            if key not in self._futile:
                return None
            self._futile.move_to_end(key)
            self._writes[key] += 1
            return None if self._writes[key] >= TRIED_EVERY else self._futile[key]

    def learn(self, task: WriteTask, paid: Mapping[str, bool]) -> None:
        """Take in for which columns a dictionary paid, in a write that tried all. Columns of which nothing was seen
        stay what they were; a write of which nothing was seen at all leaves the next one to be learned from."""
        if not paid:
            return
        key = _key(task)
        with self._lock:
            known = {name for name in self._futile.get(key, ()) if name not in paid}
            self._futile[key] = frozenset(known.union(name for name, has_paid in paid.items() if not has_paid))
            self._writes[key] = 0
            while len(self._futile) > MOST_TABLES:
                gone, _ = self._futile.popitem(last=False)
                del self._writes[gone]


def _key(task: WriteTask) -> tuple[str, str]:
    """A column of another type is another column."""
    return task.storage.location, task.schema_string


class Paid:
    """For which columns a dictionary paid, over all files of a write: in one of them is enough to try on.

    Several threads may look at files: True is never taken back.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.found: dict[str, bool] = {}
        self._columns = [
            (field.name, leaf)
            for field, leaf in flat_columns(schema, limit=MOST_COLUMNS)
            # The setting's dots are of nested columns, and Hadoop cuts blanks off its ends.
            if "." not in field.name and field.name == field.name.strip() and not pa.types.is_boolean(field.type)
        ]

    def look(self, footer: pq.FileMetaData) -> None:
        """Take in one file. Costs a look at each column of each row group."""
        for name, leaf in self._columns:
            chunks = [footer.row_group(group).column(leaf) for group in range(footer.num_row_groups)]
            if any(_USED & set(chunk.encodings) for chunk in chunks):
                self.found[name] = True
            elif any(_values(chunk) >= PAGE_ROWS for chunk in chunks):
                self.found.setdefault(name, False)

    def take(self, found: Mapping[str, bool]) -> None:
        """Take in what was found elsewhere."""
        for name, has_paid in found.items():
            self.found[name] = self.found.get(name, False) or has_paid


def _values(chunk: Any) -> int:
    """Values that are not null, as far as the footer tells."""
    found = chunk.statistics
    return chunk.num_values - found.null_count if found is not None and found.has_null_count else 0


def without_dictionary(columns: frozenset[str]) -> dict[str, str]:
    """The options of a write that leave these columns without a dictionary."""
    return {f"{SETTING}#{name}": "false" for name in sorted(columns)}


def is_users(spark: Any) -> bool:
    """Whether the session or its Hadoop has settings for dictionaries: then nothing is learned of what they made, and
    nothing is decided here. Takes some milliseconds."""
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    return any(not conf.getPropsWithPrefix(prefix).isEmpty() for prefix in USERS)


dictionaries = PerSession(Dictionaries)
"""What a session has learned."""
