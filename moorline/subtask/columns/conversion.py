"""From records to columns, and from what users' functions return to a record batch."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moorline.errors import InvalidOutput, RecordNotOfSchema
from moorline.model.arrow_values import Loss, cast_column, column_of
from moorline.model.columns import ColumnBatch


def to_batch(records: Sequence[Any], schema: pa.Schema, uid: str) -> pa.RecordBatch:
    """Records as columns of a schema. Raises :class:`RecordNotOfSchema` for the first that does not fit."""
    if isinstance(records, ColumnBatch):
        batch = records.batch
        batch = batch if batch.schema.equals(schema) else _cast(batch, schema, uid)
        _check_nulls(batch, uid)
        return batch
    try:
        return _columns(records, schema)
    except (pa.ArrowException, TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        for record in records:
            try:
                _columns([record], schema)
            except (pa.ArrowException, TypeError, ValueError, KeyError, AttributeError, OverflowError) as cause:
                why = f"there is no {cause}" if isinstance(cause, KeyError) else str(cause)
                raise RecordNotOfSchema(uid, f"{record!r:.500}", why, _shown(schema)) from None
        raise RecordNotOfSchema(uid, f"{records[0]!r:.500}", str(error), _shown(schema)) from None


def _columns(records: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    names = schema.names
    if isinstance(records[0], dict):
        columns: list[list[Any]] = [[record[name] for record in records] for name in names]
        if any(len(record) > len(names) for record in records):
            extra = next(name for record in records for name in record if name not in names)
            raise ValueError(f"it has a column {extra!r} more")
    elif dataclasses.is_dataclass(records[0]) or isinstance(records[0], msgspec.Struct):
        columns = [[getattr(record, name) for record in records] for name in names]
    else:
        raise TypeError("it is neither a dict nor an instance of a dataclass or msgspec.Struct")
    arrays = []
    for field, values in zip(schema, columns, strict=True):
        try:
            array = column_of(values, field.type)
        except Loss as loss:
            raise Loss(f"in {field.name!r} {loss}") from None
        if array.null_count and not field.nullable:
            raise ValueError(f"{field.name!r} is None, and the schema does not allow it")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(batch: pa.RecordBatch, schema: pa.Schema, uid: str) -> pa.RecordBatch:
    """The columns of ``schema``, by name. Values change their type where nothing is lost."""
    arrays = []
    for field in schema:
        try:
            arrays.append(cast_column(batch.column(batch.schema.names.index(field.name)), field.type))
        except (ValueError, pa.ArrowNotImplementedError) as error:  # pa.ArrowInvalid is a ValueError
            why = f"column {field.name!r}: {error}" if field.name in batch.schema.names else str(error)
            raise RecordNotOfSchema(uid, f"columns {_shown(batch.schema)}", why, _shown(schema)) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _check_nulls(batch: pa.RecordBatch, uid: str) -> None:
    """Raise for the first row with a null in a column that allows none: Arrow does not look."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
            record = f"{ColumnBatch(batch.slice(row, 1))[0]!r:.500}"
            why = f"{field.name!r} is None, and the schema does not allow it"
            raise RecordNotOfSchema(uid, record, why, _shown(batch.schema))


def made_to(out: pa.RecordBatch, schema: pa.Schema, uid: str, method: str) -> pa.RecordBatch:
    """The batch that a user's function has made, with the columns that it was said to have, and no others."""
    extra = [name for name in out.schema.names if name not in schema.names]
    if extra:
        advice = f"schema= does not name {extra[0]!r}: add it, or leave it out of what is returned."
        raise InvalidOutput(uid, method, f"columns {_shown(out.schema)}", advice)
    return to_batch(ColumnBatch(out), schema, uid)


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def frame_of(batch: pa.RecordBatch, frames: str) -> Any:
    """A batch as the user's function wants it."""
    if frames == "pandas":
        _refuse_ints_as_floats(batch)
        return batch.to_pandas()
    if frames == "polars":
        return importlib.import_module("polars").from_arrow(batch)  # an optional library
    return batch


#: From here on a float of 64 bits does not hold each whole number.
_EXACT = 1 << 53


def _refuse_ints_as_floats(batch: pa.RecordBatch) -> None:
    """Raise where pandas would round: it has floats for ints that have a null among them."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not pa.types.is_integer(field.type) or not column.null_count:
            continue
        bounds = pc.min_max(column)
        if max(abs(bounds["min"].as_py() or 0), abs(bounds["max"].as_py() or 0)) > _EXACT:
            advice = "it has ints beyond 2**53 beside nulls, which pandas keeps as floats: fill_null() it before, "
            raise ValueError(f"column {field.name!r}: {advice}" + 'or take frames="arrow" or "polars"')


def batch_of(made: Any, uid: str, method: str) -> pa.RecordBatch:
    """The result of a user's function as one batch. Raises :class:`InvalidOutput`."""
    out = _as_batch(made, uid, method)
    names = out.schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidOutput(uid, method, f"two columns {twice!r}", "Each column needs a name of its own.")
    return out


def _as_batch(made: Any, uid: str, method: str) -> pa.RecordBatch:
    if isinstance(made, pa.RecordBatch):
        return made
    if isinstance(made, pa.Table):
        return _joined(made)
    if hasattr(made, "to_arrow"):  # polars
        return _joined(made.to_arrow())
    if type(made).__module__.partition(".")[0] == "pandas" and hasattr(made, "columns"):
        if index := [name for name in made.index.names if name is not None]:
            had = f"a frame with the index {', '.join(map(str, index))}"
            raise InvalidOutput(uid, method, had, "It is no column and would be lost: return frame.reset_index().")
        return pa.RecordBatch.from_pandas(made, preserve_index=False).replace_schema_metadata(None)
    had = "None" if made is None else f"a {type(made).__qualname__}"
    advice = "Return a pyarrow.RecordBatch or Table, or a frame of pandas or polars."
    raise InvalidOutput(uid, method, had, advice)


def _joined(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


def mask_of(made: Any, rows: int, uid: str) -> pa.Array:
    """The result of the function of a filter, as a column of booleans. Null counts as false."""
    if hasattr(made, "to_arrow"):
        made = made.to_arrow()
    if isinstance(made, pa.ChunkedArray):
        made = made.combine_chunks()
    if hasattr(made, "iloc") and list(made.index) != list(range(rows)):  # pandas
        advice = "Its rows are others, or in another order, than those that came: return one for each, in their order."
        raise InvalidOutput(uid, "filter_batches", f"a {type(made).__name__} with an index of its own", advice)
    if not isinstance(made, pa.Array):
        try:
            made = pa.array(made)
        except (TypeError, ValueError, KeyError, pa.ArrowException):
            made = None
    if made is None or not pa.types.is_boolean(made.type) or len(made) != rows:
        had = "something else" if made is None else f"{len(made)} values of {made.type}"
        raise InvalidOutput(uid, "filter_batches", had, f"Return a column of booleans, one for each of {rows} rows.")
    return made
