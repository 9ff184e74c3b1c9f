"""Readers that are driven by hand, of sources that fetch on a thread of their own.

:class:`Reading` is one reader with its enumerator, and with what it notices, counts and reports. :class:`Waiting` is a
source for the contract suite, which crashes readers after a few calls: those of this one wait a moment for records, or
they would be gone before the first came.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from waiting import PATIENCE

from moorline.api.sources import EnumeratorContext, Source, SourceContext, SourceReader, SplitEnumerator


class Reading:
    """One reader of a source with its enumerator. What it notices and counts can be looked at."""

    def __init__(self, source: Source[Any], positions: Any = None, known: Any = None) -> None:
        self.notices: list[tuple[str, str]] = []
        self.outages: list[str | None] = []
        self.counters: dict[str, int] = {}
        ctx = SourceContext(
            "in",
            0,
            1,
            1,
            dict(positions or {}),
            self.counters,
            lambda kind, text: self.notices.append((kind, text)),
            self.outages.append,
        )
        self.reader: SourceReader[Any] = source.open(ctx)
        self.enumerator = source.open_enumerator(EnumeratorContext("job", "in", 1, dict(positions or {}), known))
        if positions:
            self.reader.add_splits(positions)
        self.look()

    def look(self) -> None:
        found = self.enumerator.discover()
        if found is None:
            self.reader.no_more_splits()
        elif found:
            self.reader.add_splits(found)

    def read(self, count: int, seconds: float = PATIENCE) -> list[Any]:
        """Read until so many records have come."""
        found: list[Any] = []
        deadline = time.monotonic() + seconds
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
            records = self.reader.read(100)
            assert records is not None, f"it ended after {len(found)} of {count} records"
            found += records
            if not records:
                time.sleep(0.001)
        return found

    def read_to_the_end(self) -> list[Any]:
        found: list[Any] = []
        deadline = time.monotonic() + PATIENCE
        while (records := self.reader.read(100)) is not None:
            assert time.monotonic() < deadline, "it does not end"
            found += records
            self.look()
            time.sleep(0.001)
        return found

    def snapshot(self) -> tuple[dict[Any, Any], Any]:
        return dict(self.reader.positions()), self.enumerator.snapshot()

    def close(self) -> None:
        self.reader.close()
        self.enumerator.close()


@contextlib.contextmanager
def reading(source: Source[Any], snapshot: Any = (None, None)) -> Iterator[Reading]:
    running = Reading(source, *snapshot)
    try:
        yield running
    finally:
        running.close()


class Waiting(Source[Any]):
    """A source whose readers wait a moment for the records that are on their way."""

    enumerates = True

    def __init__(self, source: Source[Any]) -> None:
        self._source, self.is_bounded = source, source.is_bounded

    def open(self, ctx: SourceContext) -> SourceReader[Any]:
        return _WaitingReader(self._source.open(ctx))

    def open_enumerator(self, ctx: EnumeratorContext) -> SplitEnumerator:
        return self._source.open_enumerator(ctx)


class _WaitingReader(SourceReader[Any]):
    def __init__(self, reader: SourceReader[Any]) -> None:
        self._reader = reader
        self._is_at_end = False
        self.add_splits, self.no_more_splits = self._added, reader.no_more_splits  # type: ignore[method-assign]
        self.splits, self.positions, self.close = reader.splits, reader.positions, reader.close  # type: ignore[method-assign]

    def _added(self, splits: Any) -> None:
        self._is_at_end = False
        self._reader.add_splits(splits)

    def read(self, limit: int) -> list[Any] | None:
        give_up = time.monotonic() + 0.2
        while not (records := self._reader.read(limit)) and self._reader.splits() and not self._is_at_end:
            if time.monotonic() > give_up:
                self._is_at_end = True
            time.sleep(0.001)
        self.split, self.timestamps, self.side_outputs = (
            self._reader.split,
            self._reader.timestamps,
            self._reader.side_outputs,
        )
        return records
