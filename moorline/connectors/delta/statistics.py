"""Statistics of a staged file, as a Delta table's log has them: readers leave out files by them."""

from __future__ import annotations

import json
import math
from datetime import date
from typing import Any

import pyarrow.parquet as pq

#: Longer texts would have to be cut, and a cut maximum is not one.
LONGEST_TEXT = 32


def of_file(metadata: pq.FileMetaData) -> str:
    """The number of rows; for each column of simple values the least, the greatest and the number of nulls."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for column in range(metadata.num_columns):
        name = metadata.schema.column(column).path
        if "." in name:
            continue  # a part of a nested value
        chunks = [metadata.row_group(group).column(column).statistics for group in range(metadata.num_row_groups)]
        if any(chunk is None or not chunk.has_null_count for chunk in chunks):
            continue
        nulls[name] = sum(chunk.null_count for chunk in chunks)
        bounds = [(chunk.min, chunk.max) for chunk in chunks if chunk.has_min_max]
        all_null = [chunk for chunk in chunks if not chunk.has_min_max and chunk.num_values]
        if bounds and not all_null and all(_is_plain(value) for pair in bounds for value in pair):
            least[name], greatest[name] = min(low for low, _ in bounds), max(high for _, high in bounds)
    found = {"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}
    return json.dumps(found, default=_as_text)


def _is_plain(value: Any) -> bool:
    """Can it be written to the log so that every reader takes it for the same value?"""
    match value:
        case bool():
            return False
        case int() | date():
            return True
        case float():
            return math.isfinite(value)
        case str():
            return len(value) <= LONGEST_TEXT
    return False


def _as_text(value: Any) -> str:
    assert isinstance(value, date), value
    return value.isoformat()
