"""``mo.hybrid``: sources that are read one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from moorline.api.functions.calls import check_call
from moorline.api.sources import (
    EnumeratorContext,
    Positions,
    Source,
    SourceContext,
    SourceReader,
    SplitEnumerator,
    SplitId,
)
from moorline.connectors.hybrid.enumerator import HybridEnumerator
from moorline.connectors.hybrid.parts import PartContext, Parts, SourceEnd, by_part, outer, outer_id, unpacked_ends
from moorline.errors import InvalidArgument, SnapshotCorrupt
from moorline.model.options import checks_options


@checks_options()
def hybrid(
    first: Source, then: Source | Callable[[SourceEnd], Source], *more: Source | Callable[[SourceEnd], Source]
) -> Source:
    """Read ``first`` to its end, then ``then``, and so on: a backlog from files, say, and then the stream that goes on.

    A source begins when all subtasks have read all of the one before. The switch is part of checkpoints, so a restart
    or a rescale goes on in the part that had been reached. All but the last must end by themselves.

    Where the next source begins may follow from where the one before has ended: give a function of the
    :class:`SourceEnd`. What that end was is part of checkpoints, and the function is called with it on the driver and
    in every worker, again after each restart: it must return the same source for the same end.

    >>> import moorline as mo
    >>> backlog, stream = mo.from_items([1, 2, 3]), mo.generate(lambda n: n)
    >>> mo.hybrid(backlog, stream).is_bounded
    False
    """
    parts = [first, then, *more]
    if not isinstance(first, Source):
        raise InvalidArgument("first", first, "Give a source, such as mo.read_files(...).")
    for part in parts[1:]:
        if not isinstance(part, Source) and not callable(part):
            raise InvalidArgument("then", part, "Give a source, or a function that makes one of a SourceEnd.")
        if not isinstance(part, Source):
            check_call("the function of mo.hybrid", part, 1)
    for part in parts[:-1]:
        if isinstance(part, Source) and part.is_bounded is False:
            raise InvalidArgument("hybrid", part, "It does not end, and another source is to follow it.")
    return HybridSource(Parts(parts))


class HybridSource(Source):
    """See :func:`moorline.hybrid`."""

    enumerates = True

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        bounds = [source.is_bounded for source in parts.sources]
        is_known = len(bounds) == len(parts) and None not in bounds
        self.is_bounded = False if False in bounds else True if is_known else None

    def __repr__(self) -> str:
        return f"hybrid of {len(self._parts)} sources"

    def check(self) -> None:
        """Check all sources that are known by now."""
        for source in self._parts.sources:
            source.check()

    def open(self, ctx: SourceContext) -> SourceReader:
        """A reader that has the readers of the parts one after the other."""
        return _HybridReader(self._parts, ctx)

    def open_enumerator(self, ctx: EnumeratorContext) -> SplitEnumerator:
        """The one that knows which part is being read."""
        return HybridEnumerator(self._parts, ctx)


@dataclass
class _OpenPart:
    """The part that is being read."""

    number: int
    reader: SourceReader
    enumerates: bool
    #: The last announcement of the part's own enumerator.
    announced: Any = None
    #: Outer names of splits that were read from.
    named: set[SplitId] = field(default_factory=set)
    has_ended: bool = False

    def announce(self, announcement: Any) -> None:
        """Tell the reader what its enumerator has announced, once."""
        if announcement is not None and announcement != self.announced:
            self.announced = announcement
            self.reader.announced(announcement)

    def add_splits(self, positions: Positions) -> None:
        """Give the reader splits, if it does not find them by itself."""
        if self.enumerates:
            self.reader.add_splits(positions)

    def splits(self) -> list[SplitId]:
        """Outer names of what is being read."""
        if self.has_ended:
            return []
        known = self.reader.splits()
        if known is None:
            # As a whole, until it is known better: time waits for a part that has not been heard of.
            return list(self.named) or [str(self.number)]
        return [outer_id(self.number, split) for split in known]


class _HybridReader(SourceReader):
    """The reader of one part. It begins when the driver has announced which part that is."""

    def __init__(self, parts: Parts, ctx: SourceContext) -> None:
        self._parts, self._ctx = parts, ctx
        #: By part: restored positions of all subtasks, for sources that find their splits by themselves.
        self._restored = by_part(ctx.positions, len(parts))
        #: By part: own splits of parts that are not open yet.
        self._waiting: dict[int, dict[SplitId, Any]] = {}
        #: The one that is being read, and its number, which is below 0 before the first.
        self._open_part: _OpenPart | None = None
        self._part = -1
        self._has_all = False
        #: In a batch, where all splits are known and nobody waits for others: the announcements of the parts.
        self._in_batch: list[Any] = []
        #: The part that was being read when the positions for a checkpoint were asked for.
        self._parts_of: dict[int, int] = {}

    # --- what the driver says ---

    def announced(self, announcement: Any) -> None:
        match announcement:
            case [int(part), bool(has_all), list(ends), inner] if 0 <= part < len(self._parts):
                if part > self._part:
                    self._open(part, unpacked_ends(ends), inner)
                elif part == self._part and self._open_part is not None:
                    self._open_part.announce(inner)
                if part == self._part and has_all:
                    self._all_handed_out()
            case {"parts": list(announced)} if len(announced) == len(self._parts):
                self._in_batch = announced
            case _:
                raise SnapshotCorrupt("the driver", f"{announcement!r:.80} is not a part of a source")

    def add_splits(self, splits: Positions) -> None:
        for part, positions in by_part(splits, len(self._parts)).items():
            if part > self._part:
                self._waiting.setdefault(part, {}).update(positions)
            elif part == self._part and self._open_part is not None:
                self._open_part.add_splits(positions)

    def no_more_splits(self) -> None:
        if self._part < 0 and self._in_batch:
            self._open(0, {}, self._in_batch[0])
        self._all_handed_out()

    def _open(self, part: int, ends: dict[int, SourceEnd], announcement: Any) -> None:
        self.close()
        source = self._parts.source(part, ends)
        self._part, self._has_all = part, False
        ctx = self._ctx
        inner = PartContext(
            ctx.uid,
            ctx.subtask,
            ctx.parallelism,
            ctx.attempt,
            self._restored.pop(part, {}),
            ctx.counters,
            ctx.notice,
            ctx.outage,
            part,
        )
        self._open_part = opened = _OpenPart(part, source.open(inner), source.enumerates)
        opened.announce(announcement)
        if own := self._waiting.pop(part, None):
            opened.add_splits(own)

    def _all_handed_out(self) -> None:
        if self._open_part is not None and self._open_part.enumerates and not self._has_all:
            self._open_part.reader.no_more_splits()
        self._has_all = True

    # --- reading ---

    def read(self, limit: int) -> Sequence[Any] | None:
        part, is_last = self._open_part, self._part == len(self._parts) - 1
        if part is None or part.has_ended:
            return None if part is not None and is_last else []
        reader = part.reader
        records = reader.read(limit)
        self.timestamps = reader.timestamps
        self.side_outputs, reader.side_outputs = reader.side_outputs, None
        self.split = str(part.number) if reader.split is None else outer_id(part.number, reader.split)
        if records is not None:
            if records:
                part.named.add(self.split)
            if reader.report is not None:
                self.report = [part.number, None, reader.report]
            return records
        part.has_ended = True
        if is_last:
            return None
        following = part.number + 1
        if self._in_batch:
            self._open(following, {}, self._in_batch[following])
            self._all_handed_out()
        else:
            keeps = self._parts.is_derived(following)
            self.report = [part.number, dict(reader.positions()) if keeps else {}, reader.report]
        return []

    def splits(self) -> list[SplitId]:
        if self._open_part is None:
            return [split for part, splits in self._waiting.items() for split in outer(part, splits)]
        return self._open_part.splits()

    def records_behind(self) -> dict[SplitId, int]:
        part = self._open_part
        behind = {} if part is None or part.has_ended else part.reader.records_behind()
        return {outer_id(part.number, split): count for split, count in behind.items()} if part is not None else {}

    def positions(self) -> Positions:
        return self._positions(lambda inner: inner.positions())

    def positions_for(self, checkpoint: int) -> Positions:
        self._parts_of[checkpoint] = self._part
        return self._positions(lambda inner: inner.positions_for(checkpoint))

    def _positions(self, of: Callable[[SourceReader], Positions]) -> Positions:
        found: dict[SplitId, Any] = {}
        for part, splits in self._waiting.items():
            found.update(outer(part, splits))
        if self._open_part is not None:
            found.update(outer(self._part, of(self._open_part.reader)))
        return found

    def notify_checkpoint_complete(self, checkpoint: int) -> None:
        # Positions of a part that is over are no business of the reader of the next one.
        part = self._parts_of.pop(checkpoint, self._part)
        self._parts_of = {n: p for n, p in self._parts_of.items() if n > checkpoint}
        if self._open_part is not None and part == self._part:
            self._open_part.reader.notify_checkpoint_complete(checkpoint)

    def close(self) -> None:
        if self._open_part is not None:
            self._open_part.reader.close()
            self._open_part = None
