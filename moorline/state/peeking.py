"""Queries for one key of a state, from outside of the stream.

The backend hands out the rows of the key, as a snapshot would hold them (``state/heap/rows.py``); the side that asked
makes a value of them by the trees of the stored types alone. So a live state, a checkpoint and a savepoint give
the same answer, no class of the job is needed, and nothing in an answer can run.

    value, reducing       the value
    aggregating           the accumulator: what is stored, not what the function would make of it
    list                  a list
    map                   a dict; a list of pairs where the keys cannot be a dict's
    state of windows      a dict from (start, end) to one of the above
    nothing stored        None

A look changes nothing: no time of last access, no mark that something has changed, no cache that a record would
notice. What is over its time to live is not shown. Called between two batches by ``subtask/control/queries.py``, and
for snapshots by ``snapshots/lookup.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from moorline.api.state.descriptors import ListStateDescriptor
from moorline.model import keys
from moorline.model.manifest import ROW_KINDS
from moorline.model.type_tree.tree import Map, StateType, Type
from moorline.state.evolution.untyped import raw_type, to_python
from moorline.state.forms import TIMERS_KIND, Form
from moorline.state.heap.rows import Content, tables_of

#: The kinds of state that can be asked for.
KINDS = frozenset(ROW_KINDS) - {TIMERS_KIND}
#: A list or map with more elements is not for a query: the subtask would stand still for it.
MOST_ELEMENTS = 100_000


class Peeked(NamedTuple):
    """The rows of one key in one state."""

    kind: str
    type: StateType
    #: None: there are none.
    table: pa.Table | None


class TooLarge(ValueError):
    """The key has too much in this state."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"there are at least {count:,} elements under this key, and a query shows up to {MOST_ELEMENTS:,}. "
            f"Read them from a checkpoint or savepoint"
        )


# --- the side that has the state --------------------------------------------------------------


def rows_of(form: Form, content: Content, max_parallelism: int) -> Peeked:
    """The rows of a few entries of a table on the heap."""
    if form.has_elements:
        entries = list(content.entries.values())
        check_count(sum(map(len, entries)))
    return Peeked(form.kind, form.type, joined(tables_of(form, content, max_parallelism)))


def check_count(count: int) -> None:
    """Raise :class:`TooLarge` if there are too many elements for a query."""
    if count > MOST_ELEMENTS:
        raise TooLarge(count)


def joined(tables: Iterable[pa.Table]) -> pa.Table | None:
    """All rows together."""
    filled = [table for table in tables if table.num_rows]
    return pa.concat_tables(filled) if filled else None


# --- the side that asks -----------------------------------------------------------------------


def only_key(table: pa.Table, encoded: bytes) -> pa.Table:
    """The rows of one key among those of a snapshot.

    >>> rows = pa.table({"key": ["a", "b"], "value": [1, 2]})
    >>> only_key(rows, keys.encode("b")).to_pylist(), only_key(rows, keys.encode(2)).num_rows
    ([{'key': 'b', 'value': 2}], 0)
    """
    column = table["key"]
    if pa.types.is_binary(column.type):
        return table.filter(pc.equal(column, pa.scalar(encoded, pa.binary())))
    # A column of ints or texts holds keys of that kind alone, so that any other cannot be in it.
    if encoded[:1] != (b"i" if pa.types.is_int64(column.type) else b"s"):
        return table.slice(0, 0)
    return table.filter(pc.equal(column, pa.scalar(keys.decode(encoded), column.type)))


def value_of(peeked: Peeked) -> Any:
    """The value in the rows of one key, as Python's (``state/evolution/untyped.py``).

    Raises ``ValueError`` if they are not rows of such a state.

    >>> from moorline.model.type_tree.tree import INT
    >>> value_of(Peeked("list", INT, pa.table({"value": [1, 2]})))
    [1, 2]
    """
    table = peeked.table
    if table is None or not table.num_rows:
        return None
    value_type, map_keys = peeked.type, None
    if isinstance(value_type, Map):
        map_keys = _python_values(value_type.key, table["map_key"])
        value_type = value_type.value
    values = _python_values(value_type, table["value"])
    if "namespace" not in table.column_names:
        return _content(peeked.kind, values, map_keys)
    windows: dict[tuple[int, int] | None, list[int]] = {}
    for n, window in enumerate(table["namespace"].to_pylist()):
        windows.setdefault(window and (window["start"], window["end"]), []).append(n)
    return {
        window: _content(peeked.kind, [values[n] for n in places], map_keys and [map_keys[n] for n in places])
        for window, places in windows.items()
    }


def _python_values(stored: Type, column: pa.ChunkedArray) -> list[Any]:
    reader = raw_type(stored)
    if not column.type.equals(reader.arrow):
        raise ValueError(f"a column of {stored} is {reader.arrow}, not {column.type}")
    return [to_python(stored, raw) for raw in reader.from_array(column.combine_chunks())]


def _content(kind: str, values: list[Any], map_keys: list[Any] | None) -> Any:
    if map_keys is not None:
        try:
            return dict(zip(map_keys, values))
        except TypeError:  # a struct is a dict here, which no key of a dict can be
            return list(zip(map_keys, values))
    return values if kind == ListStateDescriptor.kind else values[0]


# --- on the way -------------------------------------------------------------------------------


def to_bytes(table: pa.Table | None) -> bytes:
    """Rows as they travel."""
    if table is None:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_bytes(data: bytes) -> pa.Table | None:
    """The inverse of :func:`to_bytes`. Raises ``ValueError`` (``pa.ArrowInvalid`` is one) for anything else."""
    if not data:
        return None
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()
