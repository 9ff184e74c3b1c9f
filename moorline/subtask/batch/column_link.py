"""The sending end of a link to a step on columns in a batch job: rows of Spark's shuffle that hold many of ours.

    gathered     some MiB of columns, of all keys
    split        into the rows of each key group
    sent         a row of the shuffle for each, whose key is the key group and whose payload is Arrow

So Spark sorts one row for thousands of ours, and the receiver has the rows of a key group together, but no order among
its keys. Columns that the step does not use stay behind.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from moorline.errors import InvalidKey
from moorline.model.columns import ColumnBatch, ColumnKey, chosen
from moorline.model.graph import Operator
from moorline.model.key_groups import owner
from moorline.model.times import MIN_TIME
from moorline.model.wire import elements
from moorline.subtask.batch.rows import PASS_ON, BatchRows, first_seq, keyed_rank
from moorline.subtask.columns.conversion import to_batch
from moorline.subtask.columns.eligible import used_schema
from moorline.subtask.columns.sharing import UnusableKey, WaitingColumns, key_groups

#: Columns are gathered until there are about so many bytes of them.
GATHERED_BYTES = 16 << 20


class ColumnLink:
    """Takes batches, like an operator."""

    def __init__(
        self,
        rows: BatchRows,
        link: int,
        sender: int,
        places: list[tuple[int, int, bool]],
        operator: Operator,
        input: int,
        max_parallelism: int,
    ) -> None:
        self._rows, self._places, self._operator = rows, places, operator
        self._seq, self._max_parallelism = first_seq(link, sender), max_parallelism
        key = operator.inputs[input].key
        assert isinstance(key, ColumnKey)
        self._key = key
        self._schema = used_schema(operator)
        self._waiting = WaitingColumns()

    def process(self, records: list[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        batch = to_batch(records, self._schema, self._operator.uid)
        if not self._waiting.takes(batch, timestamps):
            self.flush()
        self._waiting.add(batch, timestamps)
        if self._waiting.nbytes >= GATHERED_BYTES:
            self.flush()

    def watermark(self, time: int) -> None:
        """Not passed on: the receiver's time ends with its input."""

    def idle(self) -> None:
        """Nothing: no receiver waits."""

    def flush(self) -> None:
        """Make a row of each key group's columns."""
        if not self._waiting:
            return
        batch, stamps = self._waiting.take()
        try:
            groups = key_groups(batch, self._key, self._max_parallelism)
        except UnusableKey as error:
            raise InvalidKey(self._operator.uid, error.key, error.record, error.cause) from None
        order = np.argsort(groups, kind="stable")
        batch, stamps, groups = batch.take(pa.array(order)), chosen(stamps, order), groups[order]
        starts = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist()]
        for start, end in zip(starts, [*starts[1:], len(groups)]):
            group = int(groups[start])
            slot, place, arrives = self._places[owner(group, len(self._places), self._max_parallelism)]
            payload = elements.pack_columns(
                batch.slice(start, end - start), None if stamps is None else stamps[start:end]
            )
            key = key_of_group(group)
            self._rows.add(slot, place, keyed_rank(key) if arrives else PASS_ON, key, MIN_TIME, self._seq, payload)
            self._seq += 1


def key_of_group(group: int) -> bytes:
    """The stand-in for a key in rows of a key group."""
    return group.to_bytes(4, "big")


def unpacked(payload: bytes) -> tuple[ColumnBatch, Any]:
    """The columns of a row, and their timestamps."""
    _, records, stamps, _ = elements.unpack_part(payload, 0)
    return records, stamps
