"""The tables as sources of a job: each is read from its folder, as columns that are known."""

from __future__ import annotations

from pathlib import Path

import moorline as mo
from moorline.api.columns.streams import ColumnStream
from nexmark_queries.events import TABLES


class Tables:
    """Persons, auctions and bids of a job, read from the files in a folder."""

    def __init__(self, job: mo.Job, folder: Path) -> None:
        self._job, self._folder = job, folder

    def persons(self) -> ColumnStream:
        """Who sells and bids."""
        return self._table("person")

    def auctions(self) -> ColumnStream:
        """What is sold."""
        return self._table("auction")

    def bids(self) -> ColumnStream:
        """What is offered."""
        return self._table("bid")

    def _table(self, name: str) -> ColumnStream:
        source = mo.read_files(self._folder / name, format="parquet")
        return self._job.source(source, uid=name).with_schema(TABLES[name], uid=f"{name}-columns")


def timed(rows: ColumnStream) -> ColumnStream:
    """The rows with their times. In each file they come in order."""
    return rows.with_watermark("date_time", "0s", uid=f"times-of-{'-'.join(uid for uid, _ in rows._origins)}")
