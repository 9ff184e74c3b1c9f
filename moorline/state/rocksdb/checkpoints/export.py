"""Reading the files of a RocksDB checkpoint as rows, for other backends and for tools.

Nothing of the job is needed: the database says which states it has, and their types are read by their trees
(``state/evolution/untyped.py``). The rows are those that a full snapshot of the same state would have written.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from moorline.errors import SnapshotCorrupt
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import StoredState
from moorline.model.type_tree.tree import Map, StateType
from moorline.state.evolution.untyped import raw_type
from moorline.state.forms import Form
from moorline.state.rocksdb.layout import groups
from moorline.state.rocksdb.registry import Entry, Registry
from moorline.state.rocksdb.rows import tables_of, tag_of_keys
from moorline.state.rocksdb.store import Store

_READ_BYTES = 32 << 20


class NativeRows(NamedTuple):
    """Some rows of one state."""

    state: str
    kind: str
    type: StateType
    table: pa.Table


def read_native(
    fetch: Callable[[Path], None],
    folder: Path,
    key_groups: KeyGroupRange,
    states: Collection[str] | None = None,
    *,
    expected: Sequence[StoredState] | None = None,
) -> Iterator[NativeRows]:
    """The rows of some key groups in a native handle of the RocksDB backend, state by state, in tables of bounded size.

    ``fetch`` brings the files of the handle into a folder, as :class:`RestoredFiles` has it; ``folder`` must not exist
    yet, and is removed at the end. ``states``: only the rows of these. ``expected``: the states that must be in it.
    Raises :class:`SnapshotCorrupt` if the files are not a database of ours, or not that one.
    """
    with _opened(fetch, folder) as store:
        for name, entry in _entries(store, expected).items():
            if states is not None and name not in states:
                continue
            view = store.view(*groups(entry.number, key_groups.first, key_groups.end))
            form = _form(name, entry)
            for table in tables_of(view, entry.number, form, key_groups, is_stamped=entry.is_stamped):
                yield NativeRows(name, entry.kind, entry.type, table)


class NativeShape(NamedTuple):
    """The look of one state's rows, without reading them."""

    is_windowed: bool
    is_stamped: bool
    #: What the ``key`` column will be of; None if there are no rows.
    key: pa.DataType | None


def native_shape(
    fetch: Callable[[Path], None],
    folder: Path,
    key_groups: KeyGroupRange,
    state: str,
    *,
    expected: Sequence[StoredState] | None = None,
) -> NativeShape | None:
    """The shape of what :func:`read_native` gives for one state; None if the database does not have it."""
    with _opened(fetch, folder) as store:
        entry = _entries(store, expected).get(state)
        if entry is None:
            return None
        view = store.view(*groups(entry.number, key_groups.first, key_groups.end))
        tag = tag_of_keys(view, entry.number, key_groups)
        is_empty = not tag and next(iter(view.rows()), None) is None
    key = None if is_empty else {b"i": pa.int64(), b"s": pa.string()}.get(tag, pa.binary())
    return NativeShape(entry.is_windowed, entry.is_stamped, key)


@contextmanager
def _opened(fetch: Callable[[Path], None], folder: Path) -> Iterator[Store]:
    folder.mkdir(parents=True)
    try:
        fetch(folder)
        store = Store(folder, _READ_BYTES, read_only=True, must_exist=True)
        try:
            yield store
        finally:
            store.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _entries(store: Store, expected: Sequence[StoredState] | None) -> dict[str, Entry]:
    registry = Registry(store)
    registry.check()
    if expected is not None and set(expected) != set(registry.states()):
        had, wanted = (", ".join(sorted(f"{n} ({k} of {t})" for n, k, t in s)) for s in (registry.states(), expected))
        cause = f"the database has the states {had or 'none'!s:.300}, and its manifest says {wanted or 'none'!s:.300}"
        raise SnapshotCorrupt(str(store.folder), cause)
    return registry.entries


def _form(name: str, entry: Entry) -> Form:
    if isinstance(entry.type, Map):
        key, value = raw_type(entry.type.key), raw_type(entry.type.value)
        return Form(name, entry.kind, entry.type, value, key, entry.is_windowed)
    return Form(name, entry.kind, entry.type, raw_type(entry.type), None, entry.is_windowed)
