"""The shape of a table as PostgreSQL's catalogue has it: columns, their types, and what makes a row unique."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from moorline.connectors.postgres.connection import Connection

_COLUMNS = """
SELECT a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.atthasdef OR a.attidentity <> '',
    a.attgenerated <> '' OR a.attidentity = 'a', format_type(a.atttypid, a.atttypmod),
    coalesce(c.collisdeterministic, true)
FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_TYPES = """
SELECT oid::bigint, typtype, typbasetype::bigint, typtypmod, typcategory, typelem::bigint, typnotnull,
    format_type(oid, NULL),
    (SELECT array_agg(enumlabel::text ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = t.oid)
FROM pg_type t WHERE oid = ANY(%s)"""
#: Indexes that make rows unique, by columns alone and for all rows.
_UNIQUE = """
SELECT array(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, n)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
        WHERE k.n <= i.indnkeyatts ORDER BY k.n), i.indisprimary
FROM pg_index i
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL
    AND i.indexprs IS NULL
ORDER BY i.indisprimary DESC, i.indexrelid"""


@dataclass(frozen=True)
class ColumnType:
    """The type of a column. Of a domain: that which it stands on."""

    oid: int
    #: As SQL writes it, without its length or precision.
    name: str
    #: Length or precision as the catalogue has it; -1: none.
    modifier: int = -1
    #: ``S`` for texts; see pg_type.
    category: str = ""
    #: The labels of an enum.
    labels: tuple[str, ...] | None = None
    #: The elements of an array.
    element: ColumnType | None = None


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    type: ColumnType
    #: The type as people write it.
    declared: str
    is_not_null: bool
    has_default: bool
    #: PostgreSQL alone gives it its values.
    is_generated: bool
    #: Are texts in it equal only if all of their bytes are?
    is_deterministic: bool = True


@dataclass(frozen=True)
class TableShape:
    """Columns in their order, and the sets of columns that tell rows apart: those of the primary key first."""

    columns: dict[str, Column]
    unique: tuple[tuple[str, ...], ...] = ()
    primary_key: tuple[str, ...] = ()

    def is_unique(self, names: Sequence[str]) -> bool:
        return any(set(key) == set(names) for key in self.unique)


def quoted(parts: Sequence[str]) -> sql.Identifier:
    """A table's name in SQL."""
    return sql.Identifier(*parts)


def read_shape(connection: Connection, parts: Sequence[str]) -> TableShape | None:
    """The shape of a table; None if there is none of that name."""
    name = quoted(parts).as_string(connection)
    rows = connection.execute(_COLUMNS, (name,)).fetchall()
    if not rows:
        return None
    types = read_types(connection, {row[1] for row in rows})
    columns = {}
    for column, oid, modifier, not_null, default, generated, declared, deterministic in rows:
        base, inner_modifier, domain_not_null = types[oid]
        kept = modifier if modifier >= 0 else inner_modifier
        type = ColumnType(base.oid, base.name, kept, base.category, base.labels, _with(base.element, kept))
        is_not_null = not_null or domain_not_null
        columns[column] = Column(column, type, declared, is_not_null, default, generated, deterministic)
    unique = connection.execute(_UNIQUE, (name,)).fetchall()
    primary = next((tuple(names) for names, is_primary in unique if is_primary), ())
    return TableShape(columns, tuple(tuple(names) for names, _ in unique), primary)


def _with(element: ColumnType | None, modifier: int) -> ColumnType | None:
    """The elements of a ``varchar(3)[]`` are the ones with the length."""
    if element is None:
        return None
    return ColumnType(element.oid, element.name, modifier, element.category, element.labels)


def read_types(connection: Connection, oids: Collection[int]) -> dict[int, tuple[ColumnType, int, bool]]:
    """For each type: that which it stands on, the length that a domain gives it, and whether a domain refuses null."""
    known: dict[int, tuple[Any, ...]] = {}
    asked: set[int] = set()
    missing = set(oids)
    while missing:
        known.update((row[0], row) for row in connection.execute(_TYPES, (list(missing),)).fetchall())
        asked |= missing
        missing = {inner for row in known.values() for inner in (row[2], row[5]) if inner} - asked
    return {oid: _resolved(oid, known) for oid in oids}


def _resolved(oid: int, known: dict[int, tuple[Any, ...]]) -> tuple[ColumnType, int, bool]:
    modifier, not_null = -1, False
    while known[oid][1] == "d":
        _, _, base, inner, _, _, refuses_null, _, _ = known[oid]
        modifier, not_null = (inner if modifier < 0 else modifier), not_null or refuses_null
        oid = base
    _, _, _, _, category, element, _, name, labels = known[oid]
    inner_type = _resolved(element, known)[0] if category == "A" and element else None
    type = ColumnType(oid, name, -1, category, tuple(labels) if labels is not None else None, inner_type)
    return type, modifier, not_null
