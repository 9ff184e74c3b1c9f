"""Checkpoints in memory: what a job's files would hold, for the tests of backends.

Does what ``subtask/snapshot/writer.py`` and ``subtask/restore/chain.py`` do, over nothing but tables and a folder.
Native files are copied, since a backend may delete its own at any time.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import KeyedHandle, NativeFile, NativeHandle, Segment, SnapshotFile, file_handle
from moorline.state.backend import Files, KeyedSnapshot, Restored, RestoredFiles, RestoredRows, Rows
from moorline.state.folding import fold

_numbers = count(1)


class _Folder:
    """A folder that is there as long as one of its files is in use."""

    def __init__(self) -> None:
        self._made = tempfile.TemporaryDirectory(prefix="moorline-contract-")
        self.path = Path(self._made.name)


@dataclass(frozen=True)
class Part:
    """One handle, and what is in its files."""

    handle: KeyedHandle
    tables: Sequence[pa.Table] = ()
    #: By the path in the handle.
    native: Mapping[str, tuple[_Folder, Path]] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """The state whose rows it has; empty if it has native files."""
        return "" if isinstance(self.handle, NativeHandle) else self.handle.state

    @property
    def stored_rows(self) -> int:
        """The number of rows by the handle; 0 if it has native files."""
        return 0 if isinstance(self.handle, NativeHandle) else self.handle.rows

    @property
    def is_increment(self) -> bool:
        return not isinstance(self.handle, NativeHandle) and self.handle.increment

    def rows(self, key_groups: KeyGroupRange | None = None) -> Iterator[pa.Table]:
        """The rows that count, of some key groups."""
        wanted = self.handle.key_groups
        wanted = wanted if key_groups is None else wanted & key_groups
        for table in self.tables:
            groups = table["key_group"]
            rows = table.filter(pc.and_(pc.greater_equal(groups, wanted.first), pc.less(groups, wanted.end)))
            if rows.num_rows:
                yield rows

    def restored(self, key_groups: KeyGroupRange) -> Restored:
        handle = self.handle
        if not isinstance(handle, NativeHandle):
            return RestoredRows(handle, lambda: self.rows(key_groups))
        files = handle.files

        def fetch(folder: Path) -> None:
            for native in files:
                shutil.copy(self.native[native.file.path][1], folder / native.name)

        return RestoredFiles(handle, fetch)


def cut(parts: Iterable[Part], key_groups: KeyGroupRange) -> Iterator[Part]:
    """The share of some parts that belongs to one subtask."""
    for part in parts:
        own = part.handle.key_groups & key_groups
        if len(own):
            handle = msgspec.structs.replace(part.handle, first=own.first, end=own.end)
            yield Part(handle, part.tables, part.native)


def write(snapshot: KeyedSnapshot, key_groups: KeyGroupRange, reusable: Sequence[Part], backend: str) -> list[Part]:
    """Make a snapshot of ``backend`` durable. ``reusable`` are the parts of the checkpoint that it may build on."""
    known = {_paths(part.handle): part for part in reusable}
    files = {path: kept for part in reusable for path, kept in part.native.items()}
    reused = []
    for handle in snapshot.reused:
        assert _paths(handle) in known, f"{handle} is not part of the checkpoint that was built on"
        reused.append(Part(handle, known[_paths(handle)].tables, known[_paths(handle)].native))
    written = []
    for part in snapshot.parts:
        if isinstance(part, Files):
            written.append(_native(part, key_groups, files, backend))
        else:
            written += [_part(part, table, key_groups) for table in part.tables() if table.num_rows]
    return list(_folded([*reused, *written], key_groups, snapshot.foldable)) if snapshot.fold else [*reused, *written]


def _paths(handle: KeyedHandle) -> tuple[str, ...]:
    return tuple(file.path for file in handle.all_files())


def _file(key_groups: KeyGroupRange, size: int) -> SnapshotFile:
    segments = [Segment(key_groups.first, key_groups.end, 0, size, ""), Segment(0, 0, size, 0, "")]
    return SnapshotFile(f"file-{next(_numbers)}", size, segments)


def _part(rows: Rows, table: pa.Table, key_groups: KeyGroupRange) -> Part:
    file = _file(key_groups, table.nbytes)
    handle = file_handle(rows.state, rows.kind, rows.type, key_groups, table.num_rows, file, rows.increment)
    return Part(handle, [table])


def _native(part: Files, key_groups: KeyGroupRange, files: Mapping[str, tuple[_Folder, Path]], backend: str) -> Part:
    folder, kept, native = _Folder(), {}, []
    for name, path in part.paths.items():
        file = _file(key_groups, path.stat().st_size)
        kept[file.path] = (folder, Path(shutil.copy(path, folder.path / file.path)))
        native.append(NativeFile(name, file))
    for name, known in part.known.items():
        assert known.file.path in files, f"{name} is not part of the checkpoint that was built on"
        kept[known.file.path] = files[known.file.path]
        native.append(known)
    return Part(NativeHandle(key_groups.first, key_groups.end, backend, native, list(part.states)), (), kept)


def _folded(parts: list[Part], key_groups: KeyGroupRange, foldable: frozenset[str] | None) -> Iterator[Part]:
    """Every chain with an increment becomes one base, of the states that are named."""
    for state in dict.fromkeys(p.state for p in parts):
        chain = [p for p in parts if p.state == state]
        if (foldable is not None and state not in foldable) or not any(p.is_increment for p in chain):
            yield from chain
            continue
        ((_, kind, stored_type),) = chain[0].handle.states
        table = fold([(table, p.is_increment) for p in chain for table in p.rows()])
        if table is not None and table.num_rows:
            yield _part(Rows(state, kind, stored_type, lambda: iter(())), table, key_groups)


def rows_of(parts: Iterable[Part], state: str) -> list[tuple[Any, ...]]:
    """The rows of one state without their key groups, in the order they were written."""
    tables = [t.drop_columns(["key_group"]) for p in parts if p.state == state for t in p.rows()]
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]
