"""A table as SQLAlchemy finds it: what a record must be to fit it, and what makes its rows unique."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from moorline.connectors.row_tables import UnfitRecord, as_row
from moorline.errors import InvalidArgument
from moorline.model.value_kinds import TYPES, python_number

#: The Python types whose values go into a column, by the one that SQLAlchemy names for it.
_ACCEPTED: dict[type, tuple[type, ...]] = {
    int: (int,),
    float: (float, int, Decimal),
    Decimal: (Decimal, int, float),
    str: (str,),
    bytes: (bytes,),
    bool: (bool,),
    datetime: (datetime,),
    date: (date,),
    time: (time,),
    timedelta: (timedelta,),
    UUID: (UUID, str),
}


@dataclass(frozen=True)
class SqlColumn:
    """A column, as plain data: it travels to workers."""

    name: str
    #: As people write it.
    declared: str
    #: None: anything.
    accepted: tuple[type, ...] | None
    #: The longest text; None: any.
    length: int | None
    is_nullable: bool
    has_default: bool
    is_computed: bool

    @property
    def is_required(self) -> bool:
        return not (self.is_nullable or self.has_default or self.is_computed)

    def refusal(self, value: Any) -> str:
        """The reason why a value does not fit; empty if it does."""
        if value is None:
            return "" if self.is_nullable else "it cannot be null"
        if not _is_plain(value):
            return f"a {type(value).__name__} cannot be stored"
        accepted = self.accepted
        # A bool is an int to Python, and a datetime is a date; to databases they are not.
        is_other = (type(value) is bool and accepted != (bool,)) or (type(value) is datetime and accepted == (date,))
        if accepted is not None and (is_other or not isinstance(value, accepted)):
            return f"the {type(value).__name__} {value!r:.80} is not for a column of type {self.declared}"
        if self.length is not None and isinstance(value, str) and len(value) > self.length:
            return f"a text of {len(value)} characters is longer than {self.length}"
        return ""


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(inner) for key, inner in value.items())
    return value is None or type(value) in TYPES


@dataclass(frozen=True)
class SqlTable:
    """The table that records are checked against."""

    #: For people.
    where: str
    columns: dict[str, SqlColumn]
    key: tuple[str, ...]

    def row(self, record: Any) -> Mapping[str, Any]:
        """The record as a row of values that the table takes. Raises UnfitRecord."""
        row = as_row(record)
        if row is None:
            advice = "Map the records to dicts, dataclasses or namedtuples."
            raise self.unfit(record, f"a {type(record).__name__} has no column names", advice)
        values = {name: _lowered(value) for name, value in row.items()}
        for name in values:
            if name not in self.columns or self.columns[name].is_computed:
                raise self.unfit(record, f"the table takes no column {name!r}")
        missing = [c.name for c in self.columns.values() if c.is_required and c.name not in values]
        if missing:
            cause = f"it has no {', '.join(map(repr, missing))}, which cannot be null and has no default"
            raise self.unfit(record, cause)
        self._check(record, values)
        return values

    def key_of(self, record: Any, row: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The columns of the key alone."""
        found = row if row is not None else as_row(record)
        missing = [name for name in self.key if found is None or name not in found]
        if found is None or missing:
            raise self.unfit(record, f"it has no {', '.join(map(repr, missing))}, which is part of the key")
        values = {name: _lowered(found[name]) for name in self.key}
        if None in values.values():
            raise self.unfit(record, "a part of its key is None")
        self._check(record, values)
        try:
            hash(tuple(values.values()))
        except TypeError:
            raise self.unfit(record, "its key cannot be compared") from None
        return values

    def _check(self, record: Any, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            refusal = self.columns[name].refusal(value)
            if refusal:
                raise self.unfit(record, f"its column {name!r}: {refusal}")

    def unfit(self, record: Any, cause: str, advice: str = "") -> UnfitRecord:
        columns = ", ".join(f"{c.name} {c.declared}" for c in self.columns.values() if not c.is_computed)
        advice = advice or f"The table takes the columns ({columns}). Map records to it."
        return UnfitRecord(self.where, f"{record!r:.200}", cause, advice)


def _lowered(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else python_number(value)


def reflect(connection: sa.Connection, name: str, schema: str | None, where: str) -> sa.Table:
    """The table as it is in the database. Raises InvalidArgument if there is none."""
    try:
        return sa.Table(name, sa.MetaData(), schema=schema, autoload_with=connection, resolve_fks=False)
    except sa.exc.NoSuchTableError:
        advice = f"There is no such table at {where}. Names are taken as they are written."
        raise InvalidArgument("table", name, advice) from None


def described(table: sa.Table, key: Sequence[str], columns: Sequence[str] | None, where: str) -> SqlTable:
    """The table that records are checked against. Raises InvalidArgument for columns that are not there."""
    there = ", ".join(table.columns.keys())
    for what, names in (("key", key), ("columns", columns or ())):
        for name in names:
            if name not in table.columns:
                raise InvalidArgument(what, name, f"{where} has the columns {there}.")
    known = {column.name: _column(column) for column in table.columns}
    if columns is not None:
        missing = [c.name for c in known.values() if (c.is_required or c.name in key) and c.name not in columns]
        if missing:
            advice = f"They leave out {', '.join(missing)}, which cannot be null and has no default."
            raise InvalidArgument("columns", list(columns), advice)
        known = {name: column for name, column in known.items() if name in columns}
    return SqlTable(where, known, tuple(key))


def _column(column: sa.Column[Any]) -> SqlColumn:
    try:
        accepted = _ACCEPTED.get(column.type.python_type)
    except NotImplementedError:
        accepted = None
    is_number = isinstance(column.type, sa.Integer) and column.primary_key and column.autoincrement in (True, "auto")
    length = getattr(column.type, "length", None) if isinstance(column.type, sa.String) else None
    return SqlColumn(
        column.name,
        str(column.type),
        accepted,
        length,
        bool(column.nullable),
        column.server_default is not None or column.identity is not None or _counts_by_itself(column, is_number),
        column.computed is not None,
    )


def _counts_by_itself(column: sa.Column[Any], is_number: bool) -> bool:
    """Is it the one column of a primary key that databases fill with the next number?"""
    return is_number and column.table.primary_key.columns.keys() == [column.name]


def unique_keys(connection: sa.Connection, table: sa.Table) -> list[frozenset[str]]:
    """The sets of columns that tell rows apart, that of the primary key first."""
    inspector = sa.inspect(connection)
    name, schema = table.name, table.schema
    unique = [inspector.get_pk_constraint(name, schema=schema).get("constrained_columns") or []]
    unique += [list(found["column_names"]) for found in inspector.get_unique_constraints(name, schema=schema)]
    for index in inspector.get_indexes(name, schema=schema):
        if index["unique"] and not index.get("dialect_options", {}).get("postgresql_where"):
            unique.append([column for column in index["column_names"] if column is not None])
    return list(dict.fromkeys(frozenset(columns) for columns in unique if columns))


def check_unique(connection: sa.Connection, table: sa.Table, key: Sequence[str], where: str) -> None:
    """Refuse a key by which there may be several rows."""
    unique = unique_keys(connection, table)
    if frozenset(key) not in unique:
        known = " or ".join(", ".join(sorted(columns)) for columns in unique) or "nothing"
        raise InvalidArgument("key", list(key), f"{where} has no unique index on it; rows are unique by {known}.")
