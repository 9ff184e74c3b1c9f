"""Snapshots without a running job: open, look up, explain, compare, plan, check, write.

``mo.snapshots.query`` and ``mo.query_snapshot`` are the same; the longer names of :mod:`moorline` stay.

>>> import moorline as mo
>>> mo.snapshots.query is mo.query_snapshot
True
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moorline.snapshots.checking import fsck, sweep
    from moorline.snapshots.explanation.explain import explain_snapshot as explain
    from moorline.snapshots.explanation.report import Explanation, Growth, KeySize, OperatorSize, StateSize
    from moorline.snapshots.lookup import query_snapshot as query
    from moorline.snapshots.planning import plan
    from moorline.snapshots.tables.diff import diff_snapshots as diff
    from moorline.snapshots.tables.snapshot import Snapshot
    from moorline.snapshots.tables.snapshot import open_tables as open
    from moorline.snapshots.tables.writing.writer import SnapshotWriter as Writer

#: Loaded at first use: workers load this package, and need little of it.
_AT_FIRST_USE = {
    "Explanation": ("explanation.report", "Explanation"),
    "Growth": ("explanation.report", "Growth"),
    "KeySize": ("explanation.report", "KeySize"),
    "OperatorSize": ("explanation.report", "OperatorSize"),
    "Snapshot": ("tables.snapshot", "Snapshot"),
    "StateSize": ("explanation.report", "StateSize"),
    "Writer": ("tables.writing.writer", "SnapshotWriter"),
    "diff": ("tables.diff", "diff_snapshots"),
    "explain": ("explanation.explain", "explain_snapshot"),
    "fsck": ("checking", "fsck"),
    "open": ("tables.snapshot", "open_tables"),
    "plan": ("planning", "plan"),
    "query": ("lookup", "query_snapshot"),
    "sweep": ("checking", "sweep"),
}


def __getattr__(name: str) -> Any:
    if name not in _AT_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, own = _AT_FIRST_USE[name]
    return getattr(importlib.import_module(f"{__name__}.{module}"), own)


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "Explanation",
    "Growth",
    "KeySize",
    "OperatorSize",
    "Snapshot",
    "StateSize",
    "Writer",
    "diff",
    "explain",
    "fsck",
    "open",
    "plan",
    "query",
    "sweep",
]
