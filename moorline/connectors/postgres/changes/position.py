"""The position in a table's changes, as it stands in a snapshot: how far in the log, and how far in the first load."""

from __future__ import annotations

from typing import Any

import msgspec

from moorline.errors import SnapshotCorrupt

#: The fields of a key, as PostgreSQL writes them.
Key = list[str]


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The stretch of the log in which there may be changes that a page of the first load has already seen."""

    #: Its rows have keys after this one; None: from the first one on.
    start: Key | None
    #: What the page has seen, as ``pg_current_snapshot()`` says.
    snapshot: str
    #: After this LSN there are no such changes any more.
    high: int


class Load(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of the first load."""

    #: Tables that are loaded.
    done: list[str] = []
    #: The one that is being loaded.
    table: str | None = None
    #: The last key that was read; None: none yet.
    after: Key | None = None
    #: Was the last page of the table read?
    is_whole: bool = False
    window: Window | None = None
    #: Transactions whose changes were passed over, and which the last page has not seen.
    unseen: list[int] = []


class Seen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table as it was when it was looked at last (``drift.py``). A number tells it from another of its name."""

    oid: int
    #: Name, type and collation of each column that it is loaded by.
    key: list[tuple[str, str, str | None]]
    #: What makes the publication have it, and the version of the publication's own row.
    entry: str
    version: str
    #: Numbers of columns, and of partitions or of tables that inherit from it.
    columns: dict[str, int]
    parts: list[int]


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The shape of a table's rows in the log, beside names and types of columns."""

    #: Which old rows are sent, and the columns that they are found by.
    identity: str
    key: list[str]
    #: Of types: lengths, precisions.
    modifiers: list[int]


class Position(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A place in the changes."""

    #: The identifier of the database cluster: places in its log mean nothing elsewhere.
    system: str
    #: All transactions that end before it were read.
    lsn: int
    #: Of the next transaction, the place of its end, and how many of its changes were read.
    transaction: tuple[int, int] | None = None
    #: None: there is no first load.
    load: Load | None = None
    #: The columns of tables as they were seen last: names and numbers of types.
    columns: dict[str, list[tuple[str, int]]] = {}
    shapes: dict[str, Shape] = {}
    tables: dict[str, Seen] = {}


def to_plain(position: Position) -> Any:
    """As it stands in a snapshot."""
    return msgspec.to_builtins(position)


def from_plain(value: Any) -> Position:
    """A position from a snapshot, if we have written it."""
    try:
        return msgspec.convert(value, Position)
    except msgspec.ValidationError as error:
        raise SnapshotCorrupt("the manifest", f"{value!r:.80} is not a position in a log: {error}") from None


def lsn_text(lsn: int) -> str:
    """As PostgreSQL writes it.

    >>> lsn_text(151_906_456), lsn_number("0/90DE898")
    ('0/90DE898', 151906456)
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)
