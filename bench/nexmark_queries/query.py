"""A query: how it is built as a job, and which of its results has to be equal to what a database finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from moorline.api.columns.streams import ColumnStream
from nexmark_queries.tables import Tables


@dataclass(frozen=True)
class Query:
    """One query of Nexmark, on Moorline."""

    title: str
    build: Callable[[Tables], ColumnStream]
    #: A row takes the place of the one before it with the same values here. Without any, all rows stay.
    replaces: tuple[str, ...] = ()
    #: Which tables it reads, for the number of rows that go through it.
    reads: tuple[str, ...] = ("bid",)
    #: The values of this column are added up over all rows with the same other columns, before they are compared.
    adds: str | None = None
    #: What is checked instead, where :attr:`build` does not always emit the same.
    checked: Callable[[Tables], ColumnStream] | None = None
