"""Reading the files of a RocksDB checkpoint as rows, for other backends and for tools.

Nothing of the job is needed: the database says which states it has, and their types are read by their names
(``state/old_values.py``). The rows are those that a full snapshot of the same state would have written.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from moorline.errors import SnapshotCorrupt
from moorline.model.key_groups import KeyGroupRange
from moorline.state.heap_rows import Form
from moorline.state.old_values import raw_type
from moorline.state.rocksdb_layout import groups
from moorline.state.rocksdb_registry import Entry, Registry
from moorline.state.rocksdb_restore import is_file_name
from moorline.state.rocksdb_rows import tables_of
from moorline.state.rocksdb_store import Store
from moorline.state.type_names import parse, parse_map

_READ_BYTES = 32 << 20


class NativeRows(NamedTuple):
    """Some rows of one state."""

    state: str
    kind: str
    type: str
    #: Has it the columns ``last_access`` and ``ttl``?
    is_stamped: bool
    table: pa.Table


def read_native(
    fetch: Callable[[Path], None],
    folder: Path,
    key_groups: KeyGroupRange,
    max_parallelism: int,
    only: str | None = None,
) -> Iterator[NativeRows]:
    """The rows of some key groups in a native handle of the RocksDB backend, state by state, in tables of bounded size.

    ``fetch`` brings the files of the handle into a folder, as :class:`Restored` has it; ``folder`` must not exist yet,
    and is removed at the end. ``only``: of this state alone. Raises :class:`SnapshotCorrupt` if the files
    are not a database of ours.
    """
    wanted = key_groups & KeyGroupRange(0, max_parallelism)
    folder.mkdir(parents=True)
    try:
        fetch(folder)
        for path in folder.iterdir():
            if not is_file_name(path.name):
                raise SnapshotCorrupt(repr(path.name), "no file of a database is called so")
        store = Store(folder, _READ_BYTES, read_only=True, must_exist=True)
        try:
            registry = Registry(store)
            registry.check()
            for name, entry in registry.entries.items():
                if only not in (None, name):
                    continue
                view = store.view(*groups(entry.number, wanted.first, wanted.end))
                form = _form(name, entry, folder)
                for table in tables_of(view, entry.number, form, wanted, is_stamped=entry.is_stamped):
                    yield NativeRows(name, entry.kind, entry.type, entry.is_stamped, table)
        finally:
            store.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _form(name: str, entry: Entry, folder: Path) -> Form:
    try:
        if entry.kind != "map":
            return Form(name, entry.kind, entry.type, raw_type(parse(entry.type)), None, entry.is_windowed)
        map_key, value = parse_map(entry.type)
        raw_key, raw_value = raw_type(parse(map_key)), raw_type(parse(value))
        return Form(name, entry.kind, entry.type, raw_value, raw_key, entry.is_windowed)
    except ValueError as error:
        raise SnapshotCorrupt(str(folder), f"state {name!r} is of type {entry.type:.100}: {error}") from error
