"""A source that reads a Python list, in order.

The list is one split (id 0), so one subtask reads all of it and the order is kept; the position is the index of
the next item. It travels with the job, so it is meant for examples, tests and small tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Never, overload

from moorline.api.sources import Source, SourceContext, SourceReader, SplitId
from moorline.api.type_parameters import A, T_co
from moorline.errors import InvalidArgument, RestoreError
from moorline.model.copying.copies import copies_of
from moorline.model.options import checks_options

_SPLIT = 0


# For type checkers: a list of which nothing is known; dicts, whose values are mostly of several types; anything else.
@overload
def from_items(items: list[Never]) -> Source[Any]: ...
@overload
def from_items(items: Iterable[dict[str, Any]]) -> Source[dict[str, Any]]: ...
@overload
def from_items(items: Iterable[A]) -> Source[A]: ...
@checks_options()
def from_items(items: Iterable[Any]) -> Source[Any]:
    """The items, one record each, in their order.

    They are listed at once, so an endless iterable is not for here: see ``generate``.

    >>> source = from_items("abc")
    >>> reader = source.open(SourceContext(uid="letters", subtask=0, parallelism=1, attempt=1))
    >>> reader.read(2), reader.positions(), reader.read(2), reader.read(2)
    (['a', 'b'], {0: 2}, ['c'], None)
    """
    return Items(items)


class Items(Source[T_co]):
    """See :func:`from_items`."""

    is_bounded = True

    def __init__(self, items: Iterable[T_co]) -> None:
        if isinstance(items, dict):
            raise InvalidArgument("items", items, "Its keys would be the records. Give d.items(), d.values() or [d].")
        try:
            self.items = list(items)
        except TypeError:
            raise InvalidArgument("items", items, "Give a list, or anything else a for loop can go through.") from None

    def open(self, ctx: SourceContext) -> SourceReader[T_co]:
        """The subtask that owns the one split reads; for the others it is over at once."""
        return _ItemsReader(self.items, ctx)


class _ItemsReader(SourceReader[Any]):
    split = _SPLIT

    def __init__(self, items: list[Any], ctx: SourceContext) -> None:
        self._mine = ctx.owns(_SPLIT)
        self._items = items
        self._next: int = ctx.positions.get(_SPLIT, 0)
        if self._mine and self._next > len(items):
            raise RestoreError(
                f"source {ctx.uid!r} had read {self._next} items when the snapshot was taken, but its list has only "
                f"{len(items)} now. Give it the old list, with new items only at the end."
            )

    def read(self, limit: int) -> list[Any] | None:
        if not self._mine or self._next >= len(self._items):
            return None
        # Copies: who reads them may change them, and they may be read again.
        records = copies_of(self._items[self._next : self._next + limit])
        self._next += len(records)
        return records

    def splits(self) -> Collection[SplitId]:
        return {_SPLIT} if self._mine and self._next < len(self._items) else set()

    def positions(self) -> dict[SplitId, Any]:
        return {_SPLIT: self._next} if self._mine else {}
