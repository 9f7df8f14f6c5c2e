"""Decoding Avro into Arrow, many entries at a time."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa


class ColumnReader(Protocol):
    """A fast decoder of Avro object containers. It is an optimisation: whoever has none decodes record by record."""

    def read_avro(self, data: bytes) -> list[pa.RecordBatch]:
        """All records of a container as record batches. Blocks, and holds no lock meanwhile; call it off the loop.

        Raises ValueError for what it cannot decode, whatever the reason: the caller then decodes another way.
        """
        ...
