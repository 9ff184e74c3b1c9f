"""``process_batches``: a user's function of a batch, whose states are read and written for all keys of it.

On the heap a state is a dict: its values are taken for a list of keys, and put back, without a step of Python for each.
Everywhere else (RocksDB, a store outside, state that expires) it is asked key by key, as a record would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import compress, repeat
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from moorline.api.columns.batch_functions import BatchKeys, KeyedBatchFunction
from moorline.api.columns.ranking import EmitsAtEnd, RowsOfKeys
from moorline.api.state.states import declared_states
from moorline.errors import InvalidKey, InvalidOutput, MoorlineError, StateMisused
from moorline.model import keys as key_encoding
from moorline.model.arrow_values import cast_column, is_kin
from moorline.model.columns import ColumnBatch, ColumnKey
from moorline.state.backend import NO_KEY
from moorline.state.heap.states import HeapValueState, Table, TrackedTable
from moorline.state.types.annotations import stored
from moorline.subtask.columns.conversion import batch_of, made_to, to_batch
from moorline.subtask.columns.distinct import distinct_keys
from moorline.subtask.operators.base import OperatorContext, user_code_failed
from moorline.subtask.operators.function import FunctionOperator
from moorline.subtask.operators.runtime_context import RuntimeContext


class LiveBatchState:
    """One state of the function, for the keys of the current batch."""

    def __init__(self, operator: BatchProcessOperator, attribute: str, live: Any, descriptor: Any) -> None:
        self._operator, self._attribute, self._live = operator, attribute, live
        self._type = stored(descriptor.type, f"state {descriptor.name!r}")
        self._default = descriptor.default
        table = getattr(live, "table", None)
        is_dict = type(live) is HeapValueState and type(table) in (Table, TrackedTable)
        #: The values of a list of keys, without a step of Python for each.
        self._table: Any = table if is_dict else None

    def array(self) -> pa.Array:
        values = self._values()
        if self._default is not None:
            values = [self._default if value is None else value for value in values]
        return self._type.to_array(values)

    def numpy(self) -> npt.NDArray[Any]:
        array = self.array()
        if array.null_count:
            cause = f"has no value for {array.null_count} of {len(array)} keys, and NumPy knows no null"
            raise self._misused(cause, "Declare it with a default, or use array().")
        made: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
        # What Arrow holds must not be changed in place.
        return made if made.flags.writeable else made.copy()

    def objects(self) -> list[Any]:
        """The values as they are kept; None where there is none."""
        return self._values()

    def put_objects(self, places: list[int], values: list[Any]) -> None:
        """New values, of the declared type, for the keys at these places."""
        keys = self._operator.current_keys
        self._put([keys[place] for place in places], values)

    def update(self, values: Any, where: Any = None) -> None:
        keys = self._operator.current_keys
        if isinstance(values, (str, bytes, set, frozenset, Mapping)) or not hasattr(values, "__len__"):
            had = f"was given a {type(values).__name__}, which says not what belongs to which key"
            raise self._misused(had, "Give a value for each key, in the order of keys.values.")
        if len(values) != len(keys):
            raise self._misused(f"was given {len(values)} values for {len(keys)} keys", "Give one for each key.")
        made = self._from(values)
        if where is not None:
            chosen = self._mask(where)
            keys, made = list(compress(keys, chosen)), list(compress(made, chosen))
        self._put(keys, made)

    def clear(self, where: Any = None) -> None:
        keys = self._operator.current_keys
        chosen = keys if where is None else list(compress(keys, self._mask(where)))
        self._put(chosen, [None] * len(chosen))

    def _values(self) -> list[Any]:
        keys = self._operator.current_keys
        if self._table is not None:
            return list(map(self._table.entries.get, keys))
        return list(self._operator.each(keys, lambda number: self._live.value()))

    def _put(self, keys: list[Any], values: list[Any]) -> None:
        if self._table is not None:
            if None not in values:
                self._table.put_all(dict(zip(keys, values)))
                return
            self._table.put_all({key: value for key, value in zip(keys, values) if value is not None})
            self._table.take_all([key for key, value in zip(keys, values) if value is None])
            return
        clear, update = self._live.clear, self._live.update
        self._operator.each(keys, lambda n: clear() if values[n] is None else update(values[n]))

    def _from(self, values: Any) -> list[Any]:
        """As Python's own values, of the declared type."""
        try:
            if isinstance(values, np.ndarray) and values.dtype.kind not in "iufb":
                values = values.tolist()
            if isinstance(values, pa.ChunkedArray):
                values = values.combine_chunks()
            if not isinstance(values, (pa.Array, np.ndarray)):
                return self._type.from_array(self._type.to_array(list(values)))
            array = pa.array(values) if isinstance(values, np.ndarray) else values
            if not is_kin(array.type, self._type.arrow):
                # One by one they are looked at: Arrow would make numbers of texts, and of moments.
                return self._type.from_array(self._type.to_array(array.to_pylist()))
            return self._type.from_array(cast_column(array, self._type.arrow))
        except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError) as error:
            had = getattr(values, "dtype", None) or getattr(values, "type", None) or type(values).__name__
            raise self._misused(f"was given values of {had}: {error}", f"It holds {self._type.name}.") from None

    def _mask(self, where: Any) -> list[bool]:
        mask: list[bool | None] = where.to_pylist() if isinstance(where, pa.Array) else np.asarray(where).tolist()
        keys = len(self._operator.current_keys)
        if len(mask) != keys:
            raise self._misused(f"was given {len(mask)} choices for {keys} keys", "Give one for each key.")
        wrong = next((choice for choice in mask if choice is not None and type(choice) is not bool), None)
        if wrong is not None:
            raise self._misused(f"was given {wrong!r} for a choice", "where= has True or False for each key.")
        return [choice is True for choice in mask]

    def _misused(self, cause: str, advice: str) -> StateMisused:
        return StateMisused(f"operator {self._operator.operator.uid!r}", self._attribute, cause, advice)


