"""Lookup of a key in a checkpoint or savepoint, without the job.

Only what may hold the key is read: of each file the segment of its key group and the footer, both verified; of a
chain the base and its increments, folded (``state/folding.py``); of RocksDB's own files those of the one subtask,
which have to be fetched as a whole. Values are read by the names of their types, so no class of the job is needed and
no pickle is opened.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa

from moorline.errors import InvalidArgument, QueryFailed
from moorline.model import keys
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import KeyedHandle, OperatorEntry, RowsHandle, StoreHandle
from moorline.model.options import checks_options
from moorline.model.type_tree.tree import PLAIN, StateType
from moorline.snapshots.locate import LocatedSnapshot, look_at
from moorline.snapshots.rows import Scratch, file_rows, rows_of
from moorline.state.backend import RestoredRows
from moorline.state.external.progress import STORE, read_progress
from moorline.state.folding import fold
from moorline.state.peeking import KINDS, Peeked, check_count, only_key, value_of


@checks_options()
def query_snapshot(path: str, uid: str, state: str, key: object) -> Any:
    """Look up a key in a snapshot: its value, list or dict, or None. No job needs to run, and no Spark.

    ``path`` is the folder of a savepoint, of a job's checkpoints (then the newest counts), or a checkpoint location
    with one job in it. Values come as plain data: a dict for a dataclass, text for a member of an Enum.

    >>> import tempfile
    >>> query_snapshot(tempfile.mkdtemp(), "count", "total", "a")
    Traceback (most recent call last):
    moorline.errors.SnapshotNotFound: there is no snapshot to use in ...
    """
    return look_up(look_at(path), uid, state, encoded_key(key))


def encoded_key(key: object) -> bytes:
    """The encoding of a key that a query asks for. Raises :class:`InvalidArgument`."""
    try:
        return keys.encode(key)
    except keys.NotAKey as error:
        raise InvalidArgument("key", key, f"No record can have it: {error}.") from None


def look_up(
    snapshot: LocatedSnapshot, uid: str, state: str, encoded: bytes, declared: frozenset[str] = frozenset()
) -> Any:
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
    kind: str = ""
    stored_type: StateType = PLAIN
    chain: list[tuple[pa.Table, bool]] = []
    with Scratch() as scratch:
        for handle in (h for s in entry.subtasks for h in s.keyed if group in h.key_groups):
            if isinstance(handle, StoreHandle):
                _check_store(snapshot, uid, state, handle, piece)
            is_increment = isinstance(handle, RowsHandle) and handle.increment
            for rows in rows_of(handle, piece, snapshot.store, scratch, {state}) if _has(handle, state) else ():
                kind, stored_type = rows.kind, rows.type
                chain.append((only_key(rows.table, encoded), is_increment))
    left = fold(chain)
    try:
        check_count(0 if left is None else left.num_rows)
        return value_of(Peeked(kind, stored_type, left))
    except (ValueError, KeyError) as error:
        raise QueryFailed(uid, state, f"{error}") from error


def _has(handle: KeyedHandle, state: str) -> bool:
    return any(name == state for name, _, _ in handle.states)


def _check_known(snapshot: LocatedSnapshot, entry: OperatorEntry, state: str, declared: frozenset[str]) -> None:
    stored = (stored for subtask in entry.subtasks for handle in subtask.keyed for stored in handle.states)
    known = declared.union(stored.name for stored in stored if stored.kind in KINDS)
    if state not in known:
        names = ", ".join(sorted(known)) or "none"
        raise QueryFailed(entry.uid, state, f"{snapshot} has nothing in such a keyed state; there is: {names}")


def _check_store(snapshot: LocatedSnapshot, uid: str, state: str, handle: StoreHandle, piece: KeyGroupRange) -> None:
    """A snapshot holds only what is on its way to a store outside: half an answer would be a wrong one."""
    progress = read_progress(RestoredRows(handle, partial(file_rows, handle, piece, snapshot.store)))
    if any(state in of_group.states for of_group in progress.values()):
        label = handle.state.removeprefix(STORE)
        raise QueryFailed(uid, state, f"it is kept in the store {label!r}. Ask that, or the running job (level='live')")
