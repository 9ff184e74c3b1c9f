"""From the entries of a table on the heap to rows, and back.

A snapshot hands a dict of entries to :func:`tables_of`, off the subtask's thread; a restore hands rows to
:func:`entries_of`. Rows are sorted by key group, key and namespace, and come in tables of bounded size that are cut
between key groups, so that a file holds whole key groups and a large state becomes several files.

    key_group  key  [namespace]  [map_key]  value  [last_access  ttl]  [gone]

Values of a few bytes, such as numbers and tuples of them, are turned into columns in the order in which the table has
them, and the columns are sorted: moving numbers within a column is far quicker than going from one Python object to
another that lies anywhere in memory. Larger ones are sorted first and turned into columns piece by piece, so that no
more than a table of them is there twice.

Keys are a column of ints or of strings if all of them are; else of their encodings (``model/keys/encoding.py``). What
is read back stands for the key as ``model/keys/identity.py`` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from moorline.model import keys
from moorline.protocol.expiry import is_expired
from moorline.state.backend import WHOLE, Namespace, Slices
from moorline.state.forms import Form
from moorline.state.readers import RowReaders
from moorline.state.types.annotations import to_column

#: A table is closed at the first change of key group after so many rows or bytes.
TABLE_ROWS, TABLE_BYTES = 1_000_000, 64 << 20
#: Values are turned into columns in pieces of so many rows or bytes.
FIRST_PIECE_ROWS, PIECE_ROWS, PIECE_BYTES = 256, 8_192, 8 << 20
#: Values whose columns have at most so many bits are sorted as columns, made of so many values at once: what the first
#: of several loops over them has brought into the processor's cache is still there for the others.
NARROW_BITS, NARROW_ROWS = 512, 8_192

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


def tables_of(form: Form, content: Content, max_parallelism: int, slices: Slices = WHOLE) -> Iterator[pa.Table]:
    """The rows of ``content``, sorted, in tables of bounded size. None if there are no rows.

    Nothing goes through all entries in one call of Python's or Arrow's that keeps the interpreter: it is done in
    ``slices``, between which records have their turn. How they are cut makes no difference to the tables.
    """
    index = _index(form, content, max_parallelism, slices)
    order, count = index.order, len(index.order)
    values: list[Any] = []
    for part in _parts(content.entries.values(), slices):
        values += part
    values += [None] * (count - len(values))
    if form.ttl is None and not form.has_elements and _bits(form.value.arrow) <= NARROW_BITS:
        yield from _narrow_tables(form, index, values, slices)
        return
    upto = _rows_upto(form, order, values, slices)
    waiting: list[pa.Table] = []
    first = rows = size = 0
    most = FIRST_PIECE_ROWS
    while first < count:
        done = int(upto[first - 1]) if first else 0
        stop = min(max(int(np.searchsorted(upto, done + min(most, slices.rows), "right")), first + 1), count)
        piece = _piece(form, content, index, first, stop, [values[n] for n in order[first:stop].tolist()])
        waiting.append(piece)
        rows, size = rows + piece.num_rows, size + piece.nbytes
        is_end_of_group = stop == count or index.groups[stop] != index.groups[stop - 1]
        if piece.num_rows:
            most = min(PIECE_ROWS, PIECE_BYTES * piece.num_rows // piece.nbytes + 1)
        slices.done(int(upto[stop - 1]) - done)
        first = stop
        if is_end_of_group and (rows >= TABLE_ROWS or size >= TABLE_BYTES):
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, rows, size = [], 0, 0
    if rows:
        yield pa.concat_tables(waiting).combine_chunks()


def _parts(whole: Iterable[Any], slices: Slices) -> Iterator[list[Any]]:
    """All of it, in lists as long as a slice."""
    iterator = iter(whole)
    while part := list(islice(iterator, slices.rows)):
        yield part
        slices.done(len(part))


def _bits(arrow: pa.DataType) -> int:
    """The size of a value in a column; very many if that is not the same for all."""
    if pa.types.is_struct(arrow):
        return sum(_bits(field.type) for field in arrow)
    return arrow.bit_width if pa.types.is_primitive(arrow) else 1 << 30


def _narrow_tables(form: Form, index: _Index, values: list[Any], slices: Slices) -> Iterator[pa.Table]:
    if not values:
        return
    pieces, first = [], 0
    while first < len(values):
        part = values[first : first + min(NARROW_ROWS, slices.rows)]
        pieces.append(to_column(form.value, part, form.state))
        first += len(part)
        slices.done(len(part))
    columns = {"key_group": pa.array(index.groups, pa.int32()), "key": index.key}
    if index.namespace is not None:
        columns["namespace"] = index.namespace
    columns["value"] = pa.concat_arrays(pieces).take(pa.array(index.order))
    if index.gone is not None:
        columns["gone"] = pa.array(index.gone)
    table = pa.table(columns)
    most = min(TABLE_ROWS, TABLE_BYTES * table.num_rows // table.nbytes + 1)
    ends, first = np.flatnonzero(np.diff(index.groups, append=-1)) + 1, 0
    while first < table.num_rows:
        stop = int(ends[min(int(np.searchsorted(ends, first + most)), len(ends) - 1)])
        yield table.slice(first, stop - first)
        first = stop


@dataclass(frozen=True)
class _Index:
    """The place of each entry. All columns are sorted; ``order`` says which entry each place is taken by."""

    order: Places
    groups: Places
    key: pa.Array
    namespace: pa.Array | None
    gone: npt.NDArray[np.bool_] | None


def _index(form: Form, content: Content, max_parallelism: int, slices: Slices) -> _Index:
    key_parts: list[list[Any]] = []
    spans: dict[str, list[pa.Array]] = {"start": [], "end": []}
    for part in _parts(chain(content.entries, content.gone or ()), slices):
        if form.is_windowed:
            for n, parts in enumerate(spans.values()):
                parts.append(pa.array([None if space is None else space[n] for _, space in part], pa.int64()))
            part = [ident[0] for ident in part]
        key_parts.append(part)
    column, groups = _keys(key_parts, max_parallelism, slices)
    sort_by = {"group": pa.array(groups), "key": column}
    namespace = None
    if form.is_windowed:
        sort_by |= {name: pa.concat_arrays(parts or [pa.array([], pa.int64())]) for name, parts in spans.items()}
        parts = [sort_by["start"], sort_by["end"]]
        namespace = pa.StructArray.from_arrays(parts, fields=list(NAMESPACE), mask=parts[0].is_null())
    if namespace is None and pa.types.is_int64(column.type):
        places = _int_order(column.to_numpy(), groups)
        order = pa.array(places)
    else:
        order = pc.sort_indices(pa.table(sort_by), [(name, "ascending") for name in sort_by])
        places = order.to_numpy()
    return _Index(
        places,
        groups[places],
        column.take(order),
        None if namespace is None else namespace.take(order),
        None if content.gone is None else places >= len(content.entries),
    )


def _int_order(numbers: Places, groups: Places) -> Places:
    """The order by key group and number. A stable sort is quick where numbers come nearly in order, and for groups."""
    by_number = np.argsort(numbers, kind="stable")
    return np.asarray(by_number[np.argsort(groups[by_number].astype(np.uint16), kind="stable")])


def _keys(key_parts: list[list[Any]], max_parallelism: int, slices: Slices) -> tuple[pa.Array, Places]:
    """A column of keys and their key groups."""
    kinds: set[type] = set()
    for part in key_parts:
        kinds.update(map(type, part))
    columns: list[pa.Array] = []
    groups: list[Places] = []
    if kinds == {int}:
        try:
            for part in key_parts:
                numbers = np.array(part, np.int64)
                columns.append(pa.array(numbers))
                groups.append(keys.int_key_groups(numbers, max_parallelism))
                slices.done(len(part))
            return pa.concat_arrays(columns), np.concatenate(groups)
        except OverflowError:
            columns, groups = [], []
    for part in key_parts:
        encoded = list(map(keys.encode, part))
        of_part = (keys.encoded_key_group(e, max_parallelism) for e in encoded)
        groups.append(np.fromiter(of_part, np.int64, len(encoded)))
        columns.append(pa.array(part, pa.string()) if kinds == {str} else pa.array(encoded, pa.binary()))
        slices.done(len(part))
    if not columns:
        return pa.array([], pa.binary()), np.array([], np.int64)
    return pa.concat_arrays(columns), np.concatenate(groups)


def _rows_upto(form: Form, order: Places, values: list[Any], slices: Slices) -> Places:
    """The number of rows up to each place and with it."""
    if not form.has_elements:
        return np.arange(1, len(order) + 1)
    lengths = np.empty(len(order), np.int64)
    for first in range(0, len(order), step := slices.rows):
        places = order[first : first + step].tolist()
        lengths[first : first + len(places)] = [1 if (v := values[n]) is None else len(v) for n in places]
        slices.done(len(places))
    return np.cumsum(lengths)


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
    return list(zip(column, namespaces_of(table["namespace"]), strict=True)) if form.is_windowed else column


def namespaces_of(column: pa.ChunkedArray) -> list[Namespace]:
    """The windows in a column of them."""
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
