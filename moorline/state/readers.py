"""Reading stored rows of a state as values of the types that are declared today.

Where the stored type is the declared one, that is the type itself; else ``state/evolution/plan.py`` plans how. Used by
every backend for the rows of snapshots (whole columns), and by RocksDB for the rows of a database that was opened with
older types (one by one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from moorline.api.state.descriptors import MapStateDescriptor, StateDescriptor
from moorline.errors import StateIncompatible
from moorline.model.type_tree.tree import Map, StateType
from moorline.state.backend import RestoredRows
from moorline.state.evolution.plan import Where, plan
from moorline.state.forms import Form


class ColumnReader(Protocol):
    """A type, or the reader of an older one."""

    arrow: pa.DataType

    def from_array(self, array: pa.Array) -> list[Any]: ...

    @property
    def unpack(self) -> Callable[[bytes], Any]: ...


class RowReaders(NamedTuple):
    """The readers of one state's columns and packed values."""

    value: ColumnReader
    map_key: ColumnReader | None


def readers_of(uid: str, form: Form, descriptor: StateDescriptor | None, stored_type: StateType) -> RowReaders:
    """The readers of values that were stored as ``stored_type``. Raises :class:`StateIncompatible` if there are none.

    ``descriptor``: None for timers, whose type never changes.
    """
    if stored_type == form.type or descriptor is None:
        return RowReaders(form.value, form.map_key)
    where = Where(uid, form.state)
    value_type: Any = descriptor.type  # type: ignore[attr-defined]
    if isinstance(stored_type, Map):
        assert isinstance(descriptor, MapStateDescriptor), "the kinds of state are the same"
        value = plan(stored_type.value, value_type, where=where, migrate=descriptor.migrate)
        return RowReaders(value, plan(stored_type.key, descriptor.key_type, where=where))
    return RowReaders(plan(stored_type, value_type, where=where, migrate=descriptor.migrate), None)


def readers_of_handle(uid: str, form: Form, descriptor: StateDescriptor | None, restored: RestoredRows) -> RowReaders:
    """The readers of the rows of one handle. Raises :class:`StateIncompatible` if it is not of such a state."""
    handle = restored.handle
    if handle.kind != form.kind:
        raise StateIncompatible(uid, form.state, f"{handle.kind} of {handle.type}", str(form))
    return readers_of(uid, form, descriptor, handle.type)


def checked_tables(uid: str, form: Form, readers: RowReaders, restored: RestoredRows) -> Iterator[pa.Table]:
    """The rows of one handle. Raises if they are of windows though the state is not, or of other types than is said."""
    expected = {"value": readers.value.arrow, **({"map_key": readers.map_key.arrow} if readers.map_key else {})}
    for table in restored.tables():
        if ("namespace" in table.column_names) != form.is_windowed:
            was = f"{form.kind} of {restored.handle.type} for each {'key' if form.is_windowed else 'window'}"
            raise StateIncompatible(uid, form.state, was, str(form))
        for name, wanted in expected.items():
            if not table.schema.field(name).type.equals(wanted):
                raise ValueError(f"column {name!r} is {table.schema.field(name).type} instead of {wanted}")
        yield table
