"""From slots of a table to rows, in the form of any other keyed state (``state/heap/rows.py``).

A snapshot copies the slots that it needs, so the stream may go on at once; rows are made of the copy off the subtask's
thread. They are sorted by key group, key and window. A key that was removed, and is there again, is not gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from moorline.model import keys as key_encoding
from moorline.state.columns.index import Slots
from moorline.state.columns.removed import UNKNOWN, Idents, Ints
from moorline.state.columns.stamps import stamp_columns
from moorline.state.heap.rows import NAMESPACE
from moorline.state.types.leaf import StoredType

#: A table is closed at the first change of key group after so many rows.
TABLE_ROWS = 1_000_000

#: Values by slot, where there are any, and their stored form; None: as Arrow has numbers anyway.
Values = tuple[npt.NDArray[Any], npt.NDArray[np.bool_], StoredType | None]


@dataclass(frozen=True)
class Copied:
    """Some rows of a table as they were. Nothing in it changes any more."""

    idents: Idents
    columns: list[Values]
    is_increment: bool
    #: Keys that have nothing left. Some may be here twice, or have something again.
    gone: Sequence[Idents] = field(default=())
    #: When each was last touched, where there is a time to live.
    stamps: Ints | None = None

    def __len__(self) -> int:
        return len(self.idents) + sum(map(len, self.gone))


def array_of(
    values: npt.NDArray[Any], has: npt.NDArray[np.bool_], arrow: pa.DataType, stored: StoredType | None = None
) -> pa.Array:
    """A column of values, null where there is none. ``stored``: in this form, which ``arrow`` is the type of."""
    if values.dtype == object:
        objects = [value if there else None for value, there in zip(values, has, strict=True)]
        return pa.array(objects, arrow) if stored is None else stored.to_array(objects)
    return pa.array(values, arrow, mask=None if has.all() else ~has)


def rows_of(copied: Copied, arrow: pa.DataType, max_parallelism: int) -> Iterator[pa.Table]:
    """The rows of a copy, sorted, in tables of bounded size. ``arrow``: the type of a value; a struct has fields."""
    if not len(copied):
        return
    parts = [copied.idents, *copied.gone]
    column = _key_column([part.keys for part in parts])
    groups = np.concatenate([_groups(part, max_parallelism) for part in parts])
    is_gone = np.arange(len(groups)) >= len(copied.idents)
    ranks = [is_gone, _sortable(column)]
    spans = None
    if copied.idents.spans is not None:
        spans = [np.concatenate([part.spans[n] for part in parts]) for n in (0, 1)]  # type: ignore[index]
        ranks = [is_gone, spans[1], spans[0], ranks[1]]
    order = np.lexsort((*ranks, groups))
    if copied.gone:
        is_same = np.zeros(len(order), np.bool_)
        is_same[1:] = np.all([rank[order[1:]] == rank[order[:-1]] for rank in ranks[1:]], axis=0)
        order = order[~(is_same & is_gone[order])]
    groups = groups[order]
    ends = np.flatnonzero(np.diff(groups, append=-1)) + 1
    first = 0
    while first < len(order):
        # A file holds whole key groups.
        stop = int(ends[np.searchsorted(ends, min(first + TABLE_ROWS, len(order)))])
        chosen = order[first:stop]
        columns = {"key_group": pa.array(groups[first:stop], pa.int32()), "key": column.take(pa.array(chosen))}
        if spans is not None:
            columns["namespace"] = pa.StructArray.from_arrays(
                [pa.array(part[chosen]) for part in spans], fields=list(NAMESPACE)
            )
        columns["value"] = _values(copied, arrow, chosen, is_gone[chosen])
        if copied.stamps is not None:
            # Of what is gone, any.
            columns |= stamp_columns(np.append(copied.stamps, 0)[np.minimum(chosen, len(copied.stamps))])
        if copied.is_increment:
            columns["gone"] = pa.array(is_gone[chosen])
        yield pa.table(columns)
        first = stop


def _groups(part: Idents, max_parallelism: int) -> Ints:
    """The key group of each key."""
    groups = part.groups.copy()
    for place in np.flatnonzero(groups == UNKNOWN).tolist():
        groups[place] = key_encoding.key_group(part.keys[place], max_parallelism)
    return groups


def _values(copied: Copied, arrow: pa.DataType, order: Slots, is_gone: npt.NDArray[np.bool_]) -> pa.Array:
    places = np.where(is_gone, 0, order)
    if not len(copied.idents):
        return pa.nulls(len(order), arrow)
    kept = [(values[places], has[places] & ~is_gone, stored) for values, has, stored in copied.columns]
    if not pa.types.is_struct(arrow):
        (values, has, stored) = kept[0]
        return array_of(values, has, arrow, stored)
    fields = [array_of(values, has, part.type, stored) for (values, has, stored), part in zip(kept, arrow, strict=True)]
    return pa.StructArray.from_arrays(fields, fields=list(arrow), mask=pa.array(is_gone) if is_gone.any() else None)


def _key_column(parts: list[list[Any] | Ints]) -> pa.Array:
    if all(isinstance(part, np.ndarray) for part in parts):
        return pa.array(np.concatenate(parts))
    keys: list[Any] = [key for part in parts for key in (part.tolist() if isinstance(part, np.ndarray) else part)]
    if set(map(type, keys)) == {str}:
        return pa.array(keys, pa.string())
    return pa.array(list(map(key_encoding.encode, keys)), pa.binary())


def _sortable(column: pa.Array) -> npt.NDArray[Any]:
    """Numbers that sort as the keys do, the same for equal ones."""
    if pa.types.is_int64(column.type):
        return np.asarray(column)
    ranks = pa.compute.rank(column, tiebreaker="dense")
    return np.asarray(ranks.to_numpy(), np.int64)
