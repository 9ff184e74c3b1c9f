"""From the entries of a table on the heap to rows, and back.

A snapshot hands a dict of entries to :func:`tables_of`, off the subtask's thread; a restore hands rows to
:func:`entries_of`. Rows are sorted by key group, key and namespace, and come in tables of bounded size that are cut
between key groups, so that a file holds whole key groups and a large state becomes several files.

    key_group  key  [namespace]  [map_key]  value  [last_access  ttl]  [gone]

Keys are a column of ints or of strings if all of them are; else of their encodings (``model/keys/encoding.py``). What
is read back stands for the key as ``model/keys/identity.py`` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from moorline.model import keys
from moorline.protocol.expiry import is_expired
from moorline.state.backend import Namespace
from moorline.state.forms import Form
from moorline.state.readers import RowReaders
from moorline.state.types.annotations import to_column

#: A table is closed at the first change of key group after so many rows or bytes.
TABLE_ROWS, TABLE_BYTES = 1_000_000, 64 << 20
#: Values are turned into columns in pieces of so many rows or bytes.
FIRST_PIECE_ROWS, PIECE_ROWS, PIECE_BYTES = 256, 65_536, 8 << 20

NAMESPACE = pa.struct([pa.field("start", pa.int64()), pa.field("end", pa.int64())])

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Content:
    """The content of one table that a snapshot has taken. Nothing in it changes any more."""

    entries: dict[Any, Any]
    #: In an increment: what was there before and is not any more. None: this is everything there is.
    gone: Sequence[Any] | None = None
    #: Leave out what is over its time now. None: leave out nothing.
    expired_at: int | None = None


# --- writing ----------------------------------------------------------------------------------


def tables_of(form: Form, content: Content, max_parallelism: int) -> Iterator[pa.Table]:
    """The rows of ``content``, sorted, in tables of bounded size. None if there are no rows."""
    index = _index(form, content, max_parallelism)
    order = index.order.tolist()
    values = list(content.entries.values())
    values += [None] * (len(order) - len(values))
    ends, upto = _key_groups(form, index, values)
    waiting: list[pa.Table] = []
    first = done = rows = size = 0
    piece_rows = FIRST_PIECE_ROWS
    while first < len(order):
        last = min(int(np.searchsorted(upto, done + piece_rows)), len(ends) - 1)
        stop = int(ends[last])
        piece = _piece(form, content, index, first, stop, [values[n] for n in order[first:stop]])
        waiting.append(piece)
        first, done, rows, size = stop, int(upto[last]), rows + piece.num_rows, size + piece.nbytes
        if piece.num_rows:
            piece_rows = min(PIECE_ROWS, PIECE_BYTES * piece.num_rows // piece.nbytes + 1)
        if rows >= TABLE_ROWS or size >= TABLE_BYTES:
            yield pa.concat_tables(waiting)
            waiting, rows, size = [], 0, 0
    if rows:
        yield pa.concat_tables(waiting)


@dataclass(frozen=True)
class _Index:
    """The place of each entry. All columns are sorted; ``order`` says which entry each place is taken by."""

    order: Places
    groups: Places
    key: pa.Array
    namespace: pa.Array | None
    gone: npt.NDArray[np.bool_] | None


def _index(form: Form, content: Content, max_parallelism: int) -> _Index:
    idents = [*content.entries, *(content.gone or ())]
    column, groups = _keys([i[0] for i in idents] if form.is_windowed else idents, max_parallelism)
    sort_by = {"group": pa.array(groups), "key": column}
    namespace = None
    if form.is_windowed:
        for n, name in enumerate(("start", "end")):
            sort_by[name] = pa.array([None if space is None else space[n] for _, space in idents], pa.int64())
        parts = [sort_by["start"], sort_by["end"]]
        namespace = pa.StructArray.from_arrays(parts, fields=list(NAMESPACE), mask=parts[0].is_null())
    order = pc.sort_indices(pa.table(sort_by), [(name, "ascending") for name in sort_by])
    places = order.to_numpy()
    return _Index(
        places,
        groups[places],
        column.take(order),
        None if namespace is None else namespace.take(order),
        None if content.gone is None else places >= len(content.entries),
    )


def _keys(key_objects: list[Any], max_parallelism: int) -> tuple[pa.Array, Places]:
    """A column of keys and their key groups."""
    kinds = set(map(type, key_objects))
    if kinds == {int}:
        try:
            numbers = np.array(key_objects, np.int64)
            return pa.array(numbers), keys.int_key_groups(numbers, max_parallelism)
        except OverflowError:
            pass
    encoded = list(map(keys.encode, key_objects))
    groups = np.fromiter((keys.encoded_key_group(e, max_parallelism) for e in encoded), np.int64, len(encoded))
    return pa.array(key_objects, pa.string()) if kinds == {str} else pa.array(encoded, pa.binary()), groups


def _key_groups(form: Form, index: _Index, values: list[Any]) -> tuple[Places, Places]:
    """The end of each key group: the place after its last entry, and how many rows there are up to it."""
    ends = np.flatnonzero(np.diff(index.groups, append=-1)) + 1
    if not form.has_elements:
        return ends, ends
    lengths = np.fromiter((1 if (v := values[n]) is None else len(v) for n in index.order), np.int64, len(values))
    return ends, np.cumsum(lengths)[ends - 1]


def _piece(form: Form, content: Content, index: _Index, first: int, stop: int, values: list[Any]) -> pa.Table:
    """The rows of some entries."""
    # Which of the entries each row belongs to.
    places = np.arange(first, stop)
    map_keys: list[Any] = []
    if form.has_elements:
        lengths = np.fromiter((1 if v is None else len(v) for v in values), np.int64, len(values))
        places = np.repeat(places, lengths)
        if form.is_map:
            map_keys = [k for v in values for k in (v if v is not None else (None,))]
            values = [x for v in values for x in (v.values() if v is not None else (None,))]
        elif form.is_timers:
            values = [x for v in values for x in (sorted(v) if v is not None else (None,))]
        else:
            values = [x for v in values for x in (v if v is not None else (None,))]
    if content.expired_at is not None and form.ttl is not None:
        length, now = form.ttl.length_ms, content.expired_at
        kept = [n for n, s in enumerate(values) if s is None or not is_expired(s[1], s[2] or length, now)]
        if len(kept) < len(values):
            places, values = places[kept], [values[n] for n in kept]
            map_keys = [map_keys[n] for n in kept] if map_keys else []
    columns = {"key_group": pa.array(index.groups[places], pa.int32()), "key": index.key.take(pa.array(places))}
    if index.namespace is not None:
        columns["namespace"] = index.namespace.take(pa.array(places))
    if form.map_key is not None:
        columns["map_key"] = to_column(form.map_key, map_keys, form.state)
    if form.ttl is None:
        columns["value"] = to_column(form.value, values, form.state)
    else:
        stamped = [(None, None, None) if s is None else s for s in values]
        columns["value"] = to_column(form.value, [s[0] for s in stamped], form.state)
        columns["last_access"] = pa.array([s[1] for s in stamped], pa.int64())
        columns["ttl"] = pa.array([s[2] for s in stamped], pa.int64())
    if index.gone is not None:
        columns["gone"] = pa.array(index.gone[places])
    return pa.table(columns)


# --- reading ----------------------------------------------------------------------------------


@dataclass
class HandleEntries:
    """The entries in the rows of one handle, and the keys that it says are gone."""

    entries: dict[Any, Any] = field(default_factory=dict)
    gone: list[Any] = field(default_factory=list)


def entries_of(form: Form, readers: RowReaders, tables: Iterable[pa.Table]) -> HandleEntries:
    """The entries in the rows of one handle."""
    taken = HandleEntries()
    for table in tables:
        if "gone" in table.column_names:
            is_gone = pc.fill_null(table["gone"], False)
            taken.gone += _idents(form, table.filter(is_gone))
            table = table.filter(pc.invert(is_gone))
        if table.num_rows:
            _take_in(form, readers, table, taken)
    return taken


def _take_in(form: Form, readers: RowReaders, table: pa.Table, taken: HandleEntries) -> None:
    values: list[Any] = _values(form, readers, table)
    if not form.has_elements:
        taken.entries.update(zip(_idents(form, table), values))
        return
    starts, into = _starts(form, table), taken.entries
    grouped = _grouped(form, readers, table, values, starts)
    for ident, value in zip(_idents(form, table.take(pa.array(starts))), grouped, strict=True):
        if ident in into:  # its rows began in the table before
            into[ident] = into[ident] + value if form.is_list else into[ident] | value
        else:
            into[ident] = value


def _idents(form: Form, table: pa.Table) -> list[Any]:
    """The identity of each row's entry."""
    column: list[Any] = table["key"].to_pylist()
    if pa.types.is_binary(table["key"].type):
        column = list(map(keys.decode_identity, column))
    return list(zip(column, _namespaces(table["namespace"]), strict=True)) if form.is_windowed else column


