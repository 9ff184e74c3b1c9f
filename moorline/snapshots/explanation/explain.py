"""The explanation of a snapshot: all of its states measured, and compared with the checkpoint before.

Files are verified before a byte is interpreted, only columns are read, nothing is unpickled and no class of the job is
needed. What both snapshots have in the very same files has not changed and is not read twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from moorline.errors import InvalidArgument, SnapshotNotFound
from moorline.model.durations import Duration, milliseconds
from moorline.model.manifest import Manifest
from moorline.model.options import checks_options
from moorline.snapshots.explanation.measure import Measurement, newest_stamp
from moorline.snapshots.explanation.report import Explanation, Growth, OperatorSize, StateSize
from moorline.snapshots.folders import has_savepoint, open_snapshot
from moorline.snapshots.tables.catalog import StateInfo, key_groups_of
from moorline.snapshots.tables.reader import SnapshotReader
from moorline.storage.blobs import BlobStore
from moorline.storage.layout import is_of_checkpoint
from moorline.storage.log import read_history

#: Tables whose rows are read; of the others the manifest says enough.
_READ = ("keyed", "timers", "raw")
#: The times to live of states, by uid and state: how long in milliseconds, and whether in event time.
Lives = Mapping[tuple[str, str], tuple[int, bool]]
#: Called with the name of each state before it is read.
Say = Callable[[str], None]


@checks_options()
def explain_snapshot(
    path: str, *, uid: str | None = None, top: int = 10, ttl: Duration | None = None, growth: bool = True
) -> Explanation:
    """Explain the state in a snapshot: sizes per operator, state and key group, the largest keys, growth, time to live.

    ``path`` is that of a savepoint, of a job's checkpoints (then the newest counts), of an entry of its history, or a
    checkpoint location with one job in it. All rows are read; ``uid`` keeps to one operator. ``ttl`` asks what a time
    to live of that length would remove now, of states that have one: how long they live is not in a snapshot.
    ``growth=False`` leaves out the comparison with the checkpoint before, which has to be read as well.

    >>> import moorline as mo
    >>> rows = [{"user": "ada", "value": "x" * 100}, {"user": "bob", "value": "y"}]
    >>> notes = mo.ValueStateDescriptor("notes", str)
    >>> url = mo.SnapshotWriter("memory://notes", job="notes").keyed("keep", notes, rows, key="user").write()
    >>> found = mo.explain_snapshot(url).state("keep", "notes")
    >>> found.keys, found.bytes, found.largest[0].key
    (2, 107, 'ada')
    """
    manifest, store = open_snapshot(path)
    length = milliseconds(ttl, "ttl") if ttl is not None else None
    return explain(manifest, store, uid=uid, top=top, ttl_ms=length, growth=growth)


def explain(
    manifest: Manifest,
    store: BlobStore,
    *,
    uid: str | None = None,
    top: int = 10,
    ttl_ms: int | None = None,
    lives: Lives | None = None,
    growth: bool = True,
    now_ms: int | None = None,
    say: Say = lambda state: None,
) -> Explanation:
    """:func:`explain_snapshot` for a manifest. ``lives``: how long states live; for others ``ttl_ms`` counts."""
    if top < 0:
        raise InvalidArgument("top", top, "Give a number from 0.")
    reader = SnapshotReader(manifest, store)
    if uid is not None:
        reader.operator(uid)  # raises, with those that there are
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    earlier = _earlier(manifest, store) if growth else None
    before = SnapshotReader(earlier, store) if earlier is not None else None
    sizes = []
    for info in (i for i in reader.states if i.table != "files" and uid in (None, i.uid)):
        say(f"{info.uid} {info.state}")
        life = (lives or {}).get((info.uid, info.state), (ttl_ms, False))
        size = _measured(reader, info, top, *life, now)
        sizes.append(_with_growth(size, reader, before, info) if before is not None else size)
    return Explanation(
        manifest.job,
        manifest.checkpoint,
        store.url,
        manifest.created_ms,
        manifest.size,
        tuple(_operators(manifest, sizes, uid)),
        tuple(sorted(sizes, key=lambda size: -size.bytes)),
        earlier.checkpoint if earlier is not None else None,
        earlier.created_ms if earlier is not None else None,
        earlier.size if earlier is not None else None,
    )


def _earlier(manifest: Manifest, store: BlobStore) -> Manifest | None:
    """The checkpoint before in the same history, if it is still there and can be read."""
    if has_savepoint(store):
        return None
    try:
        manifests = [r.entry for r in read_history(store) if isinstance(r.entry, Manifest)]
    except SnapshotNotFound:
        return None
    older = [m for m in manifests if m.checkpoint < manifest.checkpoint and m.lineage == manifest.lineage]
    return max(older, key=lambda m: m.checkpoint, default=None)


def _measured(
    reader: SnapshotReader, info: StateInfo, top: int, ttl_ms: int | None, is_event_time: bool, now: int
) -> StateSize:
    base = StateSize(info.uid, info.state, info.table, info.kind, info.type, info.rows or 0, info.bytes or 0)
    if info.table not in _READ or info.first_key_group is None:
        return replace(base, stored=info.bytes)
    if is_event_time:
        now = newest_stamp(reader.keyed(info.uid, info.state)) or 0
    measured = Measurement(key_groups_of(reader.operator(info.uid)), top, ttl_ms, now)
    for table in reader.keyed(info.uid, info.state):
        measured.add(table)
    return replace(
        base,
        rows=measured.rows,
        bytes=measured.bytes,
        keys=measured.keys,
        stored=info.bytes,
        written=_written(reader, info),
        replaced=0 if info.rows is None else max(0, info.rows - measured.rows),
        key_groups=measured.key_groups,
        largest=measured.largest,
        expired=measured.expired,
    )


def _written(reader: SnapshotReader, info: StateInfo) -> int | None:
    if info.bytes is None:
        return None
    files = (file for handle in reader.chain(info.uid, info.state).handles for file in handle.all_files())
    return sum(file.size for file in files if is_of_checkpoint(file.path, reader.manifest.checkpoint))


def _with_growth(size: StateSize, now: SnapshotReader, before: SnapshotReader, info: StateInfo) -> StateSize:
    old_info = next((i for i in before.states if (i.uid, i.table, i.state) == (info.uid, info.table, info.state)), None)
    if old_info is None:
        return replace(size, growth=Growth(size.rows, size.keys, size.bytes))
    if info.first_key_group is not None and _files(now, info) == _files(before, old_info):
        return replace(size, growth=Growth(0, 0, 0))
    old = _measured(before, old_info, 0, None, False, 0)
    return replace(size, growth=Growth(size.rows - old.rows, size.keys - old.keys, size.bytes - old.bytes))


def _files(reader: SnapshotReader, info: StateInfo) -> list[tuple[str, int, int]]:
    handles = reader.chain(info.uid, info.state).handles if info.table in _READ else ()
    return [(file.path, h.first, h.end) for h in handles for file in h.all_files()]


def _operators(manifest: Manifest, sizes: list[StateSize], uid: str | None) -> list[OperatorSize]:
    found = []
    for operator in manifest.operators:
        own = [size for size in sizes if size.uid == operator.uid]
        files = {f.path: f.size for subtask in operator.subtasks for f in subtask.files()}
        inline = sum(len(e) for subtask in operator.subtasks for h in subtask.elements for e in h.inline)
        if uid in (None, operator.uid):
            rows, size = sum(s.rows for s in own), sum(s.bytes for s in own)
            stored = sum(files.values()) + inline
            found.append(OperatorSize(operator.uid, operator.name, operator.parallelism, rows, size, stored))
    return found
