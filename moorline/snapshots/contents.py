"""Checks that files hold what the handles of a manifest say: as many rows, of the types that they name.

Checksums show that a file is what was written. This shows that what was written is what the manifest tells of: a
restore would fail on it, or go on with less than there was. ``snapshots/inspection.py`` asks for each Parquet file,
once, however many checkpoints name it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from moorline.errors import SnapshotCorrupt
from moorline.model.manifest import FileHandle, Manifest, NativeHandle, SnapshotFile
from moorline.snapshots.columns import check_columns
from moorline.storage.blobs import BlobStore
from moorline.storage.segments import ELEMENT, read_through

_Check = Callable[[pa.Schema, int], None]


class ContentsCheck:
    """The rows and types of each file, by the handles of some manifests."""

    def __init__(self, manifests: Iterable[Manifest]) -> None:
        #: By path; a file that several checkpoints name is the same for all of them, or one of them lies.
        self._checks: dict[str, dict[tuple[object, ...], _Check]] = {}
        for manifest in manifests:
            for handles in (subtask for operator in manifest.operators for subtask in operator.subtasks):
                for keyed in handles.keyed:
                    if not isinstance(keyed, NativeHandle) and keyed.file is not None:
                        what = (keyed.kind, keyed.type, keyed.rows)
                        self._add(keyed.file, what, _keyed_check(keyed, keyed.file))
                counted = [(h.count, h.file) for h in handles.elements] + [(h.count, h.file) for h in handles.in_flight]
                for count, file in counted:
                    if file is not None:
                        self._add(file, (count,), _elements_check(count, file))

    def read(self, store: BlobStore, file: SnapshotFile) -> None:
        """Read a file through and compare it with its handles. Raises :class:`SnapshotCorrupt`."""
        schema, rows = read_through(store, file)
        for check in self._checks.get(file.path, {}).values():
            check(schema, rows)

    def _add(self, file: SnapshotFile, what: tuple[object, ...], check: _Check) -> None:
        self._checks.setdefault(file.path, {})[what] = check


def _keyed_check(handle: FileHandle, file: SnapshotFile) -> _Check:
    def check(schema: pa.Schema, rows: int) -> None:
        if rows != handle.rows:
            raise SnapshotCorrupt(file.path, f"it has {rows:,} rows, and its handle says {handle.rows:,}")
        check_columns(schema, handle)

    return check


def _elements_check(count: int, file: SnapshotFile) -> _Check:
    def check(schema: pa.Schema, rows: int) -> None:
        if rows != count:
            raise SnapshotCorrupt(file.path, f"it has {rows:,} elements, and its handle says {count:,}")
        if schema.names != [ELEMENT] or schema.field(ELEMENT).type != pa.large_binary():
            raise SnapshotCorrupt(file.path, f"it has the columns {', '.join(schema.names)!r:.200}")

    return check
