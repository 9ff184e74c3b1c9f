"""The ways of a value: through a column of a file, and through bytes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from moorline.state.types.annotations import stored, to_bytes, to_column


def both_ways(annotation: Any, value: Any) -> list[Any]:
    """A value out of a column that went through a file, and out of bytes."""
    found = stored(annotation, "here")
    table = pa.table({"value": to_column(found, [None, value, value], "s")})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="lz4", use_dictionary=False)
    again = pq.read_table(pa.BufferReader(sink.getvalue()), use_threads=False)["value"].combine_chunks()
    assert again.type == found.arrow
    assert found.from_array(again)[0] is None
    assert found.unpack(found.pack(None)) is None
    return [
        found.from_array(again)[2],
        found.from_array(again.slice(1, 1))[0],
        found.unpack(to_bytes(found, value, "s")),
    ]
