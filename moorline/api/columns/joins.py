"""Joins of two streams of columns: the columns of both, side by side, as a stream of columns again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from moorline.api.columns.schemas import python_type
from moorline.errors import InvalidArgument
from moorline.model.columns import ColumnKey

if TYPE_CHECKING:
    from moorline.api.columns.streams import ColumnStream
    from moorline.api.streams import Stream


class SideBySide:
    """Makes one row of two. Called with a context too by an interval join, which takes several results."""

    def __init__(self, left: dict[str, str], right: dict[str, str]) -> None:
        self._left, self._right = left, right

    def __call__(self, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        row = {new: left[name] for name, new in self._left.items()}
        row.update((new, right[name]) for name, new in self._right.items())
        return row

    def of_interval(self, left: dict[str, Any], right: dict[str, Any], ctx: Any) -> list[dict[str, Any]]:
        """The same, as the function of an interval join."""
        return [self(left, right)]


def side_by_side(
    first: Stream[Any], second: Stream[Any], left_prefix: str, right_prefix: str
) -> tuple[SideBySide, pa.Schema]:
    """The function that makes the rows, and their columns. Raises :class:`InvalidArgument`."""
    left, right = _schema_of(first), _schema_of(second)
    _check_keys(first, second, left, right)
    fields = [field.with_name(left_prefix + field.name) for field in left]
    fields += [field.with_name(right_prefix + field.name) for field in right]
    names = [field.name for field in fields]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidArgument(
            "columns", twice, 'Both sides have this column: give right_prefix="right_", or rename it.'
        )
    sides = ({name: left_prefix + name for name in left.names}, {name: right_prefix + name for name in right.names})
    return SideBySide(*sides), pa.schema(fields)


def as_columns(made: Stream[Any], schema: pa.Schema, options: Any) -> ColumnStream:
    """The rows of a join as columns."""
    uid, parallelism = options.get("uid"), options.get("parallelism")
    return made.with_schema(schema, uid=None if uid is None else f"{uid}-columns", parallelism=parallelism)


def _schema_of(stream: Stream[Any]) -> pa.Schema:
    schema: pa.Schema | None = getattr(stream, "schema", None)
    if schema is None:
        raise InvalidArgument("columns", stream, "Its columns are not known: put with_schema(...) before key_by.")
    return schema


def _kind(field: pa.Field) -> str:
    """The kind of values that those of a column can be equal to."""
    name = python_type(field.type, f"key {field.name!r}").__name__
    return f"{name} with a time zone" if pa.types.is_timestamp(field.type) and field.type.tz else name


def _check_keys(first: Stream[Any], second: Stream[Any], left: pa.Schema, right: pa.Schema) -> None:
    """Refuse keys of different types, which would never be equal."""
    if not (isinstance(first._key, ColumnKey) and isinstance(second._key, ColumnKey)):
        return
    kinds = [
        [_kind(schema.field(name)) for name in key.names] for schema, key in ((left, first._key), (right, second._key))
    ]
    if kinds[0] != kinds[1]:
        had = f"{first._key} ({', '.join(kinds[0])}) and {second._key} ({', '.join(kinds[1])})"
        raise InvalidArgument("join", had, "These keys are never equal: cast one of them before key_by.")
