"""The switch from one part of a hybrid source to the next.

A part is over when all its splits are handed out and every reader has read its own to the end, which it reports. Then
the driver goes on to the next one. That is a change of the enumerator's state like any other: it takes effect at one
moment, together with the first splits of the new part, before or after a checkpoint is triggered.

    state           [part, state of its own enumerator, ends]     part of every snapshot
    announcement    [part, are all its splits handed out, ends, announcement of its own enumerator]
    report          [part, positions at the end of the reader's share or None before, report of its own reader]

In a batch the announcement has those of all parts.
``ends`` are those of parts that a function makes the next source from.
"""

from __future__ import annotations

from typing import Any

from moorline.api.sources import EnumeratorContext, Positions, SplitEnumerator, SplitId
from moorline.connectors.hybrid.parts import Parts, SourceEnd, by_part, outer, packed_ends, unpacked_ends
from moorline.errors import InvalidArgument, SnapshotCorrupt


class HybridEnumerator(SplitEnumerator):
    """The enumerator of the part that is being read, if it has one, and the switch to the next."""

    def __init__(self, parts: Parts, ctx: EnumeratorContext) -> None:
        self._parts, self._ctx = parts, ctx
        self._part, restored, self._ends = _restored(ctx.restored, len(parts))
        self._inner: SplitEnumerator | None = None
        #: Are all splits of this part handed out?
        self._has_all = False
        #: In a batch: what the enumerators of parts before this one have announced.
        self._announced: list[Any] = []
        #: What readers had at the end of this part, by subtask.
        self._ended: dict[int, dict[SplitId, Any]] = {}
        self._open(by_part(ctx.positions, len(parts)).get(self._part, {}), restored)

    def reported(self, subtask: int, report: Any) -> None:
        match report:
            case [int(part), positions, inner] if part == self._part:
                if inner is not None and self._inner is not None:
                    self._inner.reported(subtask, inner)
                if isinstance(positions, dict):
                    self._ended[subtask] = positions

    def checkpoint_completed(self, state: Any) -> None:
        part, inner, _ = _restored(state, len(self._parts))
        if part == self._part and self._inner is not None:
            self._inner.checkpoint_completed(inner)

    def discover(self) -> Positions | None:
        if self._ctx.is_batch:
            return self._discover_all()
        while True:
            found = None if self._inner is None or self._has_all else self._inner.discover()
            if found is not None:
                return outer(self._part, found)
            self._has_all = True
            if self._is_last:
                return None
            if len(self._ended) < self._ctx.parallelism:
                return {}
            self._switch()

    def snapshot(self) -> Any:
        state = None if self._inner is None else self._inner.snapshot()
        return [self._part, state, packed_ends(self._ends)]

    def announcement(self) -> Any:
        inner = None if self._inner is None else self._inner.announcement()
        if self._ctx.is_batch:
            return {"parts": [*self._announced, inner]}
        return [self._part, self._has_all, packed_ends(self._ends), inner]

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()

    @property
    def _is_last(self) -> bool:
        return self._part == len(self._parts) - 1

    def _open(self, positions: dict[SplitId, Any], restored: Any) -> None:
        source = self._parts.source(self._part, self._ends)
        if self._parts.is_derived(self._part):
            source.check()  # it could not be checked before the start
        self._has_all = not source.enumerates
        self._inner, self._ended = None, {}
        self.interval_ms = SplitEnumerator.interval_ms
        if source.enumerates:
            ctx = self._ctx
            inner = EnumeratorContext(
                ctx.job, ctx.uid, ctx.attempt, positions, restored, ctx.parallelism, is_batch=ctx.is_batch
            )
            self._inner = source.open_enumerator(inner)
            self.interval_ms = self._inner.interval_ms

    def _switch(self) -> None:
        if self._parts.is_derived(self._part + 1):
            positions = {split: at for ended in self._ended.values() for split, at in ended.items()}
            self._ends[self._part] = SourceEnd(positions, None if self._inner is None else self._inner.snapshot())
        self.close()
        self._part += 1
        self._open({}, None)

    def _discover_all(self) -> Positions | None:
        """The splits of one part after the other: in a batch readers go through the parts by themselves."""
        found = None if self._inner is None else self._inner.discover()
        if found is not None:
            return outer(self._part, found)
        if self._is_last:
            return None
        if self._parts.is_derived(self._part + 1):
            advice = 'A source that follows from the end of another one needs a stream: run it with mode="streaming".'
            raise InvalidArgument("hybrid", "a function", advice)
        self._announced.append(None if self._inner is None else self._inner.announcement())
        self._switch()
        return {}


def _restored(state: Any, count: int) -> tuple[int, Any, dict[int, SourceEnd]]:
    match state:
        case None:
            return 0, None, {}
        case [int(part), inner, list(ends)] if 0 <= part < count:
            try:
                return part, inner, unpacked_ends(ends)
            except ValueError as error:
                raise SnapshotCorrupt("the manifest", str(error)) from None
    raise SnapshotCorrupt("the manifest", f"{state!r:.80} is not the state of a source with {count} parts")
