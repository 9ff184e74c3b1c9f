"""Columns as bytes on their way between subtasks.

A byte that travels costs some nanoseconds on its way through the JVM, so whole numbers and moments go in as few bytes
as their range needs: as unsigned distances from the least of them, which is written beside them.

    column      int64, or a timestamp, without nulls; least and greatest differ by less than 2^32
    travels as  uint8, uint16 or uint32
    beside it   in the metadata of its field: the least number, and the type if it is not int64

All of it is an Arrow stream of one batch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from moorline.model.columns import ColumnBatch, TimeColumn, times_of

#: The column of timestamps.
TIMESTAMPS = "\0timestamp"
_LEAST = b"moorline.least"
_NARROW: tuple[tuple[int, Any], ...] = ((8, np.uint8), (16, np.uint16), (32, np.uint32))
#: For fewer rows than this, metadata takes more than numbers.
FEW_ROWS = 64


def to_bytes(batch: pa.RecordBatch, timestamps: Sequence[int] | None = None) -> pa.Buffer:
    """A batch, and the timestamps of its rows if they have any.

    >>> batch = pa.RecordBatch.from_pydict({"n": pa.array(range(1_000_000, 1_000_200))})
    >>> len(to_bytes(batch)) < 800, from_bytes(to_bytes(batch))[0].batch.equals(batch)
    (True, True)
    """
    if timestamps:
        batch = batch.append_column(TIMESTAMPS, pa.array(times_of(timestamps)))
    if batch.num_rows >= FEW_ROWS:
        batch = _narrowed(batch)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def from_bytes(content: bytes | memoryview) -> tuple[ColumnBatch, TimeColumn | None]:
    """The batch that :func:`to_bytes` was given."""
    # A copy begins where numbers of 8 bytes may begin, as a part of a frame need not. NumPy's kernels are up to forty
    # times slower on arrays that do not.
    with pa.ipc.open_stream(pa.py_buffer(bytes(content))) as reader:
        batch = _widened(reader.read_next_batch())
    if batch.schema.names[-1:] != [TIMESTAMPS]:
        return ColumnBatch(batch), None
    stamps = TimeColumn(batch.column(TIMESTAMPS).to_numpy())
    return ColumnBatch(batch.drop_columns([TIMESTAMPS])), stamps


def _narrowed(batch: pa.RecordBatch) -> pa.RecordBatch:
    fields, columns = list(batch.schema), list(batch.columns)
    for place, (field, column) in enumerate(zip(fields, columns)):
        type = field.type
        if column.null_count or not (type == pa.int64() or pa.types.is_timestamp(type)):
            continue
        numbers: npt.NDArray[np.int64] = column.view(pa.int64()).to_numpy()
        least = int(numbers.min())
        bits = (int(numbers.max()) - least).bit_length()
        narrow = next((narrow for width, narrow in _NARROW if bits <= width), None)
        if narrow is None:
            continue
        # What is cut off is the same for all, also where the difference leaves 64 bits on the way.
        small = (numbers - least).astype(narrow)
        note = [least] if type == pa.int64() else [least, type.unit, type.tz]
        columns[place] = pa.array(small)
        fields[place] = pa.field(field.name, columns[place].type, metadata={_LEAST: json.dumps(note)})
        _keep_metadata(fields, place, field)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, batch.schema.metadata))


def _keep_metadata(fields: list[pa.Field], place: int, field: pa.Field) -> None:
    fields[place] = fields[place].with_nullable(field.nullable)
    if field.metadata:
        fields[place] = fields[place].with_metadata({**field.metadata, **fields[place].metadata})


def _widened(batch: pa.RecordBatch) -> pa.RecordBatch:
    fields, columns = list(batch.schema), list(batch.columns)
    is_changed = False
    for place, field in enumerate(fields):
        if not field.metadata or _LEAST not in field.metadata:
            continue
        least, *moment = json.loads(field.metadata[_LEAST])
        # Arrow's allocator gives memory that has been used before; NumPy's has to be mapped anew for each frame.
        content = pa.allocate_buffer(8 * batch.num_rows)
        numbers = np.frombuffer(content, np.int64)
        np.add(columns[place].to_numpy(), np.int64(least), out=numbers, dtype=np.int64)
        type = pa.timestamp(*moment) if moment else pa.int64()
        columns[place] = pa.Array.from_buffers(type, batch.num_rows, [None, content])
        own = {key: value for key, value in field.metadata.items() if key != _LEAST}
        fields[place] = pa.field(field.name, type, field.nullable, own or None)
        is_changed = True
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, batch.schema.metadata)) if is_changed else batch
