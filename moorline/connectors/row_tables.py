"""Records as rows and columns: what a record is in a table.

    record                                        row
    dict                                          its items
    dataclass, msgspec.Struct, namedtuple         its fields
    plain tuple or list                           by position, if a schema is given
    anything else                                 the one column, if a schema with one column is given

What cannot be written whole is refused; nothing of a record is dropped in silence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import NoneType
from typing import Any

import msgspec
import pyarrow as pa

from moorline.errors import MoorlineError
from moorline.model.arrow_values import cast_column, is_kin, refuse_loss
from moorline.model.columns import ColumnBatch
from moorline.model.value_kinds import TYPES

#: Raised by Arrow for a value that it cannot take.
_REFUSALS = (pa.ArrowException, OverflowError, TypeError, ValueError)
#: Types that are as they are. (Compared by type, in C: a batch has many values.)
_ATOMS = TYPES | {NoneType}
_type = type


@dataclass(eq=False)
class UnfitRecord(MoorlineError):
    """A record cannot be written in the sink's format."""

    can_pass = False

    path: str
    record: str
    cause: str
    advice: str

    def __str__(self) -> str:
        return f"cannot write the record {self.record} to {self.path}: {self.cause}. {self.advice}"


class RowTables:
    """Records as Arrow tables of one schema. Without one it follows from the first records."""

    def __init__(self, path: str, schema: pa.Schema | None, sink: str) -> None:
        self._path, self._given, self._sink = path, schema, sink
        self.schema = schema

    def table(self, records: list[Any]) -> pa.Table:
        """The records, at least one. Raises :class:`UnfitRecord` for one that cannot be written whole."""
        rows = records if set(map(type, records)) == {dict} else [self._row(record) for record in records]
        if self.schema is None:
            self.schema = self._infer(rows)
        table = pa.Table.from_arrays([self._column(rows, field) for field in self.schema], schema=self.schema)
        self._refuse_unknown_columns(rows, self.schema)
        return table

    def columns(self, batch: pa.RecordBatch) -> pa.Table:
        """The rows of a batch of columns. Raises :class:`UnfitRecord` if a column cannot be written whole."""
        if self.schema is None:
            self.schema = batch.schema.remove_metadata()
        first = ColumnBatch(batch.slice(0, 1))[0]
        unknown = [name for name in batch.schema.names if name not in self.schema.names]
        if unknown:
            raise self.unfit(first, f"the file has no column {', '.join(map(repr, unknown))}")
        arrays = []
        for field in self.schema:
            if field.name in batch.schema.names:
                array = batch.column(field.name)
            else:
                array = pa.nulls(batch.num_rows, field.type)
            if array.null_count and not field.nullable:
                raise self.unfit(first, f"its column {field.name!r}, or that of a row with it, must not be null")
            if not is_kin(array.type, field.type):
                raise self.unfit(first, f"its column {field.name!r} is {array.type}, and not {field.type}")
            try:
                arrays.append(cast_column(array, field.type))
            except _REFUSALS as error:
                raise self.unfit(first, f"its column {field.name!r}, or that of a row with it: {error}") from error
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _row(self, record: Any) -> Mapping[str, Any]:
        row = as_row(record)
        if row is not None:
            return row
        if self._given is not None:
            names = self._given.names
            values = record if isinstance(record, (tuple, list)) else (record,)
            if len(values) == len(names):
                return dict(zip(names, values))
            raise self.unfit(record, f"it has {len(values)} values and the schema the {len(names)} columns {names}")
        raise UnfitRecord(
            self._path,
            f"{record!r:.200}",
            f"a {type(record).__name__} has no column names",
            f"Map the records to dicts, dataclasses or namedtuples, or give {self._sink} a schema=.",
        )

    def _infer(self, rows: list[Mapping[str, Any]]) -> pa.Schema:
        names = list(dict.fromkeys(name for row in rows for name in row))
        for name in names:
            if not isinstance(name, str):
                raise self.unfit(next(row for row in rows if name in row), f"the column name {name!r} is not a text")
        if not names:
            # Parquet would count no rows at all.
            raise self.unfit(rows[0], "it has no columns")
        return pa.schema([(name, self._inferred_type(rows, name)) for name in names])

    def _inferred_type(self, rows: list[Mapping[str, Any]], name: str) -> pa.DataType:
        values = _lowered([row.get(name) for row in rows])
        try:
            # Not pa.infer_type: it calls [1, "x"] integers.
            return pa.array(values).type
        except _REFUSALS as error:
            row = rows[_first_unfit(values)]
            raise self.unfit(row, f"its column {name!r} does not go with those before it: {error}") from error

    def _column(self, rows: list[Mapping[str, Any]], field: pa.Field) -> pa.Array:
        values = [row.get(field.name) for row in rows]
        if not field.nullable and None in values:
            row = rows[values.index(None)]
            raise self.unfit(row, f"its column {field.name!r} must not be null")
        try:
            return _array(values, field.type)
        except _REFUSALS:
            pass
        for row, value in zip(rows, values):
            try:
                _array([value], field.type)
            except _REFUSALS as error:
                raise self.unfit(row, f"its column {field.name!r} is not {field.type}: {error}") from error
        raise AssertionError("the same values were refused a moment ago")

    def _refuse_unknown_columns(self, rows: list[Mapping[str, Any]], schema: pa.Schema) -> None:
        known = set(schema.names)
        for row in rows:
            if not row.keys() <= known:
                extra = ", ".join(repr(name) for name in row if name not in known)
                raise self.unfit(row, f"the file has no column {extra}")

    def unfit(self, record: Any, cause: str) -> UnfitRecord:
        """The error for a record that cannot be written."""
        if self.schema is None:
            advice = f"Give {self._sink} a schema=."
        elif self._given is None:
            columns = ", ".join(f"{field.name}: {field.type}" for field in self.schema)
            advice = f"The first records of the file gave it the columns ({columns}). Give {self._sink} a schema=."
        else:
            columns = ", ".join(f"{field.name}: {field.type}" for field in self.schema)
            advice = f"The schema has the columns ({columns}). Map the records to it, or change it."
        return UnfitRecord(self._path, f"{record!r:.200}", cause, advice)


