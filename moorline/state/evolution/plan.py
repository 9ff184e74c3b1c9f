"""Reading state that was stored under another type than the one that is declared now.

A manifest has the tree of each state's type. Equal trees: the state is read as it is. Otherwise, in this order: the
user's ``migrate``, if the state has one, makes each new value from the old one; or the change is one that loses nothing
(``state/evolution/conversions.py``); or the snapshot is refused with the reason. All of that but the values themselves
is known from the two types, so a job can find out before it starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa

from moorline.errors import MoorlineError, StateIncompatible
from moorline.model.type_tree import tree
from moorline.state.evolution.conversions import Conversion, Mismatch
from moorline.state.evolution.untyped import raw_type, to_python
from moorline.state.types.annotations import StoredType, stored


@dataclass(frozen=True)
class Where:
    """The state in question, for error messages."""

    uid: str
    state: str

    def __str__(self) -> str:
        return f"state {self.state!r} of operator {self.uid!r}"


class Reader:
    """Reads values that were stored under one type as values of the type that is declared now.

    If :attr:`is_identity`, the declared type's own methods do the same, faster.
    """

    def __init__(
        self,
        where: Where,
        old: tree.Type,
        declared: StoredType,
        reads: StoredType,
        convert: Callable[[Any], Any] | None,
        notes: list[str],
    ) -> None:
        self.is_identity = convert is None
        #: The type of the stored column.
        self.arrow: pa.DataType = reads.arrow
        self._where, self._old, self._declared, self._reads = where, old, declared, reads
        self._convert, self._notes = convert, notes

    def from_array(self, array: pa.Array) -> list[Any]:
        """The values of a stored column. Raises :class:`StateIncompatible` for one that cannot be carried over."""
        convert = self._convert
        try:
            values = self._reads.from_array(array)
            return values if convert is None else [convert(v) for v in values]
        except Exception as error:  # of the user's conversion, or of bytes that are no such value
            self._refuse(error)

    def unpack(self, data: bytes | memoryview) -> Any:
        """The value of stored bytes. Raises :class:`StateIncompatible` if it cannot be carried over."""
        try:
            value = self._reads.unpack(data)
            return value if self._convert is None else self._convert(value)
        except Exception as error:  # of the user's conversion, or of bytes that are no such value
            self._refuse(error)

    def describe(self) -> str:
        """The changes in words."""
        return "; ".join(self._notes) or "unchanged"

    def _refuse(self, error: Exception) -> NoReturn:
        if isinstance(error, MoorlineError):
            raise error
        said = f"{error}" if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        reason = f"a stored value cannot be carried over: {said}"
        raise StateIncompatible(
            self._where.uid, self._where.state, str(self._old), self._declared.name, reason
        ) from error


def plan(old: tree.Type, annotation: Any, *, where: Where, migrate: Callable[[Any], Any] | None = None) -> Reader:
    """The reader of state that was stored as ``old``, for a state declared as ``annotation``.

    Needs no data. Raises :class:`StateIncompatible` with the reason if it cannot be, and :class:`UnsupportedType` if
    the annotation has no stored form. ``migrate`` gets old values as Python's
    (``state/evolution/untyped.py``).

    >>> reader = plan(tree.List.of(list, tree.INT), tuple[float, ...], where=Where("totals", "sums"))
    >>> reader.describe()
    "a tuple instead of a list; part '[]' widened from int to float"
    >>> reader.from_array(pa.array([[1, 2]]))
    [(1.0, 2.0)]
    """
    declared = stored(annotation, str(where))
    if old == declared.tree:
        return Reader(where, old, declared, declared, None, [])
    if migrate is not None:
        said = f"made from {old} by {getattr(migrate, '__qualname__', repr(migrate))}"
        return Reader(where, old, declared, raw_type(old), _migration(old, declared, migrate), [said])
    try:
        conversion = Conversion(old, declared)
    except Mismatch as error:
        raise StateIncompatible(where.uid, where.state, str(old), declared.name, str(error)) from None
    return Reader(where, old, declared, raw_type(old), conversion.convert, conversion.notes)


def _migration(old: tree.Type, declared: StoredType, migrate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    # None that no declaration asked for is nothing to migrate.
    may_be_none = isinstance(old, tree.Optional) or old == tree.PLAIN

    def migrated(raw: Any) -> Any:
        if raw is None and not may_be_none:
            return None
        value = to_python(old, raw)
        try:
            made = migrate(value)
        except Exception as error:  # the user's function
            raise ValueError(f"migrate failed for {value!r:.200} with {type(error).__name__}: {error}") from error
        try:
            return declared.unpack(declared.pack(made))
        except (ValueError, TypeError, OverflowError, AttributeError) as error:
            raise ValueError(f"migrate made {made!r:.100} of {value!r:.100}: {error}") from error

    return migrated
