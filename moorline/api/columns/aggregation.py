"""The function behind ``aggregate``: what is kept for each key in one value state, record by record.

This is what runs in a batch job, where state gets other keys, and where every update is wanted. Otherwise
``subtask/columns/aggregate.py`` does the same for whole batches, over the same state, on the heap and in RocksDB: any
can go on from a snapshot of another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from moorline.api.columns.aggregates import Aggregate
from moorline.api.columns.schemas import check_columns, check_field_name
from moorline.api.functions.base import KeyedProcessFunction
from moorline.api.state.states import ValueState
from moorline.api.state.ttl import StateTtlConfig
from moorline.errors import InvalidArgument

#: The state that all aggregates of an operator are kept in.
STATE = "aggregates"


class Aggregation(KeyedProcessFunction):
    """Keeps the aggregates of each key, and emits them for each record; in a batch job, once at the end of a key."""

    aggregates: ValueState[Any] = ValueState()
    #: False in a batch job: ``subtask/batch/reduce.py`` emits the last one.
    emits_each = True
    #: The class of what is kept for a key.
    kept: type

    def __init__(
        self,
        keys: tuple[str, ...],
        results: Mapping[str, Aggregate],
        schema: pa.Schema,
        every_update: bool,
        ttl: StateTtlConfig | None = None,
    ) -> None:
        self.keys, self.results, self.schema, self.every_update = keys, dict(results), schema, every_update
        self.ttl = ttl

    def __reduce__(self) -> Any:
        # Its class is made for the types that it keeps: it is made again where it arrives.
        return aggregation, (self.keys, self.results, self.schema, self.every_update, self.ttl)

    @property
    def out_schema(self) -> pa.Schema:
        """The schema of what it emits: the columns of the key, and the results."""
        keys = [self.schema.field(name) for name in self.keys]
        return pa.schema([*keys, *(pa.field(name, a.arrow(self.schema)) for name, a in self.results.items())])

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any] | None:
        before = self.aggregates.value()
        kept = {} if before is None else {f.name: getattr(before, f.name) for f in dataclasses.fields(before)}
        for name, aggregate in self.results.items():
            aggregate.add(name, kept, value)
        self.aggregates.update(self.kept(**kept))
        self._last_keys = [value[name] for name in self.keys]
        return [self._row(kept)] if self.emits_each else None

    def last(self) -> Any:
        """The row of results for the key of the last record."""
        kept = self.aggregates.value()
        return None if kept is None else self._row(vars(kept))

    def _row(self, kept: Mapping[str, Any]) -> dict[str, Any]:
        results = {name: aggregate.result(name, kept) for name, aggregate in self.results.items()}
        return {**dict(zip(self.keys, self._last_keys)), **results}


def kept_types(results: Mapping[str, Aggregate], schema: pa.Schema) -> dict[str, type]:
    """The fields of what is kept for a key, and their types. Raises :class:`InvalidArgument`."""
    fields: dict[str, type] = {}
    owners: dict[str, str] = {}
    for name, aggregate in results.items():
        for field, python in aggregate.kept(name, schema).items():
            if field in fields:
                advice = f"Its state would have the field {field!r}, which {owners[field]} has: give one another name."
                raise InvalidArgument("aggregate", f"{name}={aggregate}", advice)
            check_field_name("aggregate", field)
            fields[field], owners[field] = python, f"{name}={aggregate}"
    return fields


def check_options(**options: Any) -> None:
    """Raise for an aggregate where an option of the step stands: a result of that name would be missing."""
    for option, given in options.items():
        if isinstance(given, Aggregate):
            advice = f"{option}= is an option of the step: give the result another name, and rename({{...}}) it after."
            raise InvalidArgument(option, str(given), advice)


def checked_results(schema: pa.Schema | None, results: dict[str, Any], taken: tuple[str, ...]) -> pa.Schema:
    """The schema that results are aggregated from. Raise if that cannot be. ``taken``: other columns of the output."""
    if not results:
        raise InvalidArgument("aggregate", results, "Give at least one: aggregate(orders=mo.count()).")
    for result, aggregate in results.items():
        if not isinstance(aggregate, Aggregate):
            raise InvalidArgument(result, aggregate, 'Give an aggregate such as mo.count() or mo.sum("cents").')
        if result in taken:
            raise InvalidArgument(result, str(aggregate), "A column of the key, or of the window, has this name.")
    if schema is None:
        advice = "The columns are not known here: give map_batches its schema=, or put with_schema() before key_by."
        raise InvalidArgument("aggregate", sorted(results), advice)
    check_columns(schema, [a.column for a in results.values() if a.column is not None], "aggregate")
    kept_types(results, schema)
    return schema


def aggregation(
    keys: tuple[str, ...],
    results: Mapping[str, Aggregate],
    schema: pa.Schema,
    every_update: bool,
    ttl: StateTtlConfig | None = None,
) -> Aggregation:
    """The function whose state has a field for everything that is kept.

    >>> from moorline.api.columns.aggregates import count
    >>> made = aggregation(("user",), {"visits": count()}, pa.schema([("user", pa.string())]), False)
    >>> made.out_schema.names, made.kept(visits=2)
    (['user', 'visits'], Aggregates(visits=2))
    """
    # All of them may be missing: a result that is added later begins with the next record.
    fields: list[Any] = [
        (name, python | None, dataclasses.field(default=None)) for name, python in kept_types(results, schema).items()
    ]
    kept = dataclasses.make_dataclass("Aggregates", fields)
    # States are declared on classes.
    members = {"aggregates": ValueState(kept, name=STATE, ttl=ttl), "kept": kept, "__doc__": Aggregation.__doc__}
    typed: type[Aggregation] = type("Aggregation", (Aggregation,), members)
    return typed(keys, results, schema, every_update, ttl)
