"""Records as rows of a PostgreSQL table: encoded for COPY, sorted by the columns that they have.

A record need not have all columns: one that is missing gets its default, or stays as it is where a row is replaced. A
column that is None is null. Whatever does not fit the table is refused by name, and nothing of it is dropped.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import pyarrow as pa

from moorline.connectors.postgres.table import Column, TableShape
from moorline.connectors.postgres.values import NULL, Encode, ValueRefused, encoder
from moorline.connectors.row_changes import UNCHANGED
from moorline.connectors.row_tables import UnfitRecord, as_row

Mode = Literal["append", "upsert", "apply"]
Kind = Literal["insert", "delete", "upsert", "update"]
#: Rows are compressed in pieces of so many bytes.
CHUNK_BYTES = 1 << 20
CODEC = "zstd"
#: A piece without rows.
NO_ROWS = (0, pa.compress(b"", codec=CODEC, asbytes=True))
_count = struct.Struct("!h").pack


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows of one kind that have the same columns."""

    kind: Kind
    columns: list[str]
    #: The types of the columns, as they were when the rows were encoded.
    types: list[str]
    rows: int
    #: The size of each piece before it was compressed, and the piece.
    chunks: list[tuple[int, bytes]]


@dataclass(frozen=True)
class Target:
    """The table as the sink sees it."""

    #: For people.
    where: str
    shape: TableShape
    mode: Mode
    key: tuple[str, ...]
    #: The columns that may be written; None: all.
    columns: tuple[str, ...] | None

    @property
    def writable(self) -> dict[str, Column]:
        """The columns that records may have."""
        columns = self.shape.columns
        if self.columns is not None:
            return {name: columns[name] for name in columns if name in self.columns}
        return {name: column for name, column in columns.items() if not column.is_generated}


@dataclass
class RowGroup:
    """Rows with the same columns."""

    names: tuple[str, ...]
    #: By column: the way to its field, and whether it may be null.
    encoders: list[tuple[str, Encode, bool]]
    #: Positions of the key's columns.
    key: list[int]
    rows: list[bytes] = field(default_factory=list)
    size: int = 0
    count: int = 0
    chunks: list[tuple[int, bytes]] = field(default_factory=list)

    def fields(self, row: Mapping[str, Any]) -> list[bytes]:
        return [
            NULL if may_be_null and row[name] is None else encode(row[name])
            for name, encode, may_be_null in self.encoders
        ]

    def add(self, fields: list[bytes]) -> None:
        """Append a row."""
        self.add_row(len(fields), b"".join(fields))

    def add_row(self, count: int, fields: bytes) -> None:
        """Append a row of so many fields, which are in one piece."""
        data = _count(count) + fields
        self.rows.append(data)
        self.size += len(data)
        if self.size >= CHUNK_BYTES:
            self.compress()

    def compress(self) -> None:
        data, count = b"".join(self.rows), len(self.rows)
        self.chunks.append((len(data), pa.compress(data, codec=CODEC, asbytes=True)))
        self.rows, self.size, self.count = [], 0, self.count + count

    def part(self, kind: Kind, shape: TableShape) -> Part:
        """The rows so far, and begin anew."""
        if self.rows:
            self.compress()
        types = [shape.columns[name].type.name for name in self.names]
        part = Part(kind, list(self.names), types, self.count, self.chunks)
        self.chunks, self.count = [], 0
        return part


class RowEncoder:
    """Records as rows of fields, sorted by the columns that they have."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._writable = target.writable
        self._groups: dict[tuple[str, ...], RowGroup] = {}
        #: By the names of a record in its own order.
        self._known: dict[tuple[str, ...], RowGroup] = {}

    @property
    def groups(self) -> list[RowGroup]:
        return list(self._groups.values())

    def row_of(self, record: Any) -> Mapping[str, Any]:
        row = record if type(record) is dict else as_row(record)
        if row is None:
            advice = "Map the records to dicts, dataclasses or namedtuples."
            raise self.unfit(record, f"a {type(record).__name__} has no column names", advice)
        return row

    def group_of(self, row: Mapping[str, Any], is_partial: bool = False) -> RowGroup:
        names = tuple(row)
        group = None if is_partial else self._known.get(names)
        if group is None:
            group = self.group(names, row, is_partial)
            if not is_partial:
                self._known[names] = group
        return group

    def group(self, names: tuple[str, ...], row: Any, is_partial: bool = False) -> RowGroup:
        """The group of rows with these columns. Raises UnfitRecord if there can be no such row."""
        for name in names:
            if name not in self._writable:
                raise self._unknown(name, row)
        columns = [column for name, column in self._writable.items() if name in names]
        if not is_partial:
            missing = [c.name for c in self._required() if c.name not in names]
            if missing:
                cause = f"it has no {', '.join(map(repr, missing))}, which cannot be null and has no default"
                raise self.unfit(row, cause)
        ordered = tuple(column.name for column in columns)
        if ordered not in self._groups:
            self._groups[ordered] = self._new_group(columns, row)
        return self._groups[ordered]

    def _new_group(self, columns: list[Column], row: Any) -> RowGroup:
        encoders: list[tuple[str, Encode, bool]] = []
        for column in columns:
            encode = encoder(column.type)
            if encode is None:
                raise self.unfit(
                    row, f"its column {column.name!r} is {column.declared}, which write_postgres cannot write"
                )
            encoders.append((column.name, encode, not column.is_not_null and column.name not in self._target.key))
        names = tuple(column.name for column in columns)
        return RowGroup(names, encoders, [names.index(name) for name in self._target.key if name in names])

    def _required(self) -> list[Column]:
        columns = self._target.shape.columns.values()
        key = self._target.key
        return [c for c in columns if c.name in key or (c.is_not_null and not c.has_default and not c.is_generated)]

    def _unknown(self, name: Any, row: Any) -> UnfitRecord:
        column = self._target.shape.columns.get(name) if isinstance(name, str) else None
        if column is None:
            return self.unfit(row, f"the table has no column {name!r}")
        if column.is_generated:
            return self.unfit(row, f"the values of its column {name!r} are made by PostgreSQL")
        return self.unfit(row, f"its column {name!r} is not among columns=")

    def fields(self, group: RowGroup, row: Mapping[str, Any]) -> list[bytes]:
        try:
            return group.fields(row)
        except ValueRefused:
            pass
        for name, encode, may_be_null in group.encoders:
            value = row[name]
            if value is None and may_be_null:
                continue
            column = self._target.shape.columns[name]
            if value is None:
                raise self.unfit(row, f"its column {name!r} is part of the key or NOT NULL, and it has none there")
            if value is UNCHANGED:
                advice = 'Write changes as they come with mode="apply".'
                raise self.unfit(row, f"its column {name!r} is UNCHANGED", advice)
            try:
                encode(value)
            except ValueRefused as error:
                raise self.unfit(row, f"its column {name!r} is {column.declared}: {error}") from None
        raise AssertionError("the same row was refused a moment ago")

    def unfit(self, record: Any, cause: str, advice: str = "") -> UnfitRecord:
        columns = ", ".join(f"{c.name} {c.declared}" for c in self._writable.values())
        advice = advice or f"The table takes the columns ({columns}). Map the records to it, or change it."
        return UnfitRecord(self._target.where, f"{record!r:.200}", cause, advice)
