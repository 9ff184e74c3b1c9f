"""Streams with a schema: records travel as Arrow columns, and steps may take a whole batch of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import pyarrow as pa

from moorline.api import foreign_names
from moorline.api.columns import projections
from moorline.api.columns.aggregates import Aggregate
from moorline.api.columns.aggregation import aggregation, check_options, checked_results
from moorline.api.columns.batch_functions import BatchStep, KeyedBatchFunction, check_batch_function
from moorline.api.columns.batch_steps import ArrowColumns, BatchFunction, Frames, batch_function
from moorline.api.columns.expressions.expression import Expression, Named
from moorline.api.columns.projections import Condition, Projection, known_schema
from moorline.api.columns.ranking import one_row, top_rows
from moorline.api.columns.schemas import SchemaLike, check_keys, check_time_column, schema_of
from moorline.api.options import StepOptions
from moorline.api.state.ttl import TimeToLive, as_ttl
from moorline.api.streams import KeyedStream, Stream, describe
from moorline.api.type_parameters import A, W_co
from moorline.api.watermarks import WatermarkStrategy
from moorline.api.windows.assigners import WindowAssigner
from moorline.api.windows.streams import WindowSpec, checked_assigner
from moorline.errors import InvalidArgument
from moorline.model.columns import ColumnKey
from moorline.model.durations import Duration
from moorline.model.graph import Partitioning
from moorline.model.options import STEP_OPTIONS, checks_options

if TYPE_CHECKING:
    from moorline.api.columns.windows import WindowedColumnStream
    from moorline.api.job import Job
    from moorline.api.state.rekey import Rekey

#: A record of a stream with a schema, where a step takes records one by one.
Row = dict[str, Any]


class ColumnStream(Stream[Row]):
    """A stream of rows that lie in columns. It is made by :meth:`Stream.with_schema`.

    All steps of other streams are there too: a function that takes records one by one is given dicts.
    """

    _foreign_names = foreign_names.COLUMNS

    def __init__(
        self,
        job: Job,
        origins: tuple[tuple[str, str | None], ...],
        schema: pa.Schema | None,
        partitioning: Partitioning = Partitioning.FORWARD,
    ) -> None:
        super().__init__(job, origins, partitioning)
        #: The columns, if they are known.
        self.schema: pa.Schema | None = schema

    def select(
        self,
        *columns: str | Expression | Named,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        **computed: object,
    ) -> ColumnStream:
        """These columns alone, by name, and others that are computed, under the names they are given with.

        >>> import moorline as mo
        >>> orders = mo.Job("euros").source(mo.from_items([{"customer": "ada", "cents": 250}]), uid="orders")
        >>> sales = orders.with_schema("customer string, cents bigint", uid="sales")
        >>> sales.select("customer", euros=mo.col("cents") / 100, uid="euros").schema.names
        ['customer', 'euros']
        """
        return self._projected(projections.selected(self.schema, "select", columns, computed), name, uid, parallelism)

    def with_columns(
        self,
        *columns: Named,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        **computed: object,
    ) -> ColumnStream:
        """All columns, and more that are computed. One with the name of a column takes its place.

        >>> import moorline as mo
        >>> orders = mo.Job("euros").source(mo.from_items([{"cents": 250}]), uid="orders")
        >>> sales = orders.with_schema("cents bigint", uid="sales")
        >>> sales.with_columns(euros=mo.col("cents") / 100, uid="euros").schema.names
        ['cents', 'euros']
        """
        projection = projections.extended(self.schema, columns, computed)
        return self._projected(projection, name, uid, parallelism, ", ".join(computed))

    @checks_options(also=STEP_OPTIONS)
    def where(self, condition: Expression, **options: Unpack[StepOptions]) -> ColumnStream:
        """The rows for which the condition is true; not those for which it is null.

        >>> import moorline as mo
        >>> orders = mo.Job("large").source(mo.from_items([{"cents": 250}]), uid="orders")
        >>> orders.with_schema("cents bigint", uid="sales").where(mo.col("cents") > 100, uid="large")
        <ColumnStream of job 'large' from 'large'>
        """
        checked = Condition.of(self.schema, condition)
        options.setdefault("name", str(condition))
        return _columns(self._step("where", checked, **options), self.schema)

    @checks_options(also=STEP_OPTIONS)
    def drop(self, *columns: str, **options: Unpack[StepOptions]) -> ColumnStream:
        """All columns but these.

        >>> import moorline as mo
        >>> visits = mo.Job("visits").source(mo.from_items([{"user": "ada", "ip": "::1"}]), uid="visits")
        >>> visits.with_schema("user string, ip string", uid="columns").drop("ip", uid="private").schema.names
        ['user']
        """
        options.setdefault("name", f"drop {', '.join(columns)}")
        return self._projected(projections.without(self.schema, columns), **options)

    @checks_options(also=STEP_OPTIONS)
    def rename(self, names: Mapping[str, str], **options: Unpack[StepOptions]) -> ColumnStream:
        """The same columns, of which some have new names: ``{old: new}``.

        >>> import moorline as mo
        >>> visits = mo.Job("visits").source(mo.from_items([{"user": "ada"}]), uid="visits")
        >>> visits.with_schema("user string", uid="columns").rename({"user": "customer"}, uid="names").schema.names
        ['customer']
        """
        options.setdefault("name", "rename")
        return self._projected(projections.renamed(self.schema, names), **options)

    def _projected(
        self,
        projection: Projection,
        name: str | None = None,
        uid: str | None = None,
        parallelism: int | None = None,
        shown: str = "",
        **options: Any,
    ) -> ColumnStream:
        projections.check_no_column(uid=uid, name=name, parallelism=parallelism)
        name = name or shown or projection.shown()
        made = self._step("select", projection, uid, name, parallelism, **options)
        return _columns(made, projection.out_schema)

    @checks_options(also=STEP_OPTIONS)
    def map_batches(
        self,
        function: Callable[[Any], ArrowColumns],
        *,
        frames: Frames = "arrow",
        schema: SchemaLike | None = None,
        **options: Unpack[StepOptions],
    ) -> ColumnStream:
        """A batch in, a batch out: ``function`` takes a ``pyarrow.RecordBatch`` and returns one, or a table.

        ``frames="pandas"`` or ``"polars"`` has it take and return frames of these. ``schema`` says what comes out;
        without it, steps that need to know the columns beforehand, such as :meth:`aggregate`, cannot follow.

        >>> import moorline as mo
        >>> import pyarrow.compute as pc
        >>> job = mo.Job("euros")
        >>> sales = job.source(mo.from_items([{"cents": 250}])).with_schema("cents bigint")
        >>> def in_euros(batch):
        ...     return batch.append_column("euros", pc.divide(batch["cents"], 100.0))
        >>> sales.map_batches(in_euros, schema="cents bigint, euros double", uid="euros").schema.names
        ['cents', 'euros']
        """
        out = None if schema is None else schema_of(schema)
        return _columns(self._step("map_batches", batch_function(function, frames, out, self.schema), **options), out)

    @checks_options(also=STEP_OPTIONS)
    def filter_batches(
        self, function: Callable[[Any], Sized], *, frames: Frames = "arrow", **options: Unpack[StepOptions]
    ) -> ColumnStream:
        """Keep rows: ``function`` takes a batch and returns a column of booleans, one for each row.

        >>> import moorline as mo
        >>> import pyarrow.compute as pc
        >>> job = mo.Job("large")
        >>> sales = job.source(mo.from_items([{"cents": 250}])).with_schema("cents bigint")
        >>> sales.filter_batches(lambda batch: pc.greater(batch["cents"], 100), uid="large")
        <ColumnStream of job 'large' from 'large'>
        """
        made = self._step("filter_batches", batch_function(function, frames, self.schema, self.schema), **options)
        return _columns(made, self.schema)

    @overload
    def key_by(self, key: str, *more: str) -> KeyedColumnStream: ...
    @overload
    def key_by(self, key: Callable[[Row], A], *, key_type: object = None) -> KeyedStream[Row, A]: ...
    def key_by(self, key: str | Callable[[Row], Any], *more: str, key_type: object = None) -> KeyedStream[Row, Any]:
        """Send each row to the subtask that owns its key: the values of a column, or of several together.

        A function of the row will do as well, and takes them one by one.

        >>> import moorline as mo
        >>> orders = mo.Job("by-customer").source(mo.from_items([{"customer": "ada", "cents": 5}]))
        >>> orders.with_schema("customer string, cents bigint", uid="sales").key_by("customer")
        <KeyedColumnStream of job 'by-customer' from 'sales' (hash)>
        """
        if callable(key):
            if more:
                raise InvalidArgument("key_by", more, "Give names of columns, or one function.")
            return super().key_by(key, key_type=key_type)
        names = (key, *more)
        check_keys(self.schema, names)
        return KeyedColumnStream(self._job, self._origins, self.schema, names)

    @checks_options(also=STEP_OPTIONS)
    def assign_timestamps_and_watermarks(
        self, strategy: WatermarkStrategy, **options: Unpack[StepOptions]
    ) -> ColumnStream:
        """Give rows a time, and the stream a notion of how far it has come.

        A strategy whose timestamp is the name of a column looks at whole batches:

        >>> import moorline as mo
        >>> orders = mo.Job("orders").source(mo.from_items([{"customer": "ada", "at": 1_000}]))
        >>> columns = orders.with_schema("customer string, at bigint", uid="columns")
        >>> strategy = mo.WatermarkStrategy.bounded_out_of_orderness("5s", timestamp="at")
        >>> columns.assign_timestamps_and_watermarks(strategy, uid="times")
        <ColumnStream of job 'orders' from 'times'>
        """
        if isinstance(strategy, WatermarkStrategy) and isinstance(strategy.timestamp, str):
            check_time_column(self.schema, strategy.timestamp, "timestamp")
        return _columns(super().assign_timestamps_and_watermarks(strategy, **options), self.schema)

    @checks_options(also=STEP_OPTIONS)
    def with_watermark(self, column: str, delay: Duration, **options: Unpack[StepOptions]) -> ColumnStream:
        """The time of a row is in ``column``, and rows come up to ``delay`` out of order: Spark's ``withWatermark``.

        The column holds timestamps, dates, or ints of milliseconds since 1970.

        >>> import moorline as mo
        >>> orders = mo.Job("orders").source(mo.from_items([{"customer": "ada", "at": 1_000}]))
        >>> orders.with_schema("customer string, at bigint", uid="columns").with_watermark("at", "5s", uid="times")
        <ColumnStream of job 'orders' from 'times'>
        """
        check_time_column(self.schema, column, "with_watermark")
        strategy = WatermarkStrategy.bounded_out_of_orderness(delay, timestamp=column)
        return self.assign_timestamps_and_watermarks(strategy, **options)

    def rebalance(self) -> ColumnStream:
        """Deal the rows out to the next operator's subtasks in turn."""
        return ColumnStream(self._job, self._origins, self.schema, Partitioning.REBALANCE)

    def _step(self, kind: str, function: Any, *args: Any, **options: Any) -> Stream[Any]:
        if isinstance(function, BatchFunction) and not options.get("name"):
            options["name"] = describe(function.function)
        return super()._step(kind, function, *args, **options)


