"""The operators that keep their state in columns. The others go record by record, to the same results."""

from __future__ import annotations

import pyarrow as pa

from moorline.api.columns.aggregation import Aggregation
from moorline.api.columns.windows import takes_columns
from moorline.api.windows.streams import WindowSpec
from moorline.model.graph import Operator
from moorline.state.columns.stamps import is_by_columns


def keeps_columns(operator: Operator) -> bool:
    """Can it keep its state in columns? Other keys, and every update, want records one by one."""
    function, window = operator.function, operator.options.get("window")
    if isinstance(window, WindowSpec):
        return takes_columns(window) and not operator.options.get("rekey")
    if isinstance(function, Aggregation) and function.ttl is not None and not is_by_columns(function.ttl):
        return False
    return isinstance(function, Aggregation) and not function.every_update and not operator.options.get("rekey")


def works_by_key_group(operator: Operator) -> bool:
    """In a batch job: does it work off the rows of a key group together, in columns, instead of key after key?"""
    return keeps_columns(operator) and getattr(operator.function, "ttl", None) is None


def used_schema(operator: Operator) -> pa.Schema:
    """The columns that such an operator uses: those of the key, and those that are aggregated."""
    window = operator.options.get("window")
    aggregation = operator.function if window is None else window.combine
    names = dict.fromkeys([*operator.function.keys, *(a.column for a in aggregation.results.values())])
    return pa.schema([field for field in aggregation.schema if field.name in names])
