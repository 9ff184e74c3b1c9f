"""The pace of simulated sources: small steps with pauses, so that faults and barriers fall between records.

A real reader hands out thousands of records at a time, and a test's whole input with its first call. Then nothing
would be left to fail. ``testing/simulation/job.py`` wraps the sources of a user's job in :class:`PacedSource`.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from moorline.api.sources import Positions, Source, SourceContext, SourceReader, SplitId
from moorline.connectors.generator import Generator

#: Into about so many reads the input of a run is cut.
READS = 150


@dataclass(frozen=True)
class SimulatedPace:
    """At most ``batch`` records at a time, and with the probability ``pause`` none."""

    seed: int
    batch: int = 256
    pause: float = 0.0

    @classmethod
    def for_input(cls, seed: int, records: int) -> SimulatedPace:
        """A pace at which ``records`` last for some hundred steps of their readers.

        >>> SimulatedPace.for_input(7, records=15)
        SimulatedPace(seed=7, batch=1, pause=0.9)
        >>> SimulatedPace.for_input(7, records=3000)
        SimulatedPace(seed=7, batch=40, pause=0.1)
        """
        return cls(seed, max(1, 2 * records // READS), round(min(0.9, max(0.1, 1 - records / READS)), 2))


class PacedSource(Source):
    """A source that is read at a given pace. Rates by the clock are lifted: simulated time is not real time."""

    def __init__(self, source: Source, pace: SimulatedPace) -> None:
        if isinstance(source, Generator) and source.rate is not None:
            unpaced = copy.copy(source)
            unpaced.rate = None
            source = unpaced
        self._source, self._pace = source, pace
        self.is_bounded = source.is_bounded

    def open(self, ctx: SourceContext) -> SourceReader:
        return _PacedReader(self._source.open(ctx), self._pace, ctx)


class _PacedReader(SourceReader):
    def __init__(self, reader: SourceReader, pace: SimulatedPace, ctx: SourceContext) -> None:
        self._reader, self._pace = reader, pace
        self._chance = random.Random(f"{pace.seed} {ctx.uid} {ctx.subtask} {ctx.attempt}")

    def read(self, limit: int) -> Sequence[Any] | None:
        if self._pace.pause and self._chance.random() < self._pace.pause:
            return []
        records = self._reader.read(min(limit, self._chance.randint(1, self._pace.batch)))
        self.split, self.timestamps = self._reader.split, self._reader.timestamps
        self.side_outputs, self._reader.side_outputs = self._reader.side_outputs, None
        return records

    def splits(self) -> Collection[SplitId] | None:
        return self._reader.splits()

    def positions(self) -> Positions:
        return self._reader.positions()

    def notify_checkpoint_complete(self, checkpoint: int) -> None:
        self._reader.notify_checkpoint_complete(checkpoint)

    def close(self) -> None:
        self._reader.close()
