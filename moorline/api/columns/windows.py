"""Windows over columns: aggregates of each key and window, as a row with the bounds of the window.

The functions here do it record by record, as windows of records do (``subtask/windows/``). They are what runs in
RocksDB, in a batch job, with a trigger or where windows go by the clock. On the heap ``subtask/columns/windows.py``
does the same for whole batches, over the same state: either can go on from a snapshot of the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Unpack, overload

import pyarrow as pa

from moorline.api.columns.aggregates import Aggregate
from moorline.api.columns.aggregation import check_options, checked_results, kept_types
from moorline.api.columns.schemas import key_values
from moorline.api.columns.streams import ColumnStream, Row
from moorline.api.functions.base import AggregateFunction
from moorline.api.options import StepOptions
from moorline.api.streams import Stream
from moorline.api.type_parameters import A, U, W_co
from moorline.api.windows.assigners import (
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from moorline.api.windows.functions import ProcessWindowFunction, WindowFunction
from moorline.api.windows.streams import WindowedStream, WindowSpec
from moorline.api.windows.triggers import EventTimeTrigger
from moorline.errors import InvalidArgument

if TYPE_CHECKING:
    from moorline.api.state.rekey import Rekey

#: The columns with the bounds of a window, and their type.
WINDOW_START, WINDOW_END = "window_start", "window_end"
BOUND = pa.timestamp("us", "UTC")
#: The first and the last moment that such a column can hold, and Python: the years 1 to 9999.
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class WindowAggregation(AggregateFunction):
    """The aggregates of one window, record by record. The accumulator is what is kept of them."""

    #: The class of what is kept.
    kept: type

    def __init__(self, results: Mapping[str, Aggregate], schema: pa.Schema) -> None:
        self.results, self.schema = dict(results), schema

    def __reduce__(self) -> Any:
        # Its class is made for the types that it keeps: it is made again where it arrives.
        return window_aggregation, (self.results, self.schema)

    def create_accumulator(self) -> Any:
        return self.kept()

    def add(self, value: Any, accumulator: Any) -> Any:
        kept = dict(vars(accumulator))
        for name, aggregate in self.results.items():
            aggregate.add(name, kept, value)
        return self.kept(**kept)

    def get_result(self, accumulator: Any) -> Any:
        return {name: aggregate.result(name, vars(accumulator)) for name, aggregate in self.results.items()}

    def merge(self, a: Any, b: Any) -> Any:
        kept, others = dict(vars(a)), vars(b)
        for name, aggregate in self.results.items():
            aggregate.merge(name, kept, others)
        return self.kept(**kept)


class WindowRows(ProcessWindowFunction):
    """The results of a window as a row: the columns of its key, its bounds, and the results."""

    def __init__(self, keys: tuple[str, ...], aggregation: WindowAggregation) -> None:
        self.keys, self.aggregation = keys, aggregation
        self._key_types = [aggregation.schema.field(name).type for name in keys]

    @property
    def out_schema(self) -> pa.Schema:
        """The schema of the rows."""
        schema = self.aggregation.schema
        results = [pa.field(name, a.arrow(schema)) for name, a in self.aggregation.results.items()]
        bounds = [pa.field(WINDOW_START, BOUND), pa.field(WINDOW_END, BOUND)]
        return pa.schema([*map(schema.field, self.keys), *bounds, *results])

    def process(self, key: Any, context: Any, elements: list[Any]) -> Iterable[Any]:
        values = key_values(key if len(self.keys) > 1 else (key,), self._key_types)
        window = context.window()
        bounds = {WINDOW_START: moment(window.start), WINDOW_END: moment(window.end)}
        yield {**dict(zip(self.keys, values, strict=True)), **bounds, **elements[0]}


def moment(ms: int) -> datetime:
    """A bound of a window as a row has it."""
    check_bounds(ms, ms)
    return _EPOCH + timedelta(milliseconds=ms)


def check_bounds(first: int, last: int) -> None:
    """Raise if there are windows, from ``first`` to ``last``, whose bounds are no timestamps."""
    if first < FIRST_MS or last > LAST_MS:
        wrong = first if first < FIRST_MS else last
        advice = "A window's bounds are timestamps of the years 1 to 9999. Are these times in milliseconds since 1970?"
        raise InvalidArgument("timestamp", wrong, advice)


def window_aggregation(results: Mapping[str, Aggregate], schema: pa.Schema) -> WindowAggregation:
    """The function whose accumulator has a field for everything that is kept.

    >>> from moorline.api.columns.aggregates import count
    >>> made = window_aggregation({"visits": count()}, pa.schema([("user", pa.string())]))
    >>> made.get_result(made.add({"user": "ada"}, made.create_accumulator()))
    {'visits': 1}
    """
    fields: list[Any] = [
        (name, python | None, dataclasses.field(default=None)) for name, python in kept_types(results, schema).items()
    ]
    kept = dataclasses.make_dataclass("Aggregates", fields, frozen=True)
    typed: type[WindowAggregation] = type("WindowAggregation", (WindowAggregation,), {"kept": kept})
    return typed(results, schema)


def takes_columns(spec: WindowSpec) -> bool:
    """Is there a way to do these windows for whole batches?"""
    if not isinstance(spec.combine, WindowAggregation) or type(spec.trigger) is not EventTimeTrigger:
        return False
    return isinstance(spec.assigner, (TumblingEventTimeWindows, SlidingEventTimeWindows))


class WindowedColumnStream(WindowedStream[Row, Any, W_co]):
    """A stream of rows, keyed by columns, cut into windows. What takes records one by one takes dicts."""

    @overload
    def aggregate(
        self,
        function: None = None,
        *,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        rekey: Rekey | None = None,
        drop_states: str | Iterable[str] = (),
        **results: Aggregate,
    ) -> ColumnStream: ...
    @overload
    def aggregate(
        self,
        function: AggregateFunction[Row, Any, U],
        window_function: None = None,
        accumulator_type: object = object,
        *,
        element_type: object = object,
        **options: Unpack[StepOptions],
    ) -> Stream[U]: ...
    @overload
    def aggregate(
        self,
        function: AggregateFunction[Row, Any, A],
        window_function: ProcessWindowFunction[A, U, Any, W_co]
        | WindowFunction[A, U, Any, W_co]
        | Callable[[Any, W_co, list[A]], Iterable[U] | None],
        accumulator_type: object = object,
        *,
        element_type: object = object,
        **options: Unpack[StepOptions],
    ) -> Stream[U]: ...
    def aggregate(
        self,
        function: AggregateFunction[Row, Any, Any] | None = None,
        window_function: Any = None,
        accumulator_type: object = object,
        *,
        element_type: object = object,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        rekey: Rekey | None = None,
        drop_states: str | Iterable[str] = (),
        **results: Any,
    ) -> ColumnStream | Stream[Any]:
        """A row for each key and window: the key's columns, ``window_start``, ``window_end`` and the results.

        With an :class:`AggregateFunction <moorline.AggregateFunction>`, what windows of records make of it.

        >>> import moorline as mo
        >>> orders = mo.Job("orders").source(mo.from_items([{"customer": "ada", "cents": 5, "at": 1_000}]))
        >>> rows = orders.with_schema("customer string, cents bigint, at bigint", uid="columns")
        >>> keyed = rows.with_watermark("at", "5s", uid="times").key_by("customer")
        >>> per_minute = keyed.window(mo.TumblingEventTimeWindows("1min")).aggregate(cents=mo.sum("cents"), uid="sums")
        >>> per_minute.schema.names
        ['customer', 'window_start', 'window_end', 'cents']
        """
        options: dict[str, Any] = {"uid": uid, "name": name, "parallelism": parallelism}
        options |= {"rekey": rekey, "drop_states": drop_states}
        check_options(function=function, window_function=window_function, **options)
        if function is not None:
            if results:
                advice = "Give a function, or aggregates such as count=mo.count()."
                raise InvalidArgument("aggregate", sorted(results), advice)
            options = {option: given for option, given in options.items() if given not in (None, ())}
            return super().aggregate(function, window_function, accumulator_type, element_type=element_type, **options)
        if self._spec.evictor is not None:
            raise InvalidArgument("evictor", self._spec.evictor, "It takes records out of a window: use process().")
        stream: Any = self._stream
        if bound := {WINDOW_START, WINDOW_END}.intersection(stream.column_names):
            raise InvalidArgument("key_by", min(bound), "The bounds of the windows have this name: rename({...}) it.")
        taken = (*stream.column_names, WINDOW_START, WINDOW_END)
        schema = checked_results(stream.schema, results, taken)
        combine = window_aggregation(results, schema)
        rows = WindowRows(stream.column_names, combine)
        options["name"] = name or ", ".join(map(str, results.values()))
        made = self._step(rows, "aggregate", combine, object, options)
        return ColumnStream(made._job, made._origins, rows.out_schema)
