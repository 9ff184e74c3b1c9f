"""What a checkpoint or savepoint has under a key, without the job.

Only what may hold the key is read: of each file the segment of its key group and the footer, both verified; of a
chain the base and its increments, folded (``state/folding.py``); of RocksDB's own files those of the one subtask,
which have to be fetched as a whole. Values are read by the names of their types, so no class of the job is needed and
no pickle is opened.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from moorline.errors import InvalidArgument, QueryFailed, SnapshotCorrupt
from moorline.model import keys
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import KeyedHandle, OperatorEntry
from moorline.model.options import checks_options
from moorline.snapshots.locate import Snapshot, look_at
from moorline.state.backend import Restored
from moorline.state.external.progress import STORE, STORE_KIND, told_in
from moorline.state.folding import fold
from moorline.state.peeking import KINDS, Peeked, check_count, only_key, value_of
from moorline.state.rocksdb.export import read_native
from moorline.storage import segments as snapshots
from moorline.storage.blobs import BlobStore

_NATIVE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


@checks_options()
def query_snapshot(path: str, uid: str, state: str, key: Any) -> Any:
    """Look up a key in a snapshot: its value, list or dict, or None. No job needs to run, and no Spark.

    ``path`` is the folder of a savepoint, of a job's checkpoints (then the newest counts), or a checkpoint location
    with one job in it. Values come as plain data: a dict for a dataclass, text for a member of an Enum.

    >>> import tempfile
    >>> query_snapshot(tempfile.mkdtemp(), "count", "total", "a")
    Traceback (most recent call last):
    moorline.errors.SnapshotNotFound: there is no snapshot to use in ...
    """
    return look_up(look_at(path), uid, state, encoded_key(key))


def encoded_key(key: Any) -> bytes:
    """The encoding of a key that somebody asks for. Raises :class:`InvalidArgument`."""
    try:
        return keys.encode(key)
    except keys.NotAKey as error:
        raise InvalidArgument("key", key, f"No record can have it: {error}.") from None


def look_up(snapshot: Snapshot, uid: str, state: str, encoded: bytes, declared: frozenset[str] = frozenset()) -> Any:
    """The value under an encoded key. Raises :class:`QueryFailed` if there is no such state.

    A state that nothing is in leaves no trace in a snapshot. ``declared`` names those that are there even so.
    """
    entry = next((o for o in snapshot.manifest.operators if o.uid == uid), None)
    if entry is None:
        known = ", ".join(o.uid for o in snapshot.manifest.operators if any(s.keyed for s in o.subtasks))
        raise QueryFailed(uid, state, f"{snapshot} has no such operator; those with keyed state are: {known or 'none'}")
    group = keys.encoded_key_group(encoded, entry.max_parallelism)
    piece = KeyGroupRange(group, group + 1)
    _check_known(snapshot, entry, state, declared)
    kind, type_name = "", ""
    chain: list[tuple[pa.Table, bool]] = []
    for handle in (h for s in entry.subtasks for h in s.keyed if h.first <= group < h.end):
        if handle.kind == STORE_KIND:
            _check_store(snapshot, uid, state, handle, piece)
        for table, found_kind, found_type in _tables(snapshot.store, handle, state, piece, entry.max_parallelism):
            kind, type_name = found_kind, found_type
            chain.append((only_key(table, encoded), handle.increment))
    rows = fold(chain)
    try:
        check_count(0 if rows is None else rows.num_rows)
        return value_of(Peeked(kind, type_name, rows))
    except (ValueError, KeyError) as error:
        raise QueryFailed(uid, state, f"{error}") from error


def _tables(
    store: BlobStore, handle: KeyedHandle, state: str, piece: KeyGroupRange, max_parallelism: int
) -> Iterator[tuple[pa.Table, str, str]]:
    """The rows of one key group in one handle, with the kind and type of the state."""
    if handle.state == state and handle.file is not None:
        yield snapshots.read_rows(store, handle.file, piece), handle.kind, handle.type
    elif handle.kind == "native" and state in (name for name, _, _ in handle.states):

        def fetch(folder: Path) -> None:
            for native in handle.files:
                if not _NATIVE_NAME.fullmatch(native.name):
                    raise SnapshotCorrupt("the manifest", f"{native.name!r:.100} is no name for a file of a backend")
                snapshots.fetch_file(store, native.file, folder / native.name)

        with tempfile.TemporaryDirectory(prefix="moorline-query-") as folder:
            for rows in read_native(fetch, Path(folder) / "db", piece, max_parallelism, {state}):
                yield rows.table, rows.kind, rows.type


def states_of(entry: OperatorEntry) -> dict[str, tuple[str, str]]:
    """Kind and type of every keyed state of an operator, by name."""
    found: dict[str, tuple[str, str]] = {}
    for handle in (h for s in entry.subtasks for h in s.keyed):
        listed = handle.states if handle.kind == "native" else [(handle.state, handle.kind, handle.type)]
        found |= {name: (kind, type_name) for name, kind, type_name in listed}
    return found


def _check_known(snapshot: Snapshot, entry: OperatorEntry, state: str, declared: frozenset[str]) -> None:
    known = declared.union(name for name, (kind, _) in states_of(entry).items() if kind in KINDS)
    if state not in known:
        names = ", ".join(sorted(known)) or "none"
        raise QueryFailed(entry.uid, state, f"{snapshot} has nothing in such a keyed state; there is: {names}")


def _check_store(snapshot: Snapshot, uid: str, state: str, handle: KeyedHandle, piece: KeyGroupRange) -> None:
    """A snapshot holds only what is on its way to a store outside: half an answer would be a wrong one."""
    if handle.file is None:
        return
    rows = snapshots.read_rows(snapshot.store, handle.file, piece)
    told = told_in(Restored(handle, lambda: iter([rows]), lambda folder: None))
    if any(state in one.states for one in told.values()):
        label = handle.state.removeprefix(STORE)
        raise QueryFailed(uid, state, f"it is kept in the store {label!r}. Ask that, or the running job (level='live')")
