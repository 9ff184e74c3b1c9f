"""The tree behind an expression, and its value for a batch.

A tree is data: columns, constants, and calls of functions by name. A name is one of ``pyarrow.compute``'s, or one of
the few in ``compound.py`` that are made of several of these. Each is one call of pyarrow's for a whole column; what
occurs in several places (the same object) is computed once. The type of a result, and every mistake in types, is found
by computing it for a row of nulls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from moorline.api.columns.expressions.compound import COMPOUND
from moorline.api.columns.schemas import check_columns
from moorline.errors import InvalidArgument


@dataclass(frozen=True)
class Column:
    """A column by its name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Constant:
    """The same value in each row."""

    value: pa.Scalar

    def __str__(self) -> str:
        return repr(self.value.as_py())


@dataclass(frozen=True, eq=False)
class Call:
    """A function of whole columns."""

    function: str
    arguments: tuple[Node, ...]
    #: How people read it, with a pair of braces for each argument.
    shown: str
    #: Keywords for the function.
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.shown.format(*self.arguments)


Node: TypeAlias = Column | Constant | Call


class ExpressionFailed(ValueError):
    """A call that pyarrow refuses: for these types, or for one of these values."""

    def __init__(self, node: Call, types: list[pa.DataType], cause: Exception) -> None:
        super().__init__(f"{node}, of {' and '.join(map(str, types))}: {cause}")
        self.node, self.types, self.cause = node, types, cause


def evaluate(node: Node, batch: pa.RecordBatch) -> pa.Array:
    """The value for each row of a batch. Raises :class:`ExpressionFailed`."""
    made = _value(node, batch, {})
    if isinstance(made, pa.Scalar):
        return pa.repeat(made, batch.num_rows)
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made


def evaluate_all(nodes: list[Node], batch: pa.RecordBatch) -> list[pa.Array]:
    """The values of several expressions, whose common parts are computed once."""
    done: dict[int, Any] = {}
    made = [_value(node, batch, done) for node in nodes]
    return [pa.repeat(m, batch.num_rows) if isinstance(m, pa.Scalar) else m for m in made]


def _value(node: Node, batch: pa.RecordBatch, done: dict[int, Any]) -> Any:
    if isinstance(node, Column):
        return batch.column(node.name)
    if isinstance(node, Constant):
        return node.value
    made = done.get(id(node))
    if made is None:
        arguments = [_plain(_value(argument, batch, done)) for argument in node.arguments]
        try:
            function = COMPOUND.get(node.function) or getattr(pc, node.function)
            made = function(*arguments, **node.options)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise ExpressionFailed(node, [a.type for a in arguments], error) from error
        done[id(node)] = made
    return made


def _plain(value: Any) -> Any:
    """Values themselves, where a column has numbers of values in a dictionary: few functions know these."""
    if isinstance(value, pa.DictionaryArray):
        return value.dictionary_decode()
    return value


def columns_of(node: Node) -> Iterator[str]:
    """The names of the columns in it."""
    if isinstance(node, Column):
        yield node.name
    elif isinstance(node, Call):
        for argument in node.arguments:
            yield from columns_of(argument)


def check_type(node: Node, schema: pa.Schema, where: str) -> pa.DataType:
    """The type of its values on a stream with this schema. Raises :class:`InvalidArgument`."""
    check_columns(schema, columns_of(node), where)
    try:
        made = evaluate(node, _row_of_nulls(schema))
    except ExpressionFailed as failed:
        types = " and ".join(map(str, failed.types))
        why = "" if isinstance(failed.cause, pa.ArrowNotImplementedError) else f" ({failed.cause})"
        advice = (
            f'It is not defined for {types}{why}. Change a type with cast(), such as mo.col("cents").cast("bigint").'
        )
        raise InvalidArgument(where, str(failed.node), advice) from None
    return made.type


def _row_of_nulls(schema: pa.Schema) -> pa.RecordBatch:
    """A row that all expressions have a value for. For no rows at all, some mistakes in types are not looked for."""
    return pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)
