"""The differences of two snapshots: states that came or went, and rows, by key.

Both are walked through side by side, one range of key groups after the other, so memory is bounded by the largest key
group. Where both name the same files nothing is read at all; that makes two checkpoints of one job cheap to compare.
Values are compared as they are stored: two snapshots are the same exactly if a job could not tell them apart. When a
state was last accessed is left out: time passes in every state that is read.

What has a key comes first: between two checkpoints every position of a source has moved, and it is seldom what one
looks for. Plain data is shown as the values that it stands for; reading it runs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from moorline.model import keys
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import NativeHandle, RawHandle
from moorline.model.options import checks_options
from moorline.snapshots.tables.catalog import StateInfo
from moorline.snapshots.tables.reader import SnapshotReader
from moorline.state.folding import with_encoded_keys
from moorline.state.types import plain

#: Ranges of key groups hold about so many rows.
PIECE_ROWS = 100_000


@dataclass(frozen=True)
class Change:
    """One difference. ``what`` is added, removed or changed: a state as such, or what is under a key or entry of it.

    >>> print(Change("changed", "count", "seen", key="a", before=1, after=2))
    changed: 'count' 'seen' key 'a': 1 -> 2
    """

    what: str
    uid: str
    state: str
    key: Any = None
    #: Of a window: its start and end.
    window: tuple[int, int] | None = None
    #: The value; of a list, all elements; of a map, the entry's; of a state, its kind and type. None if there is none.
    before: Any = None
    after: Any = None
    #: In a map, the key of the entry.
    map_key: Any = None

    def __str__(self) -> str:
        where = f"{self.uid!r} {self.state!r}"
        where += f" key {self.key!r}" if self.key is not None else ""
        where += f" window {self.window}" if self.window is not None else ""
        where += f" entry {self.map_key!r}" if self.map_key is not None else ""
        said = {"added": f"{self.after!r}", "removed": f"{self.before!r}"}
        return f"{self.what}: {where}: {said.get(self.what, f'{self.before!r} -> {self.after!r}')}"


@checks_options()
def diff_snapshots(before: str, after: str) -> Iterator[Change]:
    """The differences between the snapshots at two URLs: savepoints, or jobs' newest checkpoints.

    >>> import moorline as mo
    >>> count = mo.ValueStateDescriptor("count", int)
    >>> for folder, number in (("memory://yesterday", 1), ("memory://today", 2)):
    ...     rows = [{"who": "ada", "value": number}]
    ...     _ = mo.SnapshotWriter(folder, job="shop").keyed("orders", count, rows, key="who").write()
    >>> for change in mo.diff_snapshots("memory://yesterday", "memory://today"):
    ...     print(change)
    changed: 'orders' 'count' key 'ada': 1 -> 2
    """
    return diff(SnapshotReader.open(before), SnapshotReader.open(after))


def diff(a: SnapshotReader, b: SnapshotReader) -> Iterator[Change]:
    """The changes that would make ``b`` from ``a``."""
    before, after = _by_name(a), _by_name(b)
    infos = before | after
    for name in sorted(dict.fromkeys([*before, *after]), key=lambda name: infos[name].first_key_group is None):
        old, new = before.get(name), after.get(name)
        uid, _, state = name
        if old is None or new is None:
            # Native files list states that are empty, and rows of them would not be there at all.
            if _is_empty(a if new is None else b, old or new):
                continue
            yield Change("added" if old is None else "removed", uid, state, before=_said(old), after=_said(new))
        elif _said(old) != _said(new):
            yield Change("changed", uid, state, before=_said(old), after=_said(new))
        elif old.first_key_group is None:
            yield from _elements(a, b, old)
        else:
            yield from _rows(a, b, old)


def _is_empty(reader: SnapshotReader, info: StateInfo | None) -> bool:
    if info is None or info.rows is not None:
        return info is not None and info.rows == 0
    return not any(table.num_rows for table in reader.keyed(info.uid, info.state))


def _by_name(reader: SnapshotReader) -> dict[tuple[str, str, str], StateInfo]:
    return {(i.uid, i.table, i.state): i for i in reader.states if i.table not in ("files", "in_flight")}


def _said(info: StateInfo | None) -> str | None:
    if info is None:
        return None
    groups = "" if info.first_key_group is None else f" in {info.max_parallelism} key groups"
    return f"{info.kind} of {info.type}{groups}"


# --- keyed --------------------------------------------------------------------------------------


def _rows(a: SnapshotReader, b: SnapshotReader, info: StateInfo) -> Iterator[Change]:
    uid, state = info.uid, info.state
    before, after = a.chain(uid, state), b.chain(uid, state)
    if before.handles == after.handles:
        return
    rows = max(sum(h.rows for h in chain.handles if not isinstance(h, NativeHandle)) for chain in (before, after))
    count = 1 + rows // PIECE_ROWS
    width = max(1, -(-info.max_parallelism // count))
    for first in range(0, info.max_parallelism, width):
        piece = KeyGroupRange(first, min(first + width, info.max_parallelism))
        # The same handles in a range are the same rows.
        if [h for h in before.handles if _touches(h, piece)] == [h for h in after.handles if _touches(h, piece)]:
            continue
        tables = [_piece(reader, info, piece) for reader in (a, b)]
        if tables[0].equals(tables[1]):  # whole columns at a time: most of two snapshots is the same
            continue
        old, new = (_grouped(table, info) for table in tables)
        for ident in dict.fromkeys([*old, *new]):
            yield from _change(info, ident, old.get(ident), new.get(ident))


def _touches(handle: Any, piece: KeyGroupRange) -> bool:
    return bool(piece & KeyGroupRange(handle.first, handle.end))


def _change(info: StateInfo, ident: tuple[Any, Any, Any], old: Any, new: Any) -> Iterator[Change]:
    if old == new:
        return
    encoded, window, _ = ident
    map_key = None
    match info.kind:
        case "timers":
            old, new = sorted(old or []) or None, sorted(new or []) or None
            if old == new:
                return
        case "list":
            old, new = ([_shown(info, v) for v in vs] if vs else None for vs in (old, new))
        case "map":
            map_key = (new or old)[0][0]
            old, new = (None if vs is None else _shown(info, vs[0][1]) for vs in (old, new))
        case _:
            old, new = (None if vs is None else _shown(info, vs[0]) for vs in (old, new))
    what = "added" if old is None else "removed" if new is None else "changed"
    key = _key(encoded) if isinstance(encoded, bytes) else encoded
    yield Change(what, info.uid, info.state, key, window, old, new, map_key)


def _piece(reader: SnapshotReader, info: StateInfo, piece: KeyGroupRange) -> pa.Table:
    """The rows of a range of key groups, without what does not count."""
    columns = reader.columns("keyed", info.uid, info.state)
    rows = pa.concat_tables([columns.empty_table(), *reader.keyed(info.uid, info.state, piece)])
    return rows.select([name for name in columns.names if name not in ("last_access", "ttl")]).combine_chunks()


def _grouped(table: pa.Table, info: StateInfo) -> dict[tuple[Any, Any, Any], list[Any]]:
    """The values under each key, namespace and map key."""
    groups: dict[tuple[Any, Any, Any], list[Any]] = {}
    idents = table["key_group"] if info.kind == RawHandle.kind else with_encoded_keys(table)["key"]
    windows: list[Any] = [None] * len(table)
    if "namespace" in table.column_names:
        windows = [None if n is None else (n["start"], n["end"]) for n in table["namespace"].to_pylist()]
    values = table["value"].to_pylist()
    entries: list[Any] = [None] * len(table)
    if "map_key" in table.column_names:
        map_keys = table["map_key"].to_pylist()
        # A struct as a map key is a dict here, which cannot be looked up.
        entries, values = [repr(k) for k in map_keys], list(zip(map_keys, values))
    for key, window, entry, value in zip(idents.to_pylist(), windows, entries, values):
        groups.setdefault((key, window, entry), []).append(value)
    return groups


def _key(encoded: bytes) -> Any:
    try:
        return keys.decode(encoded)
    except ValueError:  # of a class that only the job knows
        return encoded


# --- without a key ------------------------------------------------------------------------------


def _elements(a: SnapshotReader, b: SnapshotReader, info: StateInfo) -> Iterator[Change]:
    """Lists are compared as bags: how the elements are dealt out depends on the parallelism alone."""
    uid, state = info.uid, info.state
    old, new = (_read(reader, info) for reader in (a, b))
    if info.table == "broadcast":
        yield from _entries(info, *([(r["map_key"], r["value"]) for r in t.to_pylist()] for t in (old, new)))
        return
    before, after = ([_shown(info, v) for v in t["value"].to_pylist()] for t in (old, new))
    if _are_positions(info, [*before, *after]):
        yield from _entries(info, before, after)
        return
    counts, others = Counter(map(repr, before)), Counter(map(repr, after))
    shown = {repr(v): v for v in [*before, *after]}
    for name in (counts - others).elements():
        yield Change("removed", uid, state, before=shown[name])
    for name in (others - counts).elements():
        yield Change("added", uid, state, after=shown[name])


def _entries(info: StateInfo, before: list[Any], after: list[Any]) -> Iterator[Change]:
    """Pairs of a map key and a value, compared as maps."""
    olds, news = ({repr(key): (key, value) for key, value in pairs} for pairs in (before, after))
    for name in dict.fromkeys([*olds, *news]):
        old, new = olds.get(name), news.get(name)
        if old != new:
            what = "added" if old is None else "removed" if new is None else "changed"
            entry = (old or new or (None,))[0]
            removed, added = (None if pair is None else pair[1] for pair in (old, new))
            yield Change(what, info.uid, info.state, before=removed, after=added, map_key=entry)


def _are_positions(info: StateInfo, elements: list[Any]) -> bool:
    """Is it how far a source is in each of its splits (``subtask/operators/source.py``)?"""
    is_ours = (info.table, info.kind, info.state, info.type) == ("operator", "union", "positions", "plain")
    return is_ours and all(isinstance(e, list) and len(e) == 2 and isinstance(e[0], (int, str)) for e in elements)


def _shown(info: StateInfo, value: Any) -> Any:
    """A value for people: plain data as what it stands for."""
    if info.type != "plain" or not isinstance(value, bytes):
        return value
    try:
        return plain.decode(value)
    except ValueError:  # not what it says that it is; the bytes tell more than an error
        return value


def _read(reader: SnapshotReader, info: StateInfo) -> pa.Table:
    table = "raw" if info.table == "raw" else info.table
    columns = reader.columns(table, info.uid, info.state)
    tables = list(reader.read(table, info.uid, info.state))
    if info.table == "raw":  # raw keyed state is compared by key group
        tables = [t.filter(t["subtask"].is_valid()) for t in tables]
    return pa.concat_tables(tables) if tables else columns.empty_table()
