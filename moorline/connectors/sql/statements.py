"""Statements that put rows by their key, in the words of each database.

    postgresql, sqlite    INSERT … ON CONFLICT (key) DO UPDATE
    mysql, mariadb        INSERT … ON DUPLICATE KEY UPDATE
    others                UPDATE … WHERE key; and INSERT if there was no such row

MySQL's words do not name the key: with a second unique index they would change a row that has another key and is equal
by that index. Such a table is written as by the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from moorline.connectors.sql.table import unique_keys

Rows = list[dict[str, Any]]


def _on_conflict(insert: Any) -> Callable[[sa.Table, Sequence[str], Sequence[str]], sa.Executable]:
    def statement(table: sa.Table, key: Sequence[str], others: Sequence[str]) -> sa.Executable:
        made = insert(table)
        if not others:
            return made.on_conflict_do_nothing(index_elements=list(key))  # type: ignore[no-any-return]
        values = {name: made.excluded[name] for name in others}
        return made.on_conflict_do_update(index_elements=list(key), set_=values)  # type: ignore[no-any-return]

    return statement


def _on_duplicate(table: sa.Table, key: Sequence[str], others: Sequence[str]) -> sa.Executable:
    made = mysql.insert(table)
    # A row of keys alone is set to what it is.
    return made.on_duplicate_key_update({name: made.inserted[name] for name in others or key})


#: By the name of the dialect.
UPSERTS: dict[str, Callable[[sa.Table, Sequence[str], Sequence[str]], sa.Executable]] = {
    "postgresql": _on_conflict(postgresql.insert),
    "sqlite": _on_conflict(sqlite.insert),
    "mysql": _on_duplicate,
    "mariadb": _on_duplicate,
}


def is_native(connection: sa.Connection, table: sa.Table, key: Sequence[str]) -> bool:
    """Has the database words for it, which mean this key?"""
    name = connection.dialect.name
    is_named = name not in ("mysql", "mariadb") or unique_keys(connection, table) == [frozenset(key)]
    return name in UPSERTS and is_named


def put(connection: sa.Connection, table: sa.Table, key: Sequence[str], rows: Rows, native: bool) -> None:
    """Write rows that all have the same columns: each replaces the one with its key, or is new."""
    others = [name for name in rows[0] if name not in key]
    if native:
        upsert = UPSERTS[connection.dialect.name]
        connection.execute(upsert(table, key, others), rows)
        return
    for row in rows:
        if not _is_updated(connection, table, key, others, row):
            connection.execute(sa.insert(table), row)


def _is_updated(
    connection: sa.Connection, table: sa.Table, key: Sequence[str], others: Sequence[str], row: dict[str, Any]
) -> bool:
    """Was there such a row? It has the new values then."""
    same = sa.and_(*(table.c[name] == row[name] for name in key))
    if not others:
        return connection.execute(sa.select(sa.literal(1)).select_from(table).where(same)).first() is not None
    values = {name: row[name] for name in others}
    return connection.execute(sa.update(table).where(same).values(values)).rowcount > 0


def delete(connection: sa.Connection, table: sa.Table, key: Sequence[str], rows: Rows) -> None:
    """Remove the rows with these keys."""
    # Names that no column has: a bound name must not be taken for one.
    same = sa.and_(*(table.c[name] == sa.bindparam(f"moorline_{n}") for n, name in enumerate(key)))
    places = [{f"moorline_{n}": row[name] for n, name in enumerate(key)} for row in rows]
    connection.execute(sa.delete(table).where(same), places)


def try_put(connection: sa.Connection, table: sa.Table, names: Sequence[str]) -> None:
    """Write no row: are we allowed to?"""
    nothing = sa.select(*(table.c[name] for name in names)).where(sa.false())
    connection.execute(sa.insert(table).from_select(list(names), nothing))
