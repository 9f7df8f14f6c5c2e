"""Record batches as the bytes of an Arrow IPC stream, batch by batch: a stream is never whole in memory."""

from __future__ import annotations

import io

import pyarrow as pa

MEDIA_TYPE = "application/vnd.apache.arrow.stream"


class ArrowStream:
    """Encodes one stream. Its schema goes out with the first chunk, or with the end of an empty one."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = io.BytesIO()
        self._writer = pa.ipc.new_stream(self._sink, schema)

    def chunk(self, batch: pa.RecordBatch) -> bytes:
        """One more batch."""
        self._writer.write_batch(batch)
        return self._drained()

    def end(self) -> bytes:
        """What closes the stream: a reader that does not find it was cut off."""
        self._writer.close()
        return self._drained()

    def _drained(self) -> bytes:
        data = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return data
