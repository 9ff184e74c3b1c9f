"""Records that say what has become of a row: its removal, or a change that a database reports."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal

from typing_extensions import TypeVar

R_co = TypeVar("R_co", covariant=True, default=Any)


@dataclass(frozen=True)
class Delete(Generic[R_co]):
    """The removal of a row, for sinks that write rows by a key. Only the columns of the key count.

    >>> Delete({"customer": "ada"}).row
    {'customer': 'ada'}
    """

    row: R_co


class Unchanged:
    """The value of a column that the database has not sent, because it is large and was not changed."""

    # Not a member of an enum: sinks write the value that such a one stands for, and this stands for none.
    __slots__ = ()

    def __repr__(self) -> str:
        return "UNCHANGED"

    def __reduce__(self) -> str:
        return "UNCHANGED"


#: In the new row of a :class:`Change`: a large value that was not changed, so the database has not sent it.
UNCHANGED = Unchanged()


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one row, as a database reports it.

    >>> change = Change("update", "public.orders", None, {"id": 7, "state": "paid"}, 26_500_184)
    >>> change.new["state"]
    'paid'
    """

    #: ``read``: the row was there before. ``truncate`` is about all rows, and has neither an old nor a new one.
    kind: Literal["read", "insert", "update", "delete", "truncate"]
    #: With its schema.
    table: str
    #: The row before: of a delete, and of an update that changes the key or whose table has REPLICA IDENTITY FULL.
    #: Without the latter it has the columns of the key alone.
    old: dict[str, Any] | None
    new: dict[str, Any] | None
    #: The place in the database's log: of the transaction's end, or from where on a row that was read may change.
    lsn: int
    #: When the transaction was committed, or the row was read.
    committed_at: datetime | None = None
