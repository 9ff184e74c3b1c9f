"""Steps that expressions make: which columns a row has afterwards, and which rows stay. All is checked here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from moorline.api.columns.expressions.expression import Expression, Named
from moorline.api.columns.expressions.operators import node_of
from moorline.api.columns.expressions.tree import Column, Node, check_type
from moorline.api.columns.schemas import check_columns
from moorline.errors import InvalidArgument
from moorline.model.options import STEP_OPTIONS
from moorline.model.spelling import nearest


@dataclass(frozen=True)
class Projection:
    """The columns of the rows that come out, each an expression over those that come in."""

    in_schema: pa.Schema
    out_schema: pa.Schema
    columns: tuple[Node, ...]

    def shown(self) -> str:
        """The text for people."""
        return ", ".join(self.out_schema.names)


@dataclass(frozen=True)
class Condition:
    """The condition that rows meet to stay."""

    schema: pa.Schema
    node: Node

    @classmethod
    def of(cls, schema: pa.Schema | None, condition: Any) -> Condition:
        known = known_schema(schema, "where")
        if not isinstance(condition, Expression):
            advice = 'Give an expression: where(mo.col("cents") > 0). A function of a batch goes into filter_batches.'
            raise InvalidArgument("where", condition, advice)
        made = check_type(condition.node, known, "where")
        if not pa.types.is_boolean(made):
            raise InvalidArgument("where", str(condition), f"It is {made} and no boolean: compare it with something.")
        return cls(known, condition.node)


def check_no_column(**options: Any) -> None:
    """Raise for an expression where an option of the step stands: a column of that name would be missing."""
    for option, given in options.items():
        if isinstance(given, Expression):
            advice = f'{option}= is an option of the step: give the expression as .alias("{option}").'
            raise InvalidArgument(option, str(given), advice)


def selected(schema: pa.Schema | None, where: str, columns: Sequence[Any], computed: Mapping[str, Any]) -> Projection:
    """Columns by name, and computed ones. Raises :class:`InvalidArgument`."""
    known, nodes = known_schema(schema, where), {}
    for given in columns:
        name, node = _named(where, given)
        if name in nodes:
            raise InvalidArgument(where, name, "Two columns would have this name.")
        nodes[name] = node
    for name, given in computed.items():
        if name in nodes:
            raise InvalidArgument(where, name, "Two columns would have this name.")
        nodes[name] = _computed(known, where, name, given)
    if not nodes:
        raise InvalidArgument(where, [], 'Give at least one column: select("customer", euros=mo.col("cents") / 100).')
    return _projection(known, nodes, where)


def extended(schema: pa.Schema | None, columns: Sequence[Any], computed: Mapping[str, Any]) -> Projection:
    """All columns, and computed ones."""
    known = known_schema(schema, "with_columns")
    added = {name: _computed(known, "with_columns", name, given) for name, given in computed.items()}
    for given in columns:
        name, node = _named("with_columns", given)
        if name in added:
            raise InvalidArgument("with_columns", name, "Two columns would have this name.")
        added[name] = node
    if not added:
        raise InvalidArgument("with_columns", [], 'Give at least one: with_columns(euros=mo.col("cents") / 100).')
    return _projection(known, {**{name: Column(name) for name in known.names}, **added}, "with_columns")


def without(schema: pa.Schema | None, columns: Sequence[str]) -> Projection:
    """All columns but these."""
    known = known_schema(schema, "drop")
    if not columns:
        raise InvalidArgument("drop", [], 'Name the columns: drop("ip").')
    check_columns(known, columns, "drop")
    left = [name for name in known.names if name not in columns]
    if not left:
        raise InvalidArgument("drop", list(columns), "No column would be left.")
    return _projection(known, {name: Column(name) for name in left}, "drop")


def renamed(schema: pa.Schema | None, names: Mapping[str, str]) -> Projection:
    """The same columns under other names."""
    known = known_schema(schema, "rename")
    if not isinstance(names, Mapping) or not names or not all(isinstance(n, str) and n for n in names.values()):
        raise InvalidArgument("rename", names, 'Give old names and new ones: rename({"user": "customer"}).')
    check_columns(known, names, "rename")
    nodes: dict[str, Node] = {}
    for name in known.names:
        new = names.get(name, name)
        if new in nodes:
            raise InvalidArgument("rename", new, "Two columns would have this name.")
        nodes[new] = Column(name)
    return _projection(known, nodes, "rename")


def _projection(schema: pa.Schema, nodes: Mapping[str, Node], where: str) -> Projection:
    fields = []
    for name, node in nodes.items():
        made = check_type(node, schema, where)
        if pa.types.is_null(made):
            raise InvalidArgument(where, name, 'It is always null: give it a type, mo.lit(None, "bigint").')
        fields.append(schema.field(node.name).with_name(name) if isinstance(node, Column) else pa.field(name, made))
    return Projection(schema, pa.schema(fields), tuple(nodes.values()))


def _computed(schema: pa.Schema, where: str, name: str, given: Any) -> Node:
    """The expression of a computed column. A constant that was probably meant as something else is refused."""
    if isinstance(given, Expression):
        return given.node
    shown = f"{name}={given!r:.100}"
    if (option := nearest(name, STEP_OPTIONS)) is not None:
        advice = f"Is the option {option!r} meant? For a column with the same value in each row, {name}=mo.lit(...)."
        raise InvalidArgument(where, shown, advice)
    if isinstance(given, str) and given in schema.names:
        advice = f"For the column write {name}=mo.col({given!r}), for this text in each row {name}=mo.lit({given!r})."
        raise InvalidArgument(where, shown, advice)
    return node_of(given)


def _named(where: str, given: Any) -> tuple[str, Node]:
    if isinstance(given, str):
        return given, Column(given)
    if isinstance(given, Named):
        return given.name, given.expression.node
    if isinstance(given, Expression) and isinstance(given.node, Column):
        return given.node.name, given.node
    shown = str(given) if isinstance(given, Expression) else given
    raise InvalidArgument(where, shown, 'Give it a name: euros=mo.col("cents") / 100, or .alias("euros").')


def known_schema(schema: pa.Schema | None, where: str) -> pa.Schema:
    """The columns of a stream. Raises :class:`InvalidArgument` if they are not known."""
    if schema is None:
        advice = "The columns are not known here: give map_batches its schema=, or put with_schema() before it."
        raise InvalidArgument(where, "a stream", advice)
    return schema