class LiveBatchStates(SimpleNamespace):
    """All states of the function, by the names they are declared under."""

    def __setattr__(self, name: str, value: Any) -> None:
        # It would be gone after this batch.
        advice = f"Write states.{name}.update(values)."
        raise StateMisused("process_batch", name, "was assigned to, which keeps nothing", advice)


class BatchProcessOperator(FunctionOperator):
    """A function of whole batches with state."""

    def __init__(self, place: OperatorContext, runtime_context: RuntimeContext, one_key: bool = False) -> None:
        super().__init__(place, runtime_context)
        self.function: KeyedBatchFunction
        #: In a batch job: what is emitted is not known before the end of the key.
        self._waits = one_key and isinstance(self.function, EmitsAtEnd)
        self._step = self.operator.options["batches"]
        #: What stands for the keys of the batch that is being processed.
        self.current_keys: list[Any] = []
        self._key_stamps: Sequence[int] | None = None

    def open(self) -> None:
        super().open()
        states = {
            attribute: LiveBatchState(self, attribute, getattr(self.function, attribute), state.descriptor)
            for attribute, state in declared_states(self.function).items()
        }
        self._states = LiveBatchStates(**states)

    def each(self, keys: list[Any], function: Callable[[int], Any]) -> list[Any]:
        """The results of a function for each of the keys, by number, while it is the current one."""
        assert self.backend is not None
        current, moment, stamps = self.backend.current, self.moment, self._key_stamps
        made = []
        try:
            for number, (current.key, moment.timestamp) in enumerate(zip(keys, stamps or repeat(None))):
                made.append(function(number))
        finally:
            current.key, moment.timestamp = NO_KEY, None
        return made

    def process(self, records: Sequence[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        assert self.backend is not None
        batch, uid = to_batch(records, self._step.in_schema, self.operator.uid), self.operator.uid
        self.moment.processing_ms = max(self.moment.processing_ms, self.wall_ms())
        selector: ColumnKey = self.operator.inputs[0].key
        keys, distinct = distinct_keys(batch, selector.names, uid)
        try:
            self.current_keys = self.backend.identities.of_batch(distinct)
            for key in self.current_keys[:1]:
                key_encoding.encode(key)
        except (key_encoding.NotAKey, TypeError) as error:
            raise InvalidKey(uid, f"{distinct[0]!r:.200}", "of a batch", str(error)) from None
        self._key_stamps = None if timestamps is None else np.asarray(timestamps)[keys.last_rows].tolist()
        self.backend.prefetch(self.current_keys)
        try:
            made = self.function.process_batch(keys, batch, self._states)  # type: ignore[arg-type]
        except MoorlineError:
            raise
        except Exception as error:  # the user's function
            first = f"the first of {batch.num_rows} rows: {ColumnBatch(batch.slice(0, 1))[0]!r:.400}"
            raise user_code_failed(self.operator, self.subtask, error, self.records_in, first) from error
        self.backend.flush()
        self.records_in += batch.num_rows
        if made is not None and not self._waits:
            self._pass_on(made, keys, batch.num_rows, timestamps)

    def end_key(self) -> None:
        if self._waits and self.current_keys:
            assert isinstance(self.function, EmitsAtEnd)
            made = self.function.at_end(self._states)
            if made is not None:
                self._emit_rows(made)
        self.current_keys = []

    def _emit_rows(self, made: RowsOfKeys) -> None:
        """Each row has the timestamp of its key's last one."""
        stamps = None if self._key_stamps is None else np.asarray(self._key_stamps)[made.keys].tolist()
        self.emit(ColumnBatch(made.batch), stamps)  # type: ignore[arg-type]  # a sequence will do

    def _pass_on(self, made: Any, keys: BatchKeys, rows: int, timestamps: list[int] | None) -> None:
        uid = self.operator.uid
        if isinstance(made, RowsOfKeys):
            self._emit_rows(made)
            return
        out = batch_of(made, uid, "process_batch")
        if self._step.out_schema is not None:
            out = made_to(out, self._step.out_schema, uid, "process_batch")
        stamps = timestamps
        if timestamps and out.num_rows != rows:
            stamps = list(self._key_stamps or ())
            if out.num_rows and out.num_rows != len(keys):
                had = f"{out.num_rows} rows for {rows} rows of {len(keys)} keys"
                advice = "Rows have timestamps here: return a row for each row, a row for each key, or none."
                raise InvalidOutput(uid, "process_batch", had, advice)
        if out.num_rows:
            self.emit(ColumnBatch(out), stamps)  # type: ignore[arg-type]  # a sequence will do
