"""A table or a query as rows in the order of a key: its ranges, and a page of one at a time.

    range    (after, until]: keys as PostgreSQL writes them, so that no value is changed on the way; after None: from
             the first one on
    page     WHERE key > after AND key <= until ORDER BY key LIMIT n

Numbers, dates and timestamps are divided evenly between the lowest and the highest, which costs two looks into the
index; other keys by how many there are, for which PostgreSQL reads all keys once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from moorline.connectors.postgres.connection import Connection

#: A key as text; None: before the first one.
Bound = str | None

_WHOLE = frozenset({20, 21, 23})
_TIMES = frozenset({1082, 1114, 1184})
#: Keys in text must not depend on the settings of a role or a server.
SETTINGS = """
SELECT set_config('DateStyle', 'ISO, YMD', false), set_config('TimeZone', 'UTC', false),
    set_config('IntervalStyle', 'postgres', false), set_config('extra_float_digits', '1', false),
    set_config('default_transaction_read_only', 'on', false)"""


@dataclass(frozen=True)
class RowsToRead:
    """The rows to be read: a table or a query, its columns, and its key."""

    #: Of a table.
    parts: tuple[str, ...]
    query: str | None
    columns: tuple[str, ...]
    key: str
    #: The type of the key, as SQL writes it, and its number.
    key_type: str
    key_oid: int
    #: Is it known that no key is there twice?
    is_unique: bool

    @property
    def origin(self) -> sql.Composable:
        return origin(self.parts, self.query)

    def ranges(self, connection: Connection, number: int) -> list[tuple[Bound, str]]:
        """About so many ranges, which together are all rows that are there now. None, if there are no rows."""
        if self.key_oid in _WHOLE:
            bounds = self._even_numbers(connection, number)
        elif self.key_oid in _TIMES:
            bounds = self._even_times(connection, number)
        else:
            bounds = self._counted(connection, number)
        unique = list(dict.fromkeys(bounds))
        return list(zip([None, *unique], unique))

    def nulls(self, connection: Connection) -> bool:
        """Are there rows without a key?"""
        return bool(self._run(connection, "SELECT 1 FROM {origin} WHERE {key} IS NULL LIMIT 1"))

    def _even_numbers(self, connection: Connection, number: int) -> list[str]:
        ((low, high),) = self._run(connection, "SELECT min({key})::text, max({key})::text FROM {origin}")
        if low is None:
            return []
        first, last = int(low), int(high)
        return [str(first + (last - first) * n // number) for n in range(1, number)] + [str(last)]

    def _even_times(self, connection: Connection, number: int) -> list[str]:
        statement = """
            SELECT (low + (high - low) * (n::double precision / %(number)s))::{type}::text
            FROM (SELECT min({key}) FILTER (WHERE isfinite({key}))::timestamp AS low,
                    max({key}) FILTER (WHERE isfinite({key}))::timestamp AS high FROM {origin}) AS ends,
                generate_series(1, %(number)s - 1) AS n
            WHERE low IS NOT NULL ORDER BY n"""
        between = [bound for (bound,) in self._run(connection, statement, {"number": number})]
        ((last,),) = self._run(connection, "SELECT max({key})::text FROM {origin}")
        return [] if last is None else [*between, last]

    def _counted(self, connection: Connection, number: int) -> list[str]:
        statement = """
            SELECT unnest(percentile_disc(%(shares)s::double precision[]) WITHIN GROUP (ORDER BY {key}))::text
            FROM {origin}"""
        shares = [n / number for n in range(1, number)] + [1.0]
        found = self._run(connection, statement, {"shares": shares})
        return [bound for (bound,) in found if bound is not None]

    def page(self, cursor: psycopg.Cursor[Any], after: Bound, until: str, has_read: bool, limit: int) -> None:
        """Have the cursor fetch a page; the last column is the key as text.

        ``has_read``: ``after`` is a key that was read, and is read again if it may be there twice.
        """
        least = "" if after is None else "{key} > CAST(%(after)s AS {type}) AND"
        if has_read and not self.is_unique:
            least = least.replace(">", ">=")
        statement = f"""
            SELECT {{columns}}, {{key}}::text AS moorline_key FROM {{origin}}
            WHERE {least} {{key}} <= CAST(%(until)s AS {{type}}) ORDER BY {{key}} LIMIT %(limit)s"""
        cursor.execute(self._sql(statement), {"after": after, "until": until, "limit": limit})

    def _run(self, connection: Connection, statement: str, parameters: dict[str, Any] | None = None) -> list[Any]:
        return connection.execute(self._sql(statement), parameters or {}).fetchall()

    def _sql(self, statement: str) -> sql.Composed:
        names = sql.SQL(", ").join(map(sql.Identifier, self.columns))
        return sql.SQL(statement).format(
            columns=names, key=sql.Identifier(self.key), origin=self.origin, type=sql.SQL(self.key_type)
        )


def origin(parts: Sequence[str], query: str | None) -> sql.Composable:
    """The table or the query in SQL, as something to select from."""
    if query is None:
        return sql.Identifier(*parts)
    # Parameters are written with a percent sign, and the query has none.
    inner = sql.SQL(query.strip().rstrip(";").replace("%", "%%"))
    return sql.SQL("({}) AS moorline_query").format(inner)
