"""The tables whose changes are read, as the server has them: their keys, pages of the first load, and publications."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from moorline.connectors.postgres.changes.position import Key, lsn_number
from moorline.connectors.postgres.connection import Connection
from moorline.errors import InvalidArgument

_TABLE = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relreplident, c.relkind
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)"""
#: The columns of the replica identity's index, or of the primary key, with types and orders as SQL writes them.
_KEY = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod),
    CASE WHEN a.attcollation = t.typcollation OR a.attcollation = 0 THEN NULL
        ELSE (SELECT format('%%I.%%I', s.nspname, o.collname) FROM pg_collation o
            JOIN pg_namespace s ON s.oid = o.collnamespace WHERE o.oid = a.attcollation) END
FROM pg_index i
CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, n)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
JOIN pg_type t ON t.oid = a.atttypid
WHERE i.indrelid = %s AND k.n <= i.indnkeyatts AND CASE WHEN %s = 'i' THEN i.indisreplident ELSE i.indisprimary END
ORDER BY k.n"""
_COLUMNS = """
SELECT attname FROM pg_attribute
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"""
_CHILDREN = """
SELECT n.nspname || '.' || c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE i.inhparent = %s AND c.relkind = 'r' ORDER BY 1"""
_NUMBERS = frozenset({"smallint", "integer", "bigint"})
_PUBLISHED = """
SELECT p.schemaname || '.' || p.tablename, to_jsonb(p) -> 'attnames', to_jsonb(p) ->> 'rowfilter'
FROM pg_publication_tables p WHERE p.pubname = %s"""


@dataclass(frozen=True)
class KeyColumn:
    """A column of a key, with its type and its order, as SQL writes them."""

    name: str
    type: str
    #: None: that of its type.
    collation: str | None


@dataclass(frozen=True)
class LoggedTable:
    """A table whose changes are read."""

    oid: int
    schema: str
    name: str
    #: ``d`` for the primary key, ``f`` for the whole row, ``i`` for an index, ``n`` for nothing.
    identity: str
    is_partitioned: bool
    #: What rows are found by; empty if there is no key.
    key: tuple[KeyColumn, ...]
    #: Tables that inherit from it, and are no partitions. Their changes come under their own names.
    children: tuple[str, ...]

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def sql_name(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    @property
    def sql_rows(self) -> sql.Composed:
        """The relation that its rows are read from: those whose changes are in the log under its name, and no more."""
        return sql.SQL("{}" if self.is_partitioned else "ONLY {}").format(self.sql_name)


def find_table(connection: Connection, parts: Sequence[str]) -> LoggedTable:
    """The table. Raises InvalidArgument if there is none."""
    row = connection.execute(_TABLE, (sql.Identifier(*parts).as_string(connection),)).fetchone()
    if row is None:
        advice = "There is no such table. Names are taken as they are written."
        raise InvalidArgument("tables", ".".join(parts), advice)
    oid, schema, name, identity, kind = row
    if kind not in ("r", "p"):
        advice = "It is no table, and the log has changes of tables only. Name those that it is made of."
        raise InvalidArgument("tables", ".".join(parts), advice)
    key = [KeyColumn(*column) for column in connection.execute(_KEY, (oid, identity)).fetchall()]
    children = [] if kind == "p" else connection.execute(_CHILDREN, (oid,)).fetchall()
    return LoggedTable(oid, schema, name, identity, kind == "p", tuple(key), tuple(child for (child,) in children))


def check_identity(table: LoggedTable, is_loaded: bool) -> None:
    """Refuse a table whose changes do not name their rows: publishing it would make its updates fail."""
    if table.identity == "n" or (table.identity == "d" and not table.key):
        advice = (
            "It has no replica identity: published, its updates and deletes would fail. Give it a primary key, or "
            "ALTER TABLE … REPLICA IDENTITY FULL."
        )
        raise InvalidArgument("tables", table.full_name, advice)
    if is_loaded and not table.key:
        advice = "It has no primary key to load it by. Give it one, or leave out the first load: snapshot=False."
        raise InvalidArgument("tables", table.full_name, advice)


def check_children(tables: list[LoggedTable]) -> None:
    """Refuse a table from which others inherit that are not named: a query has their rows, and its log has not."""
    named = {table.full_name for table in tables}
    for table in tables:
        missing = [name for name in table.children if name not in named]
        if missing:
            advice = (
                f"{', '.join(missing)} inherit from it, and their changes come under their own names. Name them too; "
                "each then has its own rows alone."
            )
            raise InvalidArgument("tables", table.full_name, advice)


def check_readable(connection: Connection, table: LoggedTable) -> None:
    """Refuse a table whose rows this role may not read, or not all of them: the log has them all."""
    ((is_hidden,),) = connection.execute("SELECT row_security_active(%s::oid)", (table.oid,)).fetchall()
    if is_hidden:
        advice = (
            "Row security hides rows of it from this role, which the log has: the first load would lack them. Use a "
            "role with BYPASSRLS, or leave out the first load: snapshot=False."
        )
        raise InvalidArgument("tables", table.full_name, advice)
    names = [sql.Identifier(name) for (name,) in connection.execute(_COLUMNS, (table.oid,)).fetchall()]
    statement = sql.SQL("SELECT {} FROM {} LIMIT 0").format(sql.SQL(", ").join(names), table.sql_rows)
    try:
        connection.execute(statement)
    except psycopg.errors.InsufficientPrivilege as error:
        advice = f"It cannot be loaded: {str(error).strip()}. GRANT SELECT ON it to this role."
        raise InvalidArgument("tables", table.full_name, advice) from None


def published_columns(connection: Connection, publication: str, table: LoggedTable) -> list[str]:
    """The columns of a table whose changes are published."""
    names = [name for (name,) in connection.execute(_COLUMNS, (table.oid,)).fetchall()]
    listed = {full: columns for full, columns, _ in connection.execute(_PUBLISHED, (publication,)).fetchall()}
    among = listed.get(table.full_name)
    return [name for name in names if among is None or name in among]


def ensure_publication(connection: Connection, name: str, tables: list[LoggedTable], is_loaded: bool) -> None:
    """Make the publication, if it is not there; else see that it has all tables, whole."""
    if not connection.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", (name,)).fetchall():
        create = sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = {})")
        root = sql.SQL("true" if any(table.is_partitioned for table in tables) else "false")
        names = sql.SQL(", ").join(table.sql_name for table in tables)
        connection.execute(create.format(sql.Identifier(name), names, root))
        return
    published = {full: where for full, _, where in connection.execute(_PUBLISHED, (name,)).fetchall()}
    for table in tables:
        if table.full_name not in published:
            there = ", ".join(sorted(published)) or "no tables"
            advice = f"It has {there}. ALTER PUBLICATION … ADD TABLE {table.full_name}."
            if table.is_partitioned:
                advice += " Of a partitioned table, with SET (publish_via_partition_root = true)."
            raise InvalidArgument("publication", name, advice)
        if is_loaded and published[table.full_name] is not None:
            advice = f"It has a filter on {table.full_name}, which the first load does not know. Use another one."
            raise InvalidArgument("publication", name, advice)
    operations = "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate FROM pg_publication WHERE pubname = %s"
    if is_loaded and not connection.execute(operations, (name,)).fetchall()[0][0]:
        advice = "It leaves out some kinds of changes, so a first load would not be kept up to date. Use another one."
        raise InvalidArgument("publication", name, advice)


@dataclass(frozen=True)
class Page:
    """Rows of the first load, and what they have seen."""

    columns: list[tuple[str, int]]
    rows: list[list[bytes | None]]
    keys: list[Key]
    snapshot: str
    #: A place in the log that was written after they were read.
    high: int
    #: When they were read, in microseconds since 1970.
    read_at: int


def read_page(connection: Connection, publication: str, table: LoggedTable, after: Key | None, limit: int) -> Page:
    """The next rows of a table in the order of its key, in one snapshot."""
    names = published_columns(connection, publication, table)
    order = sql.SQL(", ").join(sql.Identifier(column.name) for column in table.key)
    least: sql.Composable = sql.SQL("true")
    if after is not None:
        least = sql.SQL("({}) > ({})").format(order, _casts(table, [sql.Placeholder()] * len(table.key)))
    statement = sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT {}").format(
        sql.SQL(", ").join(map(sql.Identifier, names)), table.sql_rows, least, order, sql.Literal(limit)
    )
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        ((snapshot, read_at),) = connection.execute(
            "SELECT pg_current_snapshot()::text, (extract(epoch FROM now()) * 1000000)::bigint"
        ).fetchall()
        with connection.cursor() as cursor:
            cursor.execute(statement, after or [])
            result, description = cursor.pgresult, cursor.description or []
    assert result is not None
    fields = range(result.nfields)
    rows = [[result.get_value(row, column) for column in fields] for row in range(result.ntuples)]
    places = [names.index(column.name) for column in table.key]
    keys = [[(row[place] or b"").decode() for place in places] for row in rows]
    # It is committed by itself, and so the log is written up to here.
    ((high,),) = connection.execute("SELECT pg_logical_emit_message(true, 'moorline', '')::text").fetchall()
    columns = [(column.name, column.type_code) for column in description]
    return Page(columns, rows, keys, snapshot, lsn_number(high), read_at)


def compare_keys(
    connection: Connection, table: LoggedTable, keys: list[Key], last: Key | None, start: Key | None
) -> list[tuple[bool, bool]]:
    """For each key: is it not after ``last``; is it after ``start``? None lies before all keys.

    The order of numbers is known; that of others is PostgreSQL's matter.
    """
    if all(column.type in _NUMBERS for column in table.key):
        numbered = [list(map(int, key)) for key in keys]
        end, begin = (None if bound is None else list(map(int, bound)) for bound in (last, start))
        return [(end is not None and key <= end, begin is None or key > begin) for key in numbered]
    numbers = range(len(table.key))
    columns = [sql.Identifier(f"c{n}") for n in numbers]
    arrays = sql.SQL(", ").join(sql.SQL("%s::text[]") for _ in numbers)
    own = _casts(table, columns)

    def bound(key: Key | None, comparison: str, otherwise: str) -> sql.Composable:
        if key is None:
            return sql.SQL(otherwise)
        values = _casts(table, [sql.Placeholder()] * len(table.key))
        return sql.SQL(f"({{}}) {comparison} ({{}})").format(own, values)

    statement = sql.SQL("SELECT {}, {} FROM unnest({}) WITH ORDINALITY AS k({}, n) ORDER BY n").format(
        bound(last, "<=", "false"), bound(start, ">", "true"), arrays, sql.SQL(", ").join(columns)
    )
    parameters: list[Any] = [*(last or ()), *(start or ()), *([key[n] for key in keys] for n in numbers)]
    found = connection.execute(statement, parameters).fetchall()
    return [(is_up_to_last, is_after_start) for is_up_to_last, is_after_start in found]


def _casts(table: LoggedTable, values: Sequence[sql.Composable]) -> sql.Composed:
    casts = []
    for column, value in zip(table.key, values, strict=True):
        # Both are the server's own words.
        cast = sql.SQL("CAST({} AS {})").format(value, sql.SQL(column.type))
        if column.collation is not None:
            cast = sql.SQL("{} COLLATE {}").format(cast, sql.SQL(column.collation))
        casts.append(cast)
    return sql.SQL(", ").join(casts)
