"""What a state backend is asked to do.

A backend keeps the keyed states of one operator in one subtask. It belongs to the subtask's thread; only
:meth:`Part.table` of a snapshot is called from another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn, Protocol

import pyarrow as pa

from moorline.api.states import State, StateDescriptor
from moorline.errors import NoCurrentKey


class _NoKey:
    """Stands for "no record is being processed". It cannot be looked up, so no access needs to check for it."""

    def __hash__(self) -> NoReturn:
        raise NoCurrentKey("?")


NO_KEY = _NoKey()


class CurrentKey:
    """The key of the record being processed, shared by the operator and all of its states."""

    __slots__ = ("key",)

    def __init__(self) -> None:
        self.key: Any = NO_KEY


class Part(Protocol):
    """One state as it was at the snapshot. It stays so while the stream goes on."""

    state: str
    kind: str
    type: str

    def table(self) -> pa.Table:
        """Its rows, sorted by key group and key."""
        ...

    def release(self) -> None:
        """The rows have been written (or are not wanted)."""
        ...


class KeyedBackend(Protocol):
    """The keyed states of one operator in one subtask."""

    current: CurrentKey

    def bind(self, descriptor: StateDescriptor) -> State:
        """The live state of a descriptor, with its restored content."""
        ...

    def restore(self, state: str, kind: str, type_name: str, table: pa.Table) -> None:
        """Take rows back, before :meth:`bind`."""
        ...

    def check_all_bound(self) -> None:
        """Raises if rows were restored that no state was bound for."""
        ...

    def claim(self, keys: Iterable[Any]) -> None:
        """Records with these keys are about to be processed."""
        ...

    def snapshot(self) -> list[Part]:
        """The synchronous part of a snapshot: quick, whatever the size of the state."""
        ...

    def entries(self) -> int:
        """How many keys there are, over all states."""
        ...