class KeyedColumnStream(KeyedStream[Row, Any]):
    """A stream of rows whose keys are columns."""

    _foreign_names = foreign_names.COLUMNS

    def __init__(
        self, job: Job, origins: tuple[tuple[str, str | None], ...], schema: pa.Schema | None, names: tuple[str, ...]
    ) -> None:
        super().__init__(job, origins, Partitioning.HASH, ColumnKey(names))
        self.schema: pa.Schema | None = schema
        self._names = names

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns of the key."""
        return self._names

    def window(self, assigner: WindowAssigner[W_co]) -> WindowedColumnStream[W_co]:
        """The rows of each key cut into windows, such as ``mo.TumblingEventTimeWindows("5s")``.

        >>> import moorline as mo
        >>> orders = mo.Job("orders").source(mo.from_items([{"customer": "ada", "cents": 5}]))
        >>> keyed = orders.with_schema("customer string, cents bigint", uid="columns").key_by("customer")
        >>> keyed.window(mo.TumblingEventTimeWindows("1min"))
        <WindowedStream <KeyedColumnStream of job 'orders' from 'columns' (hash)> in TumblingEventTimeWindows>
        """
        from moorline.api.columns.windows import WindowedColumnStream  # noqa: PLC0415  which is made of streams

        return WindowedColumnStream(self, WindowSpec(checked_assigner(assigner), assigner.default_trigger()))

    def aggregate(
        self,
        *,
        emit: Literal["changes", "updates"] = "changes",
        ttl: TimeToLive | None = None,
        uid: str | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        rekey: Rekey | None = None,
        drop_states: str | Iterable[str] = (),
        **results: Aggregate,
    ) -> ColumnStream:
        """Running aggregates of each key, by the names of their results.

        A row comes out for each key that a batch of input has changed; with ``emit="updates"``, one for each row that
        comes in. It holds the key's columns and the results. In a batch job one row comes out for each key, at its
        end. With ``ttl``, a key without a row for so long begins anew.

        >>> import moorline as mo
        >>> orders = mo.Job("revenue").source(mo.from_items([{"customer": "ada", "cents": 5}]))
        >>> sales = orders.with_schema("customer string, cents bigint", uid="sales")
        >>> totals = sales.key_by("customer").aggregate(orders=mo.count(), cents=mo.sum("cents"), uid="totals")
        >>> totals.schema.names
        ['customer', 'orders', 'cents']
        """
        options = {"uid": uid, "name": name, "parallelism": parallelism, "rekey": rekey, "drop_states": drop_states}
        check_options(emit=emit, ttl=ttl, **options)
        if emit not in ("changes", "updates"):
            raise InvalidArgument("emit", emit, 'Give "changes" or "updates".')
        schema = checked_results(self.schema, results, self._names)
        function = aggregation(self._names, results, schema, emit == "updates", as_ttl(ttl))
        shown = name or ", ".join(map(str, results.values()))
        made = self._step("aggregate", function, uid, shown, parallelism, rekey=rekey, drop_states=drop_states)
        return _columns(made, function.out_schema)

    @checks_options(also=STEP_OPTIONS)
    def process_batches(
        self, function: KeyedBatchFunction, *, schema: SchemaLike | None = None, **options: Unpack[StepOptions]
    ) -> ColumnStream:
        """A batch in, columns out, with states that are read and written for all keys of the batch at once.

        ``schema`` says what comes out; without it, steps that need to know the columns cannot follow. See
        :class:`mo.KeyedBatchFunction <moorline.KeyedBatchFunction>`.

        >>> import moorline as mo
        >>> class First(mo.KeyedBatchFunction):
        ...     seen = mo.ValueState(bool, default=False)
        ...     def process_batch(self, keys, batch, states):
        ...         rows = keys.first_rows[~states.seen.numpy()]
        ...         states.seen.update([True] * len(keys))
        ...         return batch.take(pa.array(rows))
        >>> visits = mo.Job("first").source(mo.from_items([{"user": "ada"}]), uid="visits")
        >>> visits.with_schema("user string", uid="columns").key_by("user").process_batches(First(), uid="first")
        <ColumnStream of job 'first' from 'first'>
        """
        check_batch_function(function)
        step = BatchStep(known_schema(self.schema, "process_batches"), None if schema is None else schema_of(schema))
        return _columns(self._step("process_batches", function, batches=step, **options), step.out_schema)

    @checks_options(also=STEP_OPTIONS)
    def deduplicate(
        self, *, keep: Literal["first", "last"] = "first", ttl: TimeToLive | None = None, **options: Unpack[StepOptions]
    ) -> ColumnStream:
        """One row for each key: the first that arrives, or the last.

        ``keep="first"`` emits a row when its key is new; with ``ttl`` a key is new again after so long. Each row that
        ``keep="last"`` emits takes the place of the one before it: for each batch the last row of each of its keys,
        in a batch job one for each key. For the first or last by a column, use :meth:`top` with 1.

        >>> import moorline as mo
        >>> visits = mo.Job("visitors").source(mo.from_items([{"user": "ada", "page": "/"}]), uid="visits")
        >>> rows = visits.with_schema("user string, page string", uid="rows")
        >>> rows.key_by("user").deduplicate(ttl="1d", uid="first").schema.names
        ['user', 'page']
        """
        options.setdefault("name", f"{keep} of {', '.join(self._names)}")
        schema = known_schema(self.schema, "deduplicate")
        return self._by_batches("deduplicate", one_row(keep, ttl), schema, options)

    @checks_options(also=STEP_OPTIONS)
    def top(
        self, n: int, *, by: str, descending: bool = True, rank: str = "rank", **options: Unpack[StepOptions]
    ) -> ColumnStream:
        """The ``n`` rows of each key with the greatest values of a column; the least, if not ``descending``.

        A row comes out for each rank of a key that has another row than before, with the rank in a column more: by
        key and rank it takes the place of the one before it. In a batch job the ranks come out once, at the end of
        the key. Of equal rows the one that came first is better. Rows whose value is null or nan have no rank.

        >>> import moorline as mo
        >>> scores = mo.Job("best").source(mo.from_items([{"game": "go", "points": 5}]), uid="scores")
        >>> rows = scores.with_schema("game string, points bigint", uid="rows")
        >>> rows.key_by("game").top(3, by="points", uid="best").schema.names
        ['game', 'points', 'rank']
        """
        function = top_rows(self._names, known_schema(self.schema, "top"), n, by, descending, rank)
        options.setdefault("name", f"{n} by {by}")
        return self._by_batches("top", function, function.out_schema, options)

    def _by_batches(self, kind: str, function: Any, out: pa.Schema, options: Any) -> ColumnStream:
        assert self.schema is not None
        return _columns(self._step(kind, function, batches=BatchStep(self.schema, out), **options), out)


def with_schema(stream: Stream[Any], schema: Any, **options: Any) -> ColumnStream:
    """See :meth:`Stream.with_schema`."""
    declared = schema_of(schema)
    options.setdefault("name", ", ".join(declared.names))
    return _columns(stream._step("with_schema", declared, **options), declared)


def _columns(made: Stream[Any], schema: pa.Schema | None) -> ColumnStream:
    """The same records, of which it is known that they lie in columns."""
    return ColumnStream(made._job, made._origins, schema)
