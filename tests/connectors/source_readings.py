"""A source that is read by hand, as subtasks and driver do it: what it reads, reports and keeps."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any

import cloudpickle
from waiting import eventually

from moorline.api.sources import EnumeratorContext, Source, SourceContext, SourceReader, owner_of
from moorline.state.types import plain

JOB, UID = "readings", "in"


class Readings:
    """All readers of a source and its enumerator, at one parallelism.

    Looks for splits happen once at the start, and then when :meth:`look` is called.
    """

    def __init__(self, source: Source, snapshot: dict[str, Any] | None = None, parallelism: int = 1) -> None:
        self.source: Source = cloudpickle.loads(cloudpickle.dumps(source))
        self.parallelism = parallelism
        self.notices: list[tuple[str, str]] = []
        self.outages: list[str | None] = []
        self.counters: Counter[str] = Counter()
        self.side: list[Any] = []
        #: The records that each split has given, with their timestamps.
        self.by_split: dict[Any, list[tuple[Any, int | None]]] = {}
        positions = {} if snapshot is None else dict(plain.decode(snapshot["positions"]))
        restored = None if snapshot is None else plain.decode(snapshot["enumerated"])
        self.readers: list[SourceReader] = []
        for subtask in range(parallelism):
            ctx = SourceContext(
                *(UID, subtask, parallelism, 1, positions),
                counters=self.counters,
                notice=lambda kind, text: self.notices.append((kind, text)),
                outage=self.outages.append,
            )
            reader = self.source.open(ctx)
            self.readers.append(reader)
            if own := {split: at for split, at in positions.items() if ctx.owns(split)}:
                reader.add_splits(own)
        self._ended = [False] * parallelism
        try:
            self.enumerator = self.source.open_enumerator(EnumeratorContext(JOB, UID, 1, positions, restored))
            self.look()
        except BaseException:
            self.close()
            raise

    def look(self) -> dict[Any, Any] | None:
        """Look for splits once, and give them to readers."""
        found = self.enumerator.discover()
        self.enumerated = plain.encode(self.enumerator.snapshot())
        for subtask, reader in enumerate(self.readers):
            own = {s: at for s, at in (found or {}).items() if owner_of(s, self.parallelism) == subtask}
            if own:
                reader.add_splits(own)
            if found is None:
                reader.no_more_splits()
        return None if found is None else dict(found)

    def once(self, limit: int = 2048) -> list[Any]:
        """What all readers have just now."""
        records: list[Any] = []
        for number, reader in enumerate(self.readers):
            if self._ended[number]:
                continue
            batch = reader.read(limit)
            for beside in (reader.side_outputs or {}).values():
                self.side += beside
            if batch is None:
                self._ended[number] = True
                continue
            assert len(batch) <= limit
            stamps = reader.timestamps or [None] * len(batch)
            assert len(stamps) == len(batch), "a timestamp for each record, or for none"
            if batch:
                self.by_split.setdefault(reader.split, []).extend(zip(batch, stamps))
            records += batch
        return records

    def read(self, at_least: int, limit: int = 2048) -> list[Any]:
        """At least so many records, however long that takes."""
        records: list[Any] = []

        def enough() -> bool:
            records.extend(self.once(limit))
            return len(records) >= at_least

        eventually(enough, f"{at_least} records")
        return records

    def read_to_the_end(self, limit: int = 2048) -> list[Any]:
        self.look()
        records: list[Any] = []

        def ended() -> bool:
            records.extend(self.once(limit))
            return all(self._ended)

        eventually(ended, "the end")
        return records

    def until(self, condition: Callable[[], Any], what: str) -> list[Any]:
        """What is read until something is so."""
        records: list[Any] = []

        def so() -> Any:
            records.extend(self.once())
            return condition()

        eventually(so, what)
        return records

    def quiet(self, seconds: float = 0.3) -> list[Any]:
        """What comes for a while: for what must not come."""
        records, until = [], time.monotonic() + seconds
        while time.monotonic() < until:
            records += self.once()
            time.sleep(0.005)
        return records

    @property
    def positions(self) -> dict[Any, Any]:
        return {split: at for reader in self.readers for split, at in reader.positions().items()}

    def snapshot(self) -> dict[str, Any]:
        return {"positions": plain.encode(list(map(list, self.positions.items()))), "enumerated": self.enumerated}

    def confirm(self) -> None:
        """The checkpoint of the last positions is complete."""
        for reader in self.readers:
            reader.notify_checkpoint_complete(1)

    def close(self) -> None:
        for reader in self.readers:
            reader.close()
        if hasattr(self, "enumerator"):
            self.enumerator.close()

    def __enter__(self) -> Readings:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
