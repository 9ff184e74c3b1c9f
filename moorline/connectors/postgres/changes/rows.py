"""Fields of the log and of the first load as rows: dicts of Python values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import Format

from moorline.connectors.postgres.changes.pgoutput import Delete, Fields, Insert, Malformed, Relation, Update
from moorline.connectors.postgres.connection import Connection
from moorline.connectors.postgres.table import read_types
from moorline.connectors.row_changes import UNCHANGED

Row = dict[str, Any]


class Undecodable(ValueError):
    """A row has a value that Python has not; the text names it."""


class TypeNames:
    """The types that types of columns stand on: psycopg knows those that every PostgreSQL has."""

    def __init__(self) -> None:
        self._bases: dict[int, int] = {}

    def learn(self, connection: Connection, oids: Iterable[int]) -> None:
        """Ask the server about the ones that are not known."""
        unknown = [oid for oid in oids if not self.is_known(oid)]
        if unknown:
            found = connection.execute("SELECT oid::bigint FROM pg_type WHERE oid = ANY(%s)", (unknown,)).fetchall()
            there = [oid for (oid,) in found]
            # One that is gone again: its values come as text.
            self._bases.update({oid: oid for oid in unknown})
            self._bases.update({oid: base.oid for oid, (base, _, _) in read_types(connection, there).items()})

    def is_known(self, oid: int) -> bool:
        return oid in self._bases or psycopg.adapters.types.get(oid) is not None

    def base(self, oid: int) -> int:
        return self._bases.get(oid, oid)


class RowDecoder:
    """Rows of a table with certain columns."""

    def __init__(self, columns: Iterable[tuple[str, int]], types: TypeNames) -> None:
        self.names = [name for name, _ in columns]
        # Without a connection: times are in UTC, as the server was told to write them.
        transformer = Transformer()
        self._loads = [transformer.get_loader(types.base(oid), Format.TEXT).load for _, oid in columns]

    def row(self, fields: Fields) -> Row:
        """All fields of a row."""
        if len(fields) != len(self.names):
            raise Undecodable(f"a row has {len(fields)} fields, and the table {len(self.names)} columns")
        try:
            return {
                name: None if field is None else UNCHANGED if field is ... else load(field)
                for name, load, field in zip(self.names, self._loads, fields)
            }
        except (psycopg.Error, ValueError, ArithmeticError) as error:
            raise Undecodable(self._culprit(fields) or str(error)) from None

    def _culprit(self, fields: Fields) -> str:
        for name, load, field in zip(self.names, self._loads, fields):
            if isinstance(field, bytes):
                try:
                    load(field)
                except (psycopg.Error, ValueError, ArithmeticError) as error:
                    return f"its column {name!r} is {field[:80].decode(errors='replace')!r}: {error}"
        return ""


class ChangeDecoder:
    """Changes of one table, as its :class:`Relation` describes it."""

    def __init__(self, relation: Relation, types: TypeNames, key: Sequence[str] = ()) -> None:
        self.relation = relation
        names = [column.name for column in relation.columns]
        #: Where the fields of the key stand that the table is loaded by.
        self._key_places = [names.index(name) for name in key if name in names]
        self._rows = RowDecoder([(c.name, c.type) for c in relation.columns], types)
        self._keys = [c.name for c in relation.columns if c.is_key]

    def keys(self, message: Insert | Update | Delete) -> tuple[list[str] | None, list[str] | None]:
        """The old and the new key of a row, as they stand in the log."""
        if isinstance(message, Insert):
            return None, self._key(message.new)
        if isinstance(message, Delete):
            return self._key(message.old), None
        new = message.new
        if message.old is not None:
            new = [before if after is ... else after for before, after in zip(message.old, new, strict=True)]
        key = self._key(new)
        return key if message.old is None else self._key(message.old), key

    def _key(self, fields: Fields) -> list[str]:
        key = [fields[place] for place in self._key_places]
        if not all(isinstance(field, bytes) for field in key):
            raise Malformed(f"a row of {self.relation.table} has no key: {key!r:.80}")
        return [field.decode() for field in key if isinstance(field, bytes)]

    def old(self, kind: str, fields: Fields | None) -> Row | None:
        """The row before. Of a key, the fields of other columns are null, whatever they were: they are left out."""
        if fields is None:
            return None
        row = self._rows.row(fields)
        return row if kind == "O" else {name: row[name] for name in self._keys}

    def new(self, fields: Fields, old_kind: str = "", old: Fields | None = None) -> Row:
        """The row after. What was not sent is taken from the whole row before, if there is one."""
        if old_kind == "O" and old is not None and ... in fields:
            fields = [before if after is ... else after for before, after in zip(old, fields, strict=True)]
        return self._rows.row(fields)
