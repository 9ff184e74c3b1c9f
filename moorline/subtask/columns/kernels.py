"""Aggregates over columns by slot: one function for each kind, over NumPy.

Each takes what is kept (``state/columns/table.py``), the slot of each row, and the column of the batch, and does what
``api/columns/aggregates.py`` does for one record after the other, to the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from moorline.api.columns.aggregates import APPROX_DISTINCT, Aggregate
from moorline.api.columns.distinct_count import add_to, estimates
from moorline.errors import AggregateTooLarge, StateTypeMismatch
from moorline.state.columns.index import Slots
from moorline.state.columns.table import Column

_LIMIT = 1 << 63


class Kernel:
    """One aggregate of an operator: the columns of state that it keeps, and how a batch goes into them."""

    def __init__(self, uid: str, name: str, aggregate: Aggregate, columns: dict[str, Column]) -> None:
        self._uid, self.name, self.aggregate = uid, name, aggregate
        is_mean = aggregate.kind == "avg"
        self._kept = columns[f"{name}_sum" if is_mean else name]
        self._count = columns[f"{name}_count"] if is_mean else None
        #: The least of 0.0 and -0.0 is either, to NumPy: they are one.
        self._has_one_zero = aggregate.kind in ("min", "max")

    def add(self, slots: Slots, column: pa.Array | None) -> None:
        """Take a batch into account: the slot of each row, and its column; None for a count of rows."""
        if column is not None and column.null_count:
            is_there = np.asarray(column.is_valid())
            slots, column = slots[is_there], column.drop_null()
        if not len(slots):
            return
        kept, kind = self._kept, self.aggregate.kind
        if kind == "count":
            np.add.at(kept.values, slots, 1)
        elif kept.values.dtype == object:
            assert column is not None
            self._add_objects(slots, column)
        else:
            assert column is not None
            self._add_numbers(slots, self._numbers(column))
        kept.has[slots] = True
        if self._count is not None:
            np.add.at(self._count.values, slots, 1)
            self._count.has[slots] = True

    def _numbers(self, column: pa.Array) -> npt.NDArray[Any]:
        """A column as the numbers that are kept."""
        try:
            made = column.cast(self._kept.stored.arrow)
        except pa.ArrowInvalid:
            # The only ints that are not kept as they are: unsigned ones of more than 63 bits.
            raise AggregateTooLarge(self._uid, self.name) from None
        numbers: npt.NDArray[Any] = made.to_numpy(zero_copy_only=False)
        return numbers + 0.0 if self._has_one_zero and numbers.dtype == np.float64 else numbers

    def _add_numbers(self, slots: Slots, numbers: npt.NDArray[Any]) -> None:
        kept, kind = self._kept, self.aggregate.kind
        if kind in ("sum", "avg"):
            # A slot without a value may hold what a cleared key has left.
            is_there = kept.has[slots]
            if not is_there.all():
                kept.values[slots[~is_there]] = (
                    0 if numbers.dtype == np.int64 else -0.0
                )  # nothing added to -0.0 is -0.0
            if numbers.dtype == np.int64 and self._may_overflow(slots, numbers):
                self._add_exactly(slots, numbers)
            else:
                np.add.at(kept.values, slots, numbers)
        elif kind == "last":
            kept.values[slots] = numbers  # of several the last one stays
        else:
            is_first = ~kept.has[slots]
            if is_first.any():
                # Written from the end, so that of several the first one stays.
                kept.values[slots[is_first][::-1]] = numbers[is_first][::-1]
            if kind in ("min", "max"):
                (_LEAST if kind == "min" else _GREATEST)(kept.values, slots, numbers)

    def _may_overflow(self, slots: Slots, numbers: npt.NDArray[np.int64]) -> bool:
        """Could a sum leave 64 bits? Not if all numbers added to the largest of the sums would not."""
        return _farthest(self._kept.values[slots]) + _farthest(numbers) * len(numbers) >= _LIMIT

    def _add_exactly(self, slots: Slots, numbers: npt.NDArray[np.int64]) -> None:
        values = self._kept.values
        for slot, number in zip(slots.tolist(), numbers.tolist(), strict=True):
            total = int(values[slot]) + number
            if not -_LIMIT <= total < _LIMIT:
                raise AggregateTooLarge(self._uid, self.name)
            values[slot] = total

    def _add_objects(self, slots: Slots, column: pa.Array) -> None:
        kept, name = self._kept, self.aggregate.kind
        if name == APPROX_DISTINCT:
            add_to(kept.values, kept.has, slots, column)
            return
        add, values, has = Aggregate("sum" if name == "avg" else name, "x").add, kept.values, kept.has
        for slot, value in zip(slots.tolist(), column.to_pylist(), strict=True):
            before = {"x": values[slot]} if has[slot] else {}
            try:
                add("x", before, {"x": value})
            except OverflowError:
                raise AggregateTooLarge(self._uid, self.name) from None
            except TypeError as error:  # kept while moments had no zone
                raise StateTypeMismatch(self.name, self._kept.stored.name, str(error)) from None
            values[slot], has[slot] = before["x"], True

    def result(self, slots: Slots, arrow: pa.DataType) -> pa.Array:
        """The results of some slots."""
        if self.aggregate.kind == "count":
            counts, has = self._kept.values[slots], self._kept.has[slots]
            return pa.array(counts if has.all() else np.where(has, counts, 0), arrow)
        if self.aggregate.kind == APPROX_DISTINCT:
            counts = np.zeros(len(slots), np.int64)
            has = self._kept.has[slots]
            counts[has] = estimates(self._kept.values[slots[has]].tolist())
            return pa.array(counts, arrow)
        if self._count is None:
            try:
                return self._kept.shown(slots, arrow)
            except ValueError:  # kept while the column was of a wider type; pa.ArrowInvalid is one
                raise AggregateTooLarge(self._uid, self.name) from None
        has = self._kept.has[slots]
        counts = np.where(has, self._count.values[slots], 1)
        sums = self._kept.values[slots]
        if sums.dtype == object:
            sums = np.array([float(v) if h else 0.0 for v, h in zip(sums, has)], np.float64)
        return pa.array(sums / counts, arrow, mask=~has)


def _farthest(numbers: npt.NDArray[np.int64]) -> int:
    """The distance from 0 of the number that is farthest from it."""
    return max(abs(int(numbers.min())), abs(int(numbers.max())))


_LEAST: Callable[..., None] = np.fmin.at
_GREATEST: Callable[..., None] = np.fmax.at
