"""A reader of a source that is driven by hand: with its enumerator, and with what it notices, counts and reports."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from moorline.api.sources import EnumeratorContext, Source, SourceContext, SourceReader


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

    def read(self, count: int, seconds: float = 20.0) -> list[Any]:
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
        deadline = time.monotonic() + 20
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
