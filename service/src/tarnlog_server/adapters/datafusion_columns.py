"""Avro into Arrow by DataFusion: ten times faster than record by record, and other threads run meanwhile."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from tarnlog_server.ports.columns import ColumnReader


class DataFusionColumns:
    """A ColumnReader. DataFusion only reads files, so the bytes pass through one of a moment."""

    def read_avro(self, data: bytes) -> list[pa.RecordBatch]:
        """All records of a container as record batches."""
        with tempfile.TemporaryDirectory(prefix="tarnlog-") as folder:
            file = Path(folder) / "manifest.avro"
            file.write_bytes(data)
            try:
                return list(self._session.read_avro(str(file)).collect())
            except Exception as error:  # its faults have no common type
                raise ValueError(f"DataFusion cannot read it: {error}") from error

    @functools.cached_property
    def _session(self) -> Any:
        """Made at the first use: loading the library takes a moment, and a small service never needs it."""
        datafusion: Any = importlib.import_module("datafusion")
        # One partition keeps the entries of a file in their order.
        return datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))


def column_reader() -> ColumnReader | None:
    """The fast decoder, where it is installed: not every platform has it."""
    return DataFusionColumns() if importlib.util.find_spec("datafusion") is not None else None
