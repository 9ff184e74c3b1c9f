"""The changes of a table and its publication since they were last seen: nothing may leave out changes in silence.

pgoutput sends what the publication has, under the name that a table has, and says nothing of what it leaves out. So
everything that its silence could come from is noted in the position when a table is first read, by the numbers that
PostgreSQL gives to things, and looked at again at every start and every few seconds:

    the table was dropped, or its name is another table's     fails
    it has another name                                       noticed; it is read on, by its number
    it left the publication, for however short a time         fails: changes are missing from the log
    the publication was altered and is as it was              noticed: kinds of changes may be missing
    partitions came or went, columns were dropped and remade  noticed: what they held is not in the log
    the key that it is loaded by has changed                  fails, while it is being loaded

Numbers are what tells: a table that was dropped and created has another one, and so has its entry in a publication.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from psycopg import sql

from moorline.connectors.postgres.changes.position import Position, Seen, Shape
from moorline.connectors.postgres.changes.tables import LoggedTable, find_table
from moorline.connectors.postgres.connection import Connection
from moorline.errors import StorageError

if TYPE_CHECKING:
    from moorline.connectors.postgres.changes.follower import ChangesSettings

_LOOK = """
WITH publication AS (SELECT *, xmin::text AS version FROM pg_publication WHERE pubname = {publication}),
published AS MATERIALIZED (SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = {publication})
SELECT c.oid::bigint, n.nspname || '.' || c.relname, p.version,
    concat_ws(' ', p.oid, CASE WHEN p.puballtables THEN 'all' END, {namespaces}, (
        SELECT string_agg(r.oid::text, ' ' ORDER BY r.oid) FROM pg_publication_rel r
        WHERE r.prpubid = p.oid AND r.prrelid IN (SELECT c.oid UNION SELECT relid FROM pg_partition_ancestors(c.oid))
    )),
    (n.nspname, c.relname) IN (SELECT schemaname, tablename FROM published),
    p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate,
    (SELECT jsonb_object_agg(a.attname, a.attnum) FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    ARRAY(SELECT t.relid::oid::bigint FROM pg_partition_tree(c.oid) t WHERE t.isleaf AND c.relkind = 'p'
        UNION SELECT i.inhrelid::bigint FROM pg_inherits i WHERE i.inhparent = c.oid AND c.relkind = 'r' ORDER BY 1)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN publication p ON true
WHERE c.oid = ANY({oids})"""
#: Publications of whole schemas.
_NAMESPACES = """
(SELECT string_agg('schema ' || s.oid, ' ') FROM pg_publication_namespace s
    WHERE s.pnpubid = p.oid AND s.pnnspid = c.relnamespace)"""
#: Kinds of notices that are about what rows look like: ``on_schema_change`` says what becomes of them.
OF_THE_SCHEMA = frozenset({"columns", "identity", "remade"})
_TAKEN = """
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname || '.' || c.relname = %s)"""
_ADVICE = (
    "To have all of it, drop the slot and start the job without its checkpoints. Or leave the table out of tables= for "
    "one start: it is loaded anew when it is back"
)


@dataclass(frozen=True)
class Look:
    """A table and its publication, as they are now."""

    name: str
    #: Of the publication's row; None: there is no publication of that name.
    version: str | None
    entry: str
    is_published: bool
    is_whole: bool
    columns: dict[str, int]
    parts: list[int]


def reconcile(
    connection: Connection, settings: ChangesSettings, tables: dict[str, LoggedTable], position: Position
) -> tuple[Position, dict[str, str]]:
    """The position with what the tables are now, and what is worth a notice. Raises if changes may be missing."""
    position = _by_number(position, tables)
    found = _look(connection, settings.publication, [table.oid for table in tables.values()])
    notices: dict[str, str] = {}
    seen = {}
    for name, table in tables.items():
        now, before = found.get(table.oid), position.tables.get(name)
        cause = _broken(settings, name, table, before, now)
        if cause is None and before is not None and position.load is not None and position.load.table == name:
            cause = _other_key(connection, name, before)
        if cause is not None or now is None:
            raise StorageError(settings.where, "go on with the changes of", f"{cause}. {_ADVICE}", can_pass=False)
        if now.name != name:
            if connection.execute(_TAKEN, (name,)).fetchall()[0][0]:
                cause = f"{name} is another table now; the one whose changes were read is called {now.name}"
                raise StorageError(settings.where, "go on with the changes of", f"{cause}. {_ADVICE}", can_pass=False)
            notices[f"name of {name}"] = f"{name} is called {now.name} now. Name it so at the next start"
        key = [(column.name, column.type, column.collation) for column in table.key]
        seen[name] = Seen(table.oid, key, now.entry, now.version or "", now.columns, now.parts)
        if before is not None:
            notices.update(_notices(settings, name, before, seen[name]))
    return (position if seen == position.tables else replace(position, tables=seen)), notices


def _by_number(position: Position, tables: dict[str, LoggedTable]) -> Position:
    """Keep what is known of a table under the name that it has now.

    Tables that are not read any more are forgotten. Their changes are passed over, so they are loaded anew should they
    come back.
    """
    old = {seen.oid: name for name, seen in position.tables.items()}
    names = {name: old.get(table.oid, name) for name, table in tables.items()}
    known = {*position.tables, *position.columns, *([] if position.load is None else position.load.done)}
    if all(name == before for name, before in names.items()) and known <= set(tables):
        return position
    new = {before: name for name, before in names.items()}
    load = position.load
    if load is not None:
        table = None if load.table is None else new.get(load.table, load.table)
        load = replace(load, done=[new[name] for name in load.done if name in new], table=table)

    def kept(known: dict[str, Any]) -> dict[str, Any]:
        return {name: known[before] for name, before in names.items() if before in known}

    return replace(
        position,
        load=load,
        columns=kept(position.columns),
        shapes=kept(position.shapes),
        tables=kept(position.tables),
    )


def _look(connection: Connection, publication: str, oids: list[int]) -> dict[int, Look]:
    """The tables that are there, by their numbers."""
    has_namespaces = connection.info.server_version >= 150_000
    statement = sql.SQL(_LOOK).format(
        publication=sql.Literal(publication),
        namespaces=sql.SQL(_NAMESPACES if has_namespaces else "NULL"),
        oids=sql.Literal(oids),
    )
    rows: list[tuple[Any, ...]] = connection.execute(statement).fetchall()
    return {oid: Look(*rest) for oid, *rest in rows}


def _broken(
    settings: ChangesSettings, name: str, table: LoggedTable, before: Seen | None, now: Look | None
) -> str | None:
    """The reason why changes of a table may be missing; None if they are not."""
    publication = settings.publication
    if before is not None and before.oid != table.oid:
        return f"{name} was dropped and made anew, or another table has taken its name"
    if now is None:
        return f"{name} was dropped"
    if now.version is None:
        return f"publication {publication} is gone, and with it the changes of {name}"
    if not now.is_published:
        return f"publication {publication} does not have {name} any more: the log lacks its changes"
    if settings.snapshot and not now.is_whole:
        return f"publication {publication} leaves out some kinds of changes now"
    if before is not None and before.entry != now.entry:
        return (
            f"{name} was taken out of publication {publication} and put back, or what is published of it was changed: "
            "the log may lack changes"
        )
    return None


def _other_key(connection: Connection, name: str, before: Seen) -> str | None:
    table = find_table(connection, name.split(".", 1))
    key = [(column.name, column.type, column.collation) for column in table.key]
    if key == before.key:
        return None
    return f"the key of {name} has changed while it was being loaded in its order"


def _notices(settings: ChangesSettings, name: str, before: Seen, now: Seen) -> dict[str, str]:
    found = {}
    if before.version != now.version:
        found["publication"] = (
            f"publication {settings.publication} was altered. It is as it was, but meanwhile the log may lack changes"
        )
    remade = [column for column, number in now.columns.items() if before.columns.get(column, number) != number]
    if remade:
        found[f"remade columns of {name}"] = (
            f"columns of {name} are others than they were: {', '.join(remade)}. Their values in rows that have not "
            "changed since are not in the log"
        )
    if before.parts != now.parts:
        found[f"parts of {name}"] = (
            f"partitions of {name}, or tables that inherit from it, have come or gone. Rows that did so with them are "
            "not in the log"
        )
    return found


def differences(
    table: str, before: tuple[list[tuple[str, int]], Shape], now: tuple[list[tuple[str, int]], Shape]
) -> dict[str, str]:
    """The differences of two descriptions of a table in the log that are worth a notice, by kind."""
    (known, shape), (columns, new_shape) = before, now
    found = {}
    if known != columns or shape.modifiers != new_shape.modifiers:
        names_before, names = (", ".join(name for name, _ in side) for side in (known, columns))
        text = f"the columns of {table} have changed: they were ({names_before}) and are ({names})"
        if names_before == names:
            text = f"the types of columns of {table} have changed"
        found[f"columns of {table}"] = text
    if (shape.identity, shape.key) != (new_shape.identity, new_shape.key):
        found[f"identity of {table}"] = (
            f"the replica identity of {table} has changed: of old rows ({', '.join(shape.key)}) were sent, and "
            f"({', '.join(new_shape.key)}) are"
        )
    return found
