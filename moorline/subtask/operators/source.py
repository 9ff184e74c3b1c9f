"""The source at the beginning of a chain: the operator around a reader.

Its state is the position of each split, as union state: after a rescale every reader gets all of them and keeps its
own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moorline.api.sources import Source, SourceContext, SourceReader
from moorline.errors import MoorlineError, SnapshotCorrupt, StateTypeMismatch
from moorline.model.connector_states import ANNOUNCED, POSITIONS
from moorline.model.times import MAX_TIME
from moorline.model.wire.messages import AddSplits
from moorline.state.types import plain
from moorline.subtask.operators.base import ChainedOperator, OperatorContext, user_code_failed
from moorline.subtask.operators.read_size import ReadSize
from moorline.subtask.operators.timestamps import EventTime

#: State, mode and plain values.
PlainElements = list[tuple[str, str, list[Any]]]


def restored_pairs(uid: str, state: str, restored: dict[str, list[Any]]) -> list[tuple[Any, Any]]:
    """Restored elements that are pairs with a number or a name in front, if we have written them."""
    elements = restored.get(state, [])
    if not all(isinstance(e, list) and len(e) == 2 and isinstance(e[0], (int, str)) for e in elements):
        raise SnapshotCorrupt("the manifest", f"state {state!r} of operator {uid!r} is not what it should be")
    return [(first, second) for first, second in elements]


class ReadingOperator(ChainedOperator):
    """The begin of a stream: it is asked to read, and stamps what it has read."""

    #: The input has ended.
    has_ended = False
    _time: EventTime | None = None
    #: How many bytes the subtask has packed for others so far.
    packed_bytes: Callable[[], int] = staticmethod(lambda: 0)

    def _begin_time(self) -> None:
        self._size = ReadSize()
        strategy = self.operator.options.get("watermarks")
        if strategy is not None:
            self._time = EventTime(strategy, self.wall_ms, self._pass_watermark, self.idle)

    def read(self, room: int | None = None) -> bool:
        """Read a batch and pass it on, of ``room`` records at most. False if there was nothing to read just now."""
        raise NotImplementedError

    def _pass_read(self, records: Any, timestamps: list[int] | None = None, split: Any = None) -> None:
        if records:
            packed_before = self.packed_bytes()
            if self._time is not None:
                try:
                    timestamps = self._time.stamp(records, timestamps, split)
                except MoorlineError as error:
                    error.add_note(f"in operator {self.operator.uid!r} ({self.operator.name}), subtask {self.subtask}")
                    raise
                except Exception as error:  # the user's timestamp assigner
                    raise user_code_failed(self.operator, self.subtask, error, self.records_in) from error
            self.records_in += len(records)
            if timestamps:
                self.event_time = timestamps[-1]
            self.emit(records, timestamps)
            self._size.was_read(records, self.packed_bytes() - packed_before)
        if self._time is not None:
            self._time.tick(self.wall_ms())

    def add_splits(self, order: AddSplits) -> None:
        """Read further splits, which the driver has found."""
        raise RuntimeError(f"source {self.operator.uid!r} does not take splits")

    def pop_report(self) -> bytes | None:
        """A word to the enumerator on the driver, as plain data, if there is another one than before."""
        return None

    def drain(self) -> None:
        """Nothing more will be read: end time, so that everything that waits for it fires."""
        if not self.has_ended:
            self._end()

    def _end(self) -> None:
        self.has_ended = True
        if self._time is not None:
            self._time.end()
        else:
            self._pass_watermark(MAX_TIME)

    def next_tick_ms(self) -> int | None:
        return None if self._time is None else self._time.next_tick_ms()

    def tick(self, now_ms: int) -> None:
        if self._time is not None:
            self._time.tick(now_ms)


class SourceOperator(ReadingOperator):
    """Reads a source and passes its records on."""

    def __init__(self, place: OperatorContext, attempt: int, restored: dict[str, list[Any]]) -> None:
        super().__init__(place)
        self._attempt, self._restored = attempt, restored
        self._reader: SourceReader | None = None
        #: Those that were ever added: an order may come twice.
        self._added: set[Any] = set()
        #: The last report to the enumerator.
        self._reported: bytes | None = None
        #: The checkpoint whose snapshot is being taken.
        self.checkpoint = 0
        self._begin_time()

    def open(self) -> None:
        source: Source = self.operator.function
        positions = dict(restored_pairs(self.operator.uid, POSITIONS, self._restored))
        context = SourceContext(
            self.operator.uid,
            self.subtask,
            self.operator.parallelism,
            self._attempt,
            positions,
            self.counters,
            self.notice,
            self.report_outage,
        )
        try:
            self.state.initialize(source)
            self._reader = source.open(context)
            for announcement in self._restored.get(ANNOUNCED, ()):  # in a batch
                self._reader.announced(announcement)
            if source.enumerates:
                self._add({split: position for split, position in positions.items() if context.owns(split)})
            if self._time is not None:
                self._time.open_splits = self._reader.splits
        except MoorlineError:
            raise
        except Exception as error:  # the user's code
            raise user_code_failed(self.operator, self.subtask, error) from error
        self._restored = {}

    def read(self, room: int | None = None) -> bool:
        reader = self._reader
        assert reader is not None
        try:
            records = reader.read(self._size.up_to(room))
        except MoorlineError:
            raise
        except Exception as error:  # the user's code
            raise user_code_failed(self.operator, self.subtask, error, self.records_in) from error
        if reader.side_outputs:
            side_outputs, reader.side_outputs = reader.side_outputs, None
            for tag, beside in side_outputs.items():
                self.records_out += len(beside)
                for target in self.side_targets.get(tag, ()):
                    target.process(beside)
        if records is None:
            self._end()
            return True
        self._pass_read(records, reader.timestamps, reader.split)
        return bool(records)

    def add_splits(self, order: AddSplits) -> None:
        reader = self._reader
        assert reader is not None
        try:
            if order.announced:
                reader.announced(plain.decode(order.announced))
            self._add(dict(map(plain.decode, order.splits)))
            if order.no_more:
                reader.no_more_splits()
        except MoorlineError:
            raise
        except Exception as error:  # the user's code
            raise user_code_failed(self.operator, self.subtask, error) from error
        if self._time is not None:
            self._time.splits_are_known()

    def _add(self, splits: dict[Any, Any]) -> None:
        assert self._reader is not None
        fresh = {split: position for split, position in splits.items() if split not in self._added}
        self._added.update(fresh)
        if fresh:
            self._reader.add_splits(fresh)

    def pop_report(self) -> bytes | None:
        assert self._reader is not None
        if self._reader.report is None:
            return None
        try:
            report = plain.encode(self._reader.report)
        except plain.NotPlain as error:
            raise StateTypeMismatch(f"report of source {self.operator.uid!r}", "plain data", str(error)) from None
        if report == self._reported:
            return None
        self._reported = report
        return report

    def records_behind(self) -> dict[str, int]:
        if self._reader is None or self.has_ended:
            return {}
        try:
            return {str(split): int(count) for split, count in self._reader.records_behind().items()}
        except Exception as error:  # it is for people, and no reason for a job to fail
            self.notice("records_behind", f"cannot say how far it is behind: {type(error).__name__}: {error}")
            return {}

    def elements(self) -> PlainElements:
        assert self._reader is not None
        positions = self._reader.positions_for(self.checkpoint)
        return [(POSITIONS, "union", [list(item) for item in positions.items()])]

    def confirmed(self, checkpoint: int) -> None:
        super().confirmed(checkpoint)
        assert self._reader is not None
        self._reader.notify_checkpoint_complete(checkpoint)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