def as_row(record: Any) -> Mapping[str, Any] | None:
    """The record as a row, or ``None`` if it has no names for its parts.

    >>> from typing import NamedTuple
    >>> class Point(NamedTuple):
    ...     x: int
    ...     y: int
    >>> as_row(Point(1, 2)), as_row((1, 2))
    ({'x': 1, 'y': 2}, None)
    """
    if isinstance(record, Mapping):
        return record
    names = _field_names(type(record))
    return None if names is None else {name: getattr(record, name) for name in names}


_known_fields: dict[type, tuple[str, ...] | None] = {}


def _field_names(kind: type) -> tuple[str, ...] | None:
    if kind not in _known_fields:
        _known_fields[kind] = _look_up_field_names(kind)
    return _known_fields[kind]


def _look_up_field_names(kind: type) -> tuple[str, ...] | None:
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return tuple(kind._fields)
    return None


def _array(values: list[Any], type: pa.DataType) -> pa.Array:
    lowered = _lowered(values)
    try:
        array = pa.array(lowered, type)
    except _REFUSALS:
        if lowered is values:
            raise
        # A schema may want a namedtuple as a list.
        return pa.array(values, type)
    refuse_loss(lowered, type)
    return array


def _lowered(values: list[Any]) -> list[Any]:
    """The values with what Arrow does not know (objects with fields, sets, enums) as what it knows."""
    if _ATOMS.issuperset(map(_type, values)):
        return values
    return [_lower(value) for value in values]


def _lower(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    row = as_row(value)
    if row is not None:
        return dict(zip(row, _lowered(list(row.values()))))
    if isinstance(value, (list, tuple, set, frozenset)):
        return _lowered(list(value))
    return value


def _first_unfit(values: list[Any]) -> int:
    """The position of the first value that Arrow cannot put into one array with those before it, by halving."""
    good, bad = 0, len(values)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            pa.array(values[:middle])
            good = middle
        except _REFUSALS:
            bad = middle
    return bad - 1
