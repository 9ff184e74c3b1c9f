"""All queries by their names, in order."""

from __future__ import annotations

from nexmark_queries import joins, one_by_one, totals, windows
from nexmark_queries.query import Query

_ALL = one_by_one.QUERIES | windows.QUERIES | joins.QUERIES | totals.QUERIES
QUERIES: dict[str, Query] = dict(sorted(_ALL.items(), key=lambda query: int(query[0][1:])))
