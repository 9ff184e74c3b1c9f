"""Functions of whole batches with state: all keys of a batch at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from moorline.api.functions.base import Function
from moorline.api.state.states import ValueState, declared_states
from moorline.errors import InvalidArgument
from moorline.model.options import checks_options

#: Ints are added in 64 bits.
_LIMIT = 1 << 63


@checks_options()
class BatchKeys:
    """The keys of a batch: each of them once, in the order of their first rows.

    >>> keys = BatchKeys(pa.array(["ada", "bob"]), np.array([0, 1, 0]))
    >>> len(keys), keys.first_rows.tolist(), keys.last_rows.tolist()
    (2, [0, 1], [2, 1])
    """

    def __init__(self, values: pa.Array, of_rows: npt.NDArray[np.int64]) -> None:
        #: The keys; of several columns, structs of them.
        self.values = values
        #: For each row of the batch, the place of its key among the keys: ``by_key[keys.of_rows]`` is by row.
        self.of_rows = of_rows

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def first_rows(self) -> npt.NDArray[np.int64]:
        """The first row of each key."""
        rows = np.empty(len(self), np.int64)
        rows[self.of_rows[::-1]] = np.arange(len(self.of_rows) - 1, -1, -1)  # of several the last one stays
        return rows

    @cached_property
    def last_rows(self) -> npt.NDArray[np.int64]:
        """The last row of each key."""
        rows = np.empty(len(self), np.int64)
        rows[self.of_rows] = np.arange(len(self.of_rows))
        return rows

    def sums(self, column: Any) -> npt.NDArray[Any]:
        """The sum of a column of numbers for each key. Null is 0; a sum of ints that leaves 64 bits fails the job."""
        numbers = _numbers(column)
        if len(numbers) != len(self.of_rows):
            had, rows = len(numbers), len(self.of_rows)
            raise InvalidArgument("sums", f"{had} values", f"The batch has {rows} rows: give one for each.")
        if numbers.dtype.kind == "f":
            totals = np.zeros(len(self), numbers.dtype)
        else:
            numbers = numbers.astype(np.int64)
            totals = np.zeros(len(self), np.int64)
            farthest = max(abs(int(numbers.min(initial=0))), abs(int(numbers.max(initial=0))))
            if farthest * len(numbers) >= _LIMIT:
                return self._exact_sums(numbers)
        np.add.at(totals, self.of_rows, numbers)
        return totals

    def _exact_sums(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        totals = [0] * len(self)
        for key, number in zip(self.of_rows.tolist(), numbers.tolist(), strict=True):
            totals[key] += number
        wrong = next((total for total in totals if not -_LIMIT <= total < _LIMIT), None)
        if wrong is not None:
            raise OverflowError(f"the sum {wrong} does not fit into 64 bits")
        return np.array(totals, np.int64)

    def counts(self) -> npt.NDArray[np.int64]:
        """The number of rows of each key."""
        return np.bincount(self.of_rows, minlength=len(self))


def _numbers(column: Any) -> npt.NDArray[Any]:
    """A column of numbers as an array. Raises :class:`InvalidArgument` for any other."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.Array) and not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        advice = "Give a column of ints or floats; mo.sum adds decimals."
        raise InvalidArgument("sums", str(column.type), advice)
    if isinstance(column, pa.Array):
        column = column.fill_null(0).to_numpy(zero_copy_only=False)
    numbers = np.asarray(column)
    if numbers.dtype.kind not in "iufb":
        raise InvalidArgument("sums", str(numbers.dtype), "Give a column of ints or floats.")
    if numbers.dtype == np.uint64 and int(numbers.max(initial=0)) >= _LIMIT:
        raise OverflowError(f"{numbers.max()} does not fit into 64 bits with a sign")
    return numbers


class BatchState(Protocol):
    """A value state for all keys of a batch, in the order of the keys."""

    def array(self) -> pa.Array:
        """The values: the default, or null, where there is none."""
        ...

    def numpy(self) -> npt.NDArray[Any]:
        """The same for NumPy, which knows no null: there must be a default, or a value for each key."""
        ...

    def update(self, values: pa.Array | npt.NDArray[Any] | Sequence[Any], where: Any = None) -> None:
        """New values, one for each key; with ``where`` only for those keys for which it is true. Null clears."""
        ...

    def clear(self, where: Any = None) -> None:
        """Forget the values, of all keys or of those for which ``where`` is true."""
        ...


class BatchStates(Protocol):
    """The states of the function by the names they are declared under."""

    def __getattr__(self, name: str) -> BatchState: ...


class KeyedBatchFunction(Function):
    """A batch of a keyed stream of columns in, columns out, with states that are read and written for all keys at once.

    States are declared as for any function, as :class:`ValueState`, and stored as any other: a function that goes
    record by record can take them over. What is returned is emitted; None is nothing.

    >>> import moorline as mo
    >>> class Spent(mo.KeyedBatchFunction):
    ...     spent = mo.ValueState(int, default=0)
    ...     def process_batch(self, keys, batch, states):
    ...         spent = states.spent.numpy() + keys.sums(batch["cents"])
    ...         states.spent.update(spent)
    ...         return pa.record_batch({"customer": keys.values, "spent": spent})
    >>> orders = mo.Job("spent").source(mo.from_items([{"customer": "ada", "cents": 5}]), uid="orders")
    >>> by_customer = orders.with_schema("customer string, cents bigint", uid="sales").key_by("customer")
    >>> by_customer.process_batches(Spent(), schema="customer string, spent bigint", uid="spent").schema.names
    ['customer', 'spent']
    """

    def process_batch(self, keys: BatchKeys, batch: pa.RecordBatch, states: BatchStates, /) -> Any:
        """All rows of a batch. How many there are depends on the load; a batch job gives one key at a time."""
        raise NotImplementedError


@dataclass(frozen=True)
class BatchStep:
    """The columns that go into a function of whole batches, and those that come out if they are known."""

    in_schema: pa.Schema
    out_schema: pa.Schema | None


def check_batch_function(function: Any) -> None:
    """Raise :class:`InvalidArgument` for what cannot be one."""
    if not isinstance(function, KeyedBatchFunction):
        raise InvalidArgument("process_batches", function, "Give an instance of a subclass of mo.KeyedBatchFunction.")
    for attribute, declared in declared_states(function).items():
        if not isinstance(declared, ValueState):
            kind = type(declared).__name__
            advice = "For whole batches there are value states alone; one may hold a list or a dict for each key."
            raise InvalidArgument(f"state {attribute!r}", kind, advice)
