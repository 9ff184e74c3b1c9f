"""Rows of a snapshot that has another number of key groups than the job: which of them are ours now?

A key group is a range of hashes, so the keys of our key groups are in one range of the snapshot's
(``model/key_groups.py``, ``covering``), and only the rows of those are read. At the ends of that range are rows of our
neighbours, so each row's key is hashed again. It works on rows and looks at nothing but keys: values, lists, maps,
windows and timers are all the same here, and so are the backends. ``subtask/restore/chain.py`` calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from moorline.errors import SnapshotCorrupt
from moorline.model import keys
from moorline.model.key_groups import KeyGroupRange
from moorline.state.backend import RestoredRows


def filter_to_key_groups(rows: RestoredRows, key_groups: KeyGroupRange, max_parallelism: int) -> RestoredRows:
    """The same, with those rows alone whose keys are in ``key_groups`` of ``max_parallelism`` key groups."""

    def tables() -> Iterator[pa.Table]:
        for table in rows.tables():
            if "key" not in table.column_names:
                path = rows.handle.file.path if rows.handle.file is not None else rows.handle.state
                raise SnapshotCorrupt(path, "it has no key column")
            groups = _key_groups(table["key"], max_parallelism)
            is_kept = (groups >= key_groups.first) & (groups < key_groups.end)
            column = table.schema.get_field_index("key_group")
            table = table.set_column(column, "key_group", pa.array(groups, table["key_group"].type))
            yield table.filter(pa.array(is_kept))

    return replace(rows, handle=rows.handle.cut(key_groups.first, key_groups.end), tables=tables)


def _key_groups(column: pa.ChunkedArray, max_parallelism: int) -> npt.NDArray[np.int64]:
    """The key group of each key. Several rows may have the same key, and then they follow each other."""
    if pa.types.is_int64(column.type) and not column.null_count:
        return keys.int_key_groups(column.to_numpy(), max_parallelism)
    encode: Callable[[Any], bytes] = bytes if pa.types.is_binary(column.type) else keys.encode
    known: dict[Any, int] = {}
    groups = np.empty(len(column), np.int64)
    for number, key in enumerate(column.to_pylist()):
        group = known.get(key)
        if group is None:
            group = known[key] = keys.encoded_key_group(encode(key), max_parallelism)
        groups[number] = group
    return groups
