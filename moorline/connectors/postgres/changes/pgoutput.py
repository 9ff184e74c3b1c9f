"""The messages of PostgreSQL's logical replication (plugin pgoutput, protocol version 1), from bytes.

    B  begin      commit LSN, time, transaction        I  insert    relation, new row
    C  commit     flags, commit LSN, end, time         U  update    relation, old key or row (maybe), new row
    R  relation   columns of a table                   D  delete    relation, old key or row
    T  truncate   relations                            O, Y, M      origin, type, message: passed over

A row is the number of its columns, and for each of them one of

    n  null      u  large and unchanged, so not sent      t  a text: its length and its bytes

A transaction comes whole, when it is committed, and in the order of commits. All numbers are big endian, a LSN has 8
bytes, a time is in microseconds since 2000. Names end with a zero. See "Logical Replication Message Formats" in
PostgreSQL's documentation.
"""

from __future__ import annotations

import struct
from types import EllipsisType
from typing import NamedTuple

#: A field of a row: its text, None for null, or ``...`` for one that was not sent because it is large and unchanged.
Field = bytes | EllipsisType | None
Fields = list[Field]


class Malformed(ValueError):
    """The bytes are not a message; the text says why."""


class RelationColumn(NamedTuple):
    """A column of a table, as the log has it."""

    name: str
    type: int
    #: Is it part of the replica identity?
    is_key: bool
    #: Of the type, such as its length; -1 for none.
    modifier: int = -1


class Begin(NamedTuple):
    """The begin of a transaction, which is committed."""

    commit_lsn: int
    #: Microseconds since 2000.
    committed: int
    xid: int


class Commit(NamedTuple):
    """The end of a transaction."""

    commit_lsn: int
    end_lsn: int


class Relation(NamedTuple):
    """A table. Sent before its first row, and again after it has changed."""

    oid: int
    schema: str
    name: str
    #: ``d`` for the primary key, ``f`` for the whole row, ``i`` for an index, ``n`` for nothing.
    identity: str
    columns: tuple[RelationColumn, ...]

    @property
    def table(self) -> str:
        return f"{self.schema}.{self.name}"


class Insert(NamedTuple):
    """A row was added."""

    relation: int
    new: Fields


class Update(NamedTuple):
    """A row was changed."""

    relation: int
    #: ``K`` if :attr:`old` has the fields of the key alone, ``O`` if it has all, and nothing if there is none.
    old_kind: str
    old: Fields | None
    new: Fields


class Delete(NamedTuple):
    """A row was removed."""

    relation: int
    old_kind: str
    old: Fields


class Truncate(NamedTuple):
    """All rows of some tables were removed."""

    relations: tuple[int, ...]


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate

_begin = struct.Struct("!QqI").unpack_from
_commit = struct.Struct("!BQQ").unpack_from
_oid = struct.Struct("!I").unpack_from
_count = struct.Struct("!H").unpack_from
_length = struct.Struct("!i").unpack_from
_column = struct.Struct("!Ii").unpack_from


def decode(data: bytes) -> Message | None:
    """The message; None for one of a kind that is of no account here.

    >>> decode(b"B" + struct.pack("!QqI", 151_906_760, 848_280_984_956_000, 752)).xid
    752
    """
    try:
        match data[:1]:
            case b"I":
                _expect(data, 5, b"N")
                return Insert(_relation_of(data), _fields(data, 6)[0])
            case b"U":
                return _update(data)
            case b"D":
                kind = _expect(data, 5, b"KO")
                return Delete(_relation_of(data), kind, _fields(data, 6)[0])
            case b"B":
                return Begin(*_begin(data, 1))
            case b"C":
                _, commit_lsn, end_lsn = _commit(data, 1)
                return Commit(commit_lsn, end_lsn)
            case b"R":
                return _relation(data)
            case b"T":
                (number,) = _oid(data, 1)
                return Truncate(struct.unpack_from(f"!{number}I", data, 6))
            case b"O" | b"Y" | b"M":
                return None
    except (struct.error, UnicodeDecodeError) as error:
        raise Malformed(f"a message {data[:1]!r} of {len(data)} bytes is cut off or broken: {error}") from None
    raise Malformed(f"there is no message {data[:1]!r}")


def _update(data: bytes) -> Update:
    kind, at = _expect(data, 5, b"KON"), 6
    old = None
    if kind != "N":
        old, at = _fields(data, at)
        _expect(data, at, b"N")
        at += 1
    return Update(_relation_of(data), "" if old is None else kind, old, _fields(data, at)[0])


def _relation_of(data: bytes) -> int:
    (oid,) = _oid(data, 1)
    return int(oid)


def _expect(data: bytes, at: int, kinds: bytes) -> str:
    kind = data[at : at + 1]
    if not kind or kind not in kinds:
        raise Malformed(f"a message {data[:1]!r} has {kind!r} in place of one of {kinds!r}")
    return kind.decode()


def _fields(data: bytes, at: int) -> tuple[Fields, int]:
    """The fields of a row, and where it ends."""
    (number,) = _count(data, at)
    at += 2
    fields: Fields = []
    for _ in range(number):
        kind = data[at : at + 1]
        at += 1
        if kind == b"t":
            (length,) = _length(data, at)
            at += 4
            if not 0 <= length <= len(data) - at:
                raise Malformed(f"a field of {length} bytes is longer than its message")
            fields.append(data[at : at + length])
            at += length
        elif kind == b"n":
            fields.append(None)
        elif kind == b"u":
            fields.append(...)
        else:
            raise Malformed(f"there is no field {kind!r}")
    return fields, at


def _relation(data: bytes) -> Relation:
    (oid,) = _oid(data, 1)
    schema, at = _name(data, 5)
    name, at = _name(data, at)
    identity = data[at : at + 1].decode()
    (number,) = _count(data, at + 1)
    at += 3
    columns = []
    for _ in range(number):
        flags = data[at : at + 1]
        column, at = _name(data, at + 1)
        type, modifier = _column(data, at)
        at += 8
        columns.append(RelationColumn(column, type, flags == b"\x01", modifier))
    # An empty name stands for the catalogue's schema.
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _name(data: bytes, at: int) -> tuple[str, int]:
    end = data.find(b"\0", at)
    if end < 0:
        raise Malformed("a name has no end")
    return data[at:end].decode(), end + 1
