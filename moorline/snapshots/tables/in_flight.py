"""Records in flight as a table: what an unaligned checkpoint, or a loop, had on its way to an operator.

One row per record, in the order in which a subtask would process them at each input. Records are plain data and are
read as that. Those that are pickled are counted and not looked into: reading a snapshot runs no code.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from moorline.errors import SnapshotCorrupt
from moorline.model.manifest import InFlightHandle, OperatorEntry
from moorline.state.types import plain
from moorline.storage import segments as snapshots
from moorline.storage.blobs import BlobStore

COLUMNS = pa.schema(
    [
        ("subtask", pa.int32()),
        ("upstream", pa.string()),
        ("tag", pa.string()),
        ("side", pa.int32()),
        ("partitioning", pa.string()),
        ("timestamp", pa.int64()),
        # As it is stored, and as Python would show it. Neither is there if it is a pickle.
        ("record", pa.large_binary()),
        ("shown", pa.string()),
    ]
)
#: Of what a record looks like so much is shown.
SHOWN = 1_000


def in_flight_rows(operator: OperatorEntry, store: BlobStore) -> Iterator[pa.Table]:
    """The records on their way to each subtask of an operator."""
    for index, subtask in enumerate(operator.subtasks):
        for handle in subtask.in_flight:
            records = list(_records(handle, store))
            place = [index, handle.upstream, handle.tag, handle.side, handle.partitioning]
            columns: list[Any] = [pa.array([value] * len(records), f.type) for value, f in zip(place, COLUMNS)]
            for n, field in enumerate(list(COLUMNS)[len(place) :]):
                columns.append(pa.array([record[n] for record in records], field.type))
            yield pa.table(columns, schema=COLUMNS)


def _records(handle: InFlightHandle, store: BlobStore) -> Iterator[tuple[int | None, bytes | None, str | None]]:
    if handle.pickled:
        yield from [(None, None, None)] * handle.records
        return
    where = handle.file.path if handle.file else "the manifest"
    encoded = handle.inline if handle.file is None else snapshots.read_elements(store, handle.file)
    count = 0
    for element in encoded:
        try:
            stamps, records = plain.decode(element)
            for stamp, record in zip(stamps or [None] * len(records), records, strict=True):
                yield stamp, plain.encode(record), f"{record!r:.{SHOWN}}"
                count += 1
        except (ValueError, TypeError) as error:
            raise SnapshotCorrupt(where, f"records in flight cannot be read: {error}") from error
    if count != handle.records:
        raise SnapshotCorrupt(where, f"{count} records are in flight, and should be {handle.records}")
