"""From the files of checkpoints to an open database with exactly the rows of our key groups.

    1  the handle that has most of our key groups is fetched and opened: its files are ours from now on, and the next
       checkpoint need not upload them again
    2  what it has of other key groups is removed
    3  every other handle is fetched beside it, opened for reading, and only the rows of our key groups are copied;
       the states may have other numbers there

At the parallelism the checkpoint was taken with there is one handle, and steps 2 and 3 have nothing to do.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from moorline.errors import SnapshotCorrupt, StateIncompatible
from moorline.model.key_groups import MAX_KEY_GROUPS, KeyGroupRange
from moorline.model.manifest import NativeFile
from moorline.state.backend import RestoredFiles
from moorline.state.rocksdb.layout import group_of, groups, number_bytes
from moorline.state.rocksdb.registry import Entry, Registry
from moorline.state.rocksdb.store import Store, new_batch
from moorline.state.rocksdb.timers import by_time

#: Rows are copied in batches of so many bytes, through a cache of so many.
_COPY_BYTES, _READ_BYTES = 4 << 20, 16 << 20


@dataclass
class Opened:
    """A restored database."""

    store: Store
    registry: Registry
    #: The stored files that it was opened with, by name.
    files: dict[str, NativeFile]
    sequence: int
    #: The version that has exactly what is in those files; -1 if there is none.
    version: int
    fetched_bytes: int = 0
    copied_rows: int = 0


def open_restored(
    uid: str, natives: Sequence[RestoredFiles], folder: Path, scratch: Path, key_groups: KeyGroupRange, memory: int
) -> Opened:
    """Open what some handles have of ``key_groups`` in ``folder``; ``scratch`` is for what is only read."""
    base, *others = sorted(natives, key=lambda native: len(native.handle.key_groups & key_groups), reverse=True)
    fetched = fetch(base, folder)
    store = Store(folder, memory, must_exist=True)
    try:
        registry = Registry(store)
        about = registry.check()
        version = store.version() if not others else -1
        kept = base.handle.key_groups & key_groups
        if about.first < kept.first or about.end > kept.end:
            _keep_only(store, registry, kept)
        opened = Opened(store, registry, {f.name: f for f in base.handle.files}, about.sequence, version, fetched)
        for number, other in enumerate(others):
            _copy(uid, opened, other, scratch / f"restore-{number}", key_groups)
    except BaseException:
        store.close()
        raise
    return opened


def fetch(native: RestoredFiles, folder: Path) -> int:
    """Bring the files of a native handle into an empty folder. Returns how many bytes they are."""
    names = [f.name for f in native.handle.files]
    folder.mkdir(parents=True)
    native.fetch(folder)
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise SnapshotCorrupt(", ".join(missing), "the file is not there")
    return sum((folder / name).stat().st_size for name in names)


def _keep_only(store: Store, registry: Registry, kept: KeyGroupRange) -> None:
    """Remove what belongs to other key groups: ranges, and timers under their time one by one."""
    batch = new_batch()
    for entry in registry.entries.values():
        batch.delete_range(*groups(entry.number, 0, kept.first))
        batch.delete_range(*groups(entry.number, kept.end, MAX_KEY_GROUPS + 1))
        if entry.is_timers:
            for row, _ in store.scan(number_bytes(entry.number + 1), number_bytes(entry.number + 2)):
                if group_of(row, 10) not in kept:
                    batch.delete(row)
                    if batch.size_in_bytes() >= _COPY_BYTES:
                        store.write(batch)
                        batch = new_batch()
    store.write(batch)


def _copy(uid: str, opened: Opened, other: RestoredFiles, folder: Path, key_groups: KeyGroupRange) -> None:
    """Take the rows of our key groups from another database."""
    opened.fetched_bytes += fetch(other, folder)
    source = Store(folder, _READ_BYTES, read_only=True, must_exist=True)
    try:
        registry = Registry(source)
        opened.sequence = max(opened.sequence, registry.check().sequence)
        wanted = other.handle.key_groups & key_groups
        for name, entry in registry.entries.items():
            target = opened.registry.entries.get(name)
            if target is None:
                target = opened.registry.add(name, entry.kind, entry.type, entry.is_windowed)
            if not target.is_like(entry):
                raise StateIncompatible(uid, name, f"{entry} in one subtask", f"{target} in another")
            opened.copied_rows += _copy_state(source, entry, opened.store, target, wanted)
    finally:
        source.close()
        shutil.rmtree(folder, ignore_errors=True)


def _copy_state(source: Store, entry: Entry, store: Store, target: Entry, wanted: KeyGroupRange) -> int:
    start, due = number_bytes(target.number), number_bytes(target.number + 1)
    batch, rows, is_timers = new_batch(), 0, entry.is_timers
    for row, value in source.scan(*groups(entry.number, wanted.first, wanted.end)):
        rest = row[2:]
        batch[start + rest] = value
        if is_timers:
            batch[due + by_time(rest)] = b""
        rows += 1
        if not rows % 1000 and batch.size_in_bytes() >= _COPY_BYTES:
            store.write(batch)
            batch = new_batch()
    store.write(batch)
    return rows
