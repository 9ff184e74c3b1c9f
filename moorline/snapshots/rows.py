"""The rows of a handle: the one way in which keyed state comes out of a snapshot.

    file      Parquet, by segments: each is verified before a byte of it is interpreted (``storage/segments.py``)
    native    the files of a database: fetched once into a scratch folder, verified on the way, opened read-only, and
              compared with what the manifest says is in them (``state/rocksdb/checkpoints/export.py``)

Either way rows come in tables of bounded size, key groups in order, and those of one key in one table. Names and key
groups are right already: they were checked when the manifest was decoded (``storage/stored_handles.py``). What the
columns should be is for those to say who read them: a backend by the form of its state, a table by the state's type.

Restores, queries, tables and the comparison of snapshots all read here.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from moorline.errors import SnapshotCorrupt
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import FileHandle, KeyedHandle, NativeHandle
from moorline.model.type_tree.tree import StateType
from moorline.state.rocksdb.checkpoints.export import NativeShape, native_shape, read_native
from moorline.storage import segments
from moorline.storage.blobs import BlobStore


class StateRows(NamedTuple):
    """Some rows of one state."""

    state: str
    kind: str
    type: StateType
    table: pa.Table


class Scratch:
    """A temporary folder for native files: each is fetched once, and opened as often as rows of it are read.

    The folder is removed at the end of a ``with``, or when nothing refers to this any more.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._fetched: dict[tuple[str, ...], Path] = {}
        self._opened = 0

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def new_folder(self) -> Path:
        """A folder to open a database in, which does not exist yet."""
        self._opened += 1
        return self._root() / f"open-{self._opened}"

    def linking(self, handle: NativeHandle, store: BlobStore) -> Callable[[Path], None]:
        """The files of a handle, to be linked into a folder."""

        def link(folder: Path) -> None:
            for path in self._files(handle, store).iterdir():
                os.link(path, folder / path.name)

        return link

    def _files(self, handle: NativeHandle, store: BlobStore) -> Path:
        paths = (store.url, *(file.file.path for file in handle.files))
        if paths not in self._fetched:
            kept = self._root() / str(len(self._fetched))
            kept.mkdir(exist_ok=True)
            fetch_files(handle, store, kept)
            self._fetched[paths] = kept
        return self._fetched[paths]

    def _root(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="moorline-snapshot-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder


def fetch_files(handle: NativeHandle, store: BlobStore, folder: Path) -> None:
    """Bring the files of a native handle into a folder, by the names that their backend gave them."""
    for native in handle.files:
        segments.fetch_file(store, native.file, folder / native.name)


def rows_of(
    handle: KeyedHandle,
    key_groups: KeyGroupRange,
    store: BlobStore,
    scratch: Scratch,
    states: Collection[str] | None = None,
) -> Iterator[StateRows]:
    """The rows of ``handle`` in ``key_groups``, state by state; of ``states`` alone, if that is given.

    Of a file that has nothing of it there is one empty table: its footer is verified all the same, and shows the
    columns. Raises :class:`SnapshotCorrupt` if anything is not what the manifest says.
    """
    if not isinstance(handle, NativeHandle):
        if states is None or handle.state in states:
            for table in file_rows(handle, key_groups, store):
                yield StateRows(handle.state, handle.kind, handle.type, table)
        return
    common = key_groups & handle.key_groups
    fetch, folder = scratch.linking(handle, store), scratch.new_folder()
    for rows in read_native(fetch, folder, common, states, expected=handle.states):
        yield StateRows(rows.state, rows.kind, rows.type, rows.table)


def file_rows(handle: FileHandle, key_groups: KeyGroupRange, store: BlobStore) -> Iterator[pa.Table]:
    """:func:`rows_of` for a handle that is one file."""
    if handle.file is None:
        raise SnapshotCorrupt("the manifest", f"state {handle.state!r} has no file")
    return segments.iterate_rows(store, handle.file, key_groups & handle.key_groups)


def shape_of_native(handle: NativeHandle, state: str, store: BlobStore, scratch: Scratch) -> NativeShape:
    """The columns that :func:`rows_of` gives for a state in native files."""
    fetch, folder = scratch.linking(handle, store), scratch.new_folder()
    shape = native_shape(fetch, folder, handle.key_groups, state, expected=handle.states)
    if shape is None:
        cause = f"it has no state {state!r}, and the manifest says it has"
        raise SnapshotCorrupt(f"files of {handle.backend}", cause)
    return shape