def _namespaces(column: pa.ChunkedArray) -> list[Namespace]:
    spans = zip(*(pc.struct_field(column, name).to_pylist() for name in ("start", "end")), strict=True)
    return [None if span[0] is None else span for span in spans]


def _values(form: Form, readers: RowReaders, table: pa.Table) -> list[Any]:
    values: list[Any] = readers.value.from_array(table["value"].combine_chunks())
    if form.ttl is None:
        return values
    if "last_access" not in table.column_names:  # from before it had a time to live
        return [(v, None, None) for v in values]
    return list(zip(values, table["last_access"].to_pylist(), table["ttl"].to_pylist(), strict=True))


def _starts(form: Form, table: pa.Table) -> Places:
    """The first row of each entry."""
    changes = _changes(table["key"])
    if form.is_windowed:
        namespace = table["namespace"].combine_chunks()
        changes |= _changes(pc.is_null(namespace))
        for field in ("start", "end"):
            changes |= _changes(pc.fill_null(pc.struct_field(namespace, field), 0))
    return np.flatnonzero(np.concatenate(([True], changes)))


def _changes(column: Any) -> npt.NDArray[np.bool_]:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not pa.types.is_int64(column.type):
        column = column.dictionary_encode().indices
    codes = column.to_numpy(zero_copy_only=False)
    return np.asarray(codes[1:] != codes[:-1])


def _grouped(form: Form, readers: RowReaders, table: pa.Table, values: list[Any], starts: Places) -> Iterator[Any]:
    """The values of each entry, together."""
    ends = [*starts[1:].tolist(), len(values)]
    map_key = readers.map_key
    inner = None if map_key is None else map_key.from_array(table["map_key"].combine_chunks())
    for start, end in zip(starts.tolist(), ends):
        if inner is not None:
            yield dict(zip(inner[start:end], values[start:end]))
        else:
            yield set(values[start:end]) if form.is_timers else values[start:end]
