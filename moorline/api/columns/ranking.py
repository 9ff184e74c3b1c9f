"""The functions behind ``deduplicate`` and ``top``: what is kept for each key, and what they emit.

    step                     kept for each key            emits
    deduplicate, first       that there was one           the first row of each key
    deduplicate, last        nothing                      for each batch the last row of each of its keys
    top(n)                   the n best rows, best first  the rows whose rank has changed, with their rank

In a batch job each of them emits what there is at the end of a key.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from moorline.api.columns.batch_functions import BatchKeys, KeyedBatchFunction
from moorline.api.columns.schemas import check_columns, check_field_name, python_type
from moorline.api.state.states import ValueState
from moorline.errors import InvalidArgument


@dataclass(frozen=True)
class RowsOfKeys:
    """Rows of which each belongs to one of the keys of a batch, by its place."""

    batch: pa.RecordBatch
    keys: npt.NDArray[np.int64]


class EmitsAtEnd(KeyedBatchFunction):
    """A function that a batch job asks for its result when a key has ended, and not before."""

    def at_end(self, states: Any) -> RowsOfKeys | None:
        """The rows of the only key."""
        raise NotImplementedError


class FirstRows(KeyedBatchFunction):
    """Emits the first row of each key."""

    seen: ValueState[bool] = ValueState()

    def __init__(self, ttl: Any) -> None:
        self.ttl = ttl

    def __reduce__(self) -> Any:
        # Its class is made for its time to live: it is made again where it arrives.
        return first_rows, (self.ttl,)

    def process_batch(self, keys: BatchKeys, batch: pa.RecordBatch, states: Any, /) -> RowsOfKeys | None:
        is_new = np.asarray(states.seen.array().is_null())
        if not is_new.any():
            return None
        states.seen.update(np.ones(len(keys), np.bool_), where=is_new)
        new = np.flatnonzero(is_new)
        return RowsOfKeys(batch.take(pa.array(keys.first_rows[new])), new)


def first_rows(ttl: Any) -> FirstRows:
    """The function whose state has this time to live."""
    members = {"seen": ValueState(bool, name="seen", ttl=ttl), "__doc__": FirstRows.__doc__}
    made: type[FirstRows] = type("FirstRows", (FirstRows,), members)
    return made(ttl)


def one_row(keep: str, ttl: Any) -> KeyedBatchFunction:
    """The function that emits one row of each key. Raises :class:`InvalidArgument`."""
    if keep not in ("first", "last"):
        raise InvalidArgument("keep", keep, 'Give "first" or "last".')
    if keep == "first":
        return first_rows(ttl)
    if ttl is not None:
        raise InvalidArgument("ttl", ttl, 'With keep="last" nothing is kept that could expire.')
    return LastRows()


class LastRows(EmitsAtEnd):
    """Emits the last row of each key: each one replaces the one before it."""

    def process_batch(self, keys: BatchKeys, batch: pa.RecordBatch, states: Any, /) -> RowsOfKeys:
        last = RowsOfKeys(batch.take(pa.array(keys.last_rows)), np.arange(len(keys)))
        self._last = last  # of the only key, in a batch job
        return last

    def at_end(self, states: Any) -> RowsOfKeys | None:
        return self._last


class TopRows(EmitsAtEnd):
    """Keeps the best rows of each key. Of equal ones the one that came first is better."""

    rows: ValueState[Any] = ValueState()
    #: The class of a kept row.
    row: type

    def __init__(self, keys: tuple[str, ...], schema: pa.Schema, n: int, by: str, descending: bool, rank: str) -> None:
        self.keys, self.schema, self.n, self.by, self.descending, self.rank = keys, schema, n, by, descending, rank

    def __reduce__(self) -> Any:
        return top_rows, (self.keys, self.schema, self.n, self.by, self.descending, self.rank)

    @property
    def out_schema(self) -> pa.Schema:
        """The columns of the stream, and the rank."""
        return self.schema.append(pa.field(self.rank, pa.int64(), False))

    def process_batch(self, keys: BatchKeys, batch: pa.RecordBatch, states: Any, /) -> RowsOfKeys | None:
        kept = states.rows.objects()
        chosen = self._candidates(keys, batch, kept)
        of_rows = keys.of_rows[chosen]
        made = list(map(self.row, *(c.to_pylist() for c in batch.take(pa.array(chosen)).columns)))
        ends = np.flatnonzero(np.diff(of_rows, append=-1)) + 1
        out: list[Any] = []
        ranks: list[int] = []
        of_out: list[int] = []
        changed: list[int] = []
        first = 0
        for end in ends.tolist():
            key = int(of_rows[first])
            before = kept[key] or ()
            after = self._best([*before, *made[first:end]])
            first = end
            # An equal row in the place of one is no news.
            new = [n for n, row in enumerate(after) if n >= len(before) or not (row is before[n] or row == before[n])]
            if new:
                kept[key] = after
                changed.append(key)
                out += [after[n] for n in new]
                ranks += [n + 1 for n in new]
                of_out += [key] * len(new)
        states.rows.put_objects(changed, [kept[key] for key in changed])
        return RowsOfKeys(self._batch(out, ranks), np.array(of_out)) if out else None

    def at_end(self, states: Any) -> RowsOfKeys | None:
        (rows,) = states.rows.objects()
        if not rows:
            return None
        return RowsOfKeys(self._batch(rows, range(1, len(rows) + 1)), np.zeros(len(rows), np.int64))

    def _best(self, rows: list[Any]) -> tuple[Any, ...]:
        return tuple(sorted(rows, key=attrgetter(self.by), reverse=self.descending)[: self.n])

    def _candidates(self, keys: BatchKeys, batch: pa.RecordBatch, kept: list[Any]) -> npt.NDArray[np.int64]:
        """The rows that may be among the best of their keys, key by key, the best first and no more than ``n``."""
        values, worst = batch.column(self.by), [rows[-1] if rows and len(rows) == self.n else None for rows in kept]
        limits = pa.array([None if row is None else getattr(row, self.by) for row in worst], values.type)
        is_better = (pc.greater if self.descending else pc.less)(values, limits.take(pa.array(keys.of_rows)))
        is_full = pa.array([row is not None for row in worst]).take(pa.array(keys.of_rows))
        may_be = pc.and_(pc.if_else(is_full, is_better, True), values.is_valid())
        if pa.types.is_floating(values.type):
            may_be = pc.and_(may_be, pc.invert(pc.is_nan(values)))
        rows = np.flatnonzero(np.asarray(pc.fill_null(may_be, False)))
        table = pa.table({"key": keys.of_rows[rows], "by": values.take(pa.array(rows)), "row": rows})
        order = "descending" if self.descending else "ascending"
        ordered = pc.sort_indices(table, sort_keys=[("key", "ascending"), ("by", order), ("row", "ascending")])
        rows = rows[ordered.to_numpy()]
        of_rows = keys.of_rows[rows]
        # The place of each row among those of its key.
        first = np.searchsorted(of_rows, of_rows)
        return cast(npt.NDArray[np.int64], rows[np.arange(len(rows)) - first < self.n])

    def _batch(self, rows: Sequence[Any], ranks: Sequence[int]) -> pa.RecordBatch:
        columns = [pa.array([getattr(row, f.name) for row in rows], f.type) for f in self.schema]
        return pa.RecordBatch.from_arrays([*columns, pa.array(ranks, pa.int64())], schema=self.out_schema)


def top_rows(keys: tuple[str, ...], schema: pa.Schema, n: int, by: str, descending: bool, rank: str) -> TopRows:
    """The function whose state has a field for each column. Raises :class:`InvalidArgument`."""
    if type(n) is not int or n < 1:
        raise InvalidArgument("top", n, "Give the number of rows for each key, from 1.")
    check_columns(schema, [by], "by")
    if not isinstance(rank, str) or not rank or rank in schema.names:
        raise InvalidArgument("rank", rank, "Give a name for the column of ranks that no other column has.")
    fields: list[Any] = []
    for field in schema:
        check_field_name("top", field.name)
        python = python_type(field.type, field.name)
        if pa.types.is_timestamp(field.type) and field.type.tz not in (None, "UTC"):
            raise InvalidArgument(field.name, str(field.type), "Keep moments in UTC.")
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            raise InvalidArgument(field.name, str(field.type), 'Python has no nanoseconds: cast("timestamp") before.')
        if pa.types.is_float16(field.type):
            raise InvalidArgument(field.name, str(field.type), 'Arrow does not compare such floats: cast("float") it.')
        fields.append((field.name, python | None, dataclasses.field(default=None)))
    row = dataclasses.make_dataclass("Row", fields, frozen=True)
    members = {
        "rows": ValueState(tuple[row, ...], name="rows"),  # type: ignore[valid-type]
        "row": row,
        "__doc__": TopRows.__doc__,
    }
    made: type[TopRows] = type("TopRows", (TopRows,), members)
    return made(keys, schema, n, by, descending, rank)
