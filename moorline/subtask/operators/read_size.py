"""The number of records to ask a source for: as many as are worth a batch, and no more than memory allows.

A batch is held in memory as a whole, and so is what the chain behind the source makes of it. So it is bounded in
bytes: by those of the records that were read, looked at roughly, and by those that the subtask has packed for others
meanwhile. The next batch goes by the last one, and never asks for more than twice as many.
"""

from __future__ import annotations

from typing import Any

from moorline.model.columns import ColumnBatch

#: What a reader is asked for at a time, at most and to begin with.
READ_RECORDS = 2048
FIRST_RECORDS = 16
#: The same where they come as columns, of which a row costs a fraction and a call as much as it does.
READ_ROWS = 32_768
#: About so many bytes make a batch.
READ_BYTES = 1 << 20
#: So many records of a batch are looked at, and so many parts of each.
_SAMPLES, _PARTS = 4, 16
#: How deep a record is looked into.
_DEPTH = 3


def rough_size(value: Any, depth: int = _DEPTH) -> int:
    """About how many bytes a record holds. Costs a microsecond or two: texts and bytes count, and what has many parts
    is estimated by some of them.

    >>> rough_size(b"x" * 1000), rough_size([("k", b"x" * 500)] * 100) > 50_000, rough_size(3)
    (1000, True, 8)
    """
    if isinstance(value, (bytes, str, bytearray)):
        return len(value)
    size = getattr(value, "nbytes", None)  # an array, or a memoryview
    if isinstance(size, int):
        return size
    if depth and isinstance(value, (tuple, list, set, frozenset, dict)):
        return _of_parts(value.values() if isinstance(value, dict) else value, depth)
    fields = getattr(value, "__dict__", None)
    if depth and isinstance(fields, dict) and not isinstance(value, type):
        return _of_parts(fields.values(), depth)
    if depth and (names := getattr(type(value), "__match_args__", None)):
        return _of_parts([getattr(value, name, None) for name in names], depth)
    return 8


def _of_parts(parts: Any, depth: int) -> int:
    seen = [rough_size(part, depth - 1) for part, _ in zip(parts, range(_PARTS))]
    return 8 + sum(seen) * len(parts) // max(len(seen), 1)


class ReadSize:
    """The number of records to ask for next.

    >>> size = ReadSize()
    >>> for _ in range(10): size.was_read([b"small"] * size.records)
    >>> size.records
    2048
    >>> size.was_read([b"x" * 1_000_000] * 2048); size.records
    1
    """

    def __init__(self) -> None:
        self.records = FIRST_RECORDS

    def up_to(self, room: int | None) -> int:
        """The number to ask for now, where no more than ``room`` can be sent on."""
        return self.records if room is None else max(1, min(self.records, room))

    def was_read(self, records: list[Any] | ColumnBatch, packed_bytes: int = 0) -> None:
        """A batch was read, and so many bytes were packed for other subtasks while it was passed on."""
        count = len(records)
        if not count:
            return
        most = READ_RECORDS
        if isinstance(records, ColumnBatch):
            size, most = records.batch.nbytes / count, READ_ROWS
        else:
            looked_at = records[:: max(1, count // _SAMPLES)]
            size = sum(map(rough_size, looked_at)) / len(looked_at)
        each = max(size, packed_bytes / count, 1.0)
        self.records = max(1, min(most, 2 * self.records, int(READ_BYTES / each)))
