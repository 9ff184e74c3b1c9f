"""Columns on their way to an operator are stored as plain rows, with their times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from moorline.model.columns import ColumnBatch, TimeColumn
from moorline.model.wire import elements
from moorline.model.wire.elements import BATCH, HEAD
from moorline.subtask.snapshot.in_flight import Origin, Waiting, _decode


def test_rows_with_times_need_no_pickle() -> None:
    batch = ColumnBatch(pa.RecordBatch.from_pydict({"user": ["ada", "bob"]}))
    part = elements.pack_any(batch, TimeColumn(np.array([5, 7])))  # type: ignore[arg-type]  # a sequence will do
    frame = HEAD.pack(BATCH, 1, 0, 0, 0, 0) + part
    copies: Any = [[frame]]
    (element,), count, is_pickled = Waiting(Origin("windows", "rows", None, 0, "hash"), copies).encode()
    assert (count, is_pickled) == (2, False)
    assert _decode(element, False, "here") == ([{"user": "ada"}, {"user": "bob"}], [5, 7])
