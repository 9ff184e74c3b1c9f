"""The operator around a source in its short form, ``run``.

A ``run`` that is a generator is asked for some records at a time, on the subtask's own thread. A ``run`` that is not
has a thread of its own, which puts records into a queue while it holds the checkpoint lock (``source_thread.py``).
Before a barrier goes out the subtask takes the lock and passes on all that is queued; so what the function snapshots is
exactly what it has emitted.
"""

from __future__ import annotations

import inspect
import time
from itertools import groupby, islice
from typing import Any

from moorline.api.functions.source_function import SourceFunction
from moorline.errors import InvalidArgument, MoorlineError
from moorline.subtask.operators.base import OperatorContext, take, user_code_failed
from moorline.subtask.operators.function import FunctionOperator
from moorline.subtask.operators.read_size import READ_RECORDS
from moorline.subtask.operators.runtime_context import RuntimeContext
from moorline.subtask.operators.source import ReadingOperator
from moorline.subtask.operators.source_thread import SourceThread, TakenRecords

#: A generator is asked for fewer records at a time if it takes longer than this for them.
MAX_READ_SECONDS = 0.02


class _Yielding:
    """The context of a ``run`` that is a generator: it yields, and needs no lock."""

    def collect(self, value: Any) -> None:
        raise InvalidArgument("collect", value, "A run that yields emits by yield alone: use one way or the other.")

    def collect_with_timestamp(self, value: Any, timestamp: int) -> None:
        advice = "A run that yields has no timestamps of its own: give the source watermarks=, or do not yield."
        raise InvalidArgument("collect_with_timestamp", value, advice)

    def get_checkpoint_lock(self) -> _Yielding:
        return self

    def __enter__(self) -> _Yielding:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was held: between two yields no snapshot is taken."""


class SourceFunctionOperator(FunctionOperator, ReadingOperator):
    """Around a :class:`SourceFunction`."""

    function: SourceFunction

    def __init__(self, place: OperatorContext, runtime_context: RuntimeContext) -> None:
        super().__init__(place, runtime_context)
        self._begin_time()
        self._generator: Any = None
        self._asked_for = 1
        self._thread: SourceThread | None = None
        #: Taken from the queue to make room, and not passed on yet.
        self._kept: TakenRecords = []

    def open(self) -> None:
        super().open()
        if inspect.isgeneratorfunction(self.function.run):
            self._generator = self.function.run(_Yielding())

    def read(self, room: int | None = None) -> bool:
        return self._read_generator(room) if self._generator is not None else self._read_thread(room)

    def _read_generator(self, room: int | None) -> bool:
        began, wanted = time.perf_counter(), min(self._asked_for, self._size.up_to(room))
        try:
            records: list[Any] = []
            take(islice(self._generator, wanted), records, self.own)
        except MoorlineError:
            raise
        except Exception as error:  # the user's code
            raise user_code_failed(self.operator, self.subtask, error, self.records_in) from error
        # One that waits for its records must not make barriers wait for thousands of them.
        is_slow = time.perf_counter() - began > MAX_READ_SECONDS
        self._asked_for = max(1, wanted // 2) if is_slow else min(READ_RECORDS, 2 * wanted)
        self._pass_read(records)
        if len(records) < wanted:
            self._end()
        return True

    def _read_thread(self, room: int | None) -> bool:
        if self._thread is None:
            self._thread = SourceThread(
                self.function, self.own
            )  # not before: a snapshot may be taken of what was just restored
        ended = self._thread.has_ended  # asked before the queue is: what is in it then is all there is
        taken = self._take(self._thread, self._size.up_to(room))
        self._pass_taken(taken)
        if not taken and ended:
            if isinstance(cause := self._thread.error, MoorlineError):
                raise cause
            if cause is not None:
                raise user_code_failed(self.operator, self.subtask, cause, self.records_in) from cause  # type: ignore[arg-type]
            self._end()
            return True
        return bool(taken)

    # --- snapshots -------------------------------------------------------------------------------

    def before_barrier(self) -> None:
        if self._thread is not None:
            try:
                while not self._thread.lock.pause():
                    self._pass_taken(self._take(self._thread))
                while taken := self._take(self._thread):
                    self._pass_taken(taken)
            except BaseException:
                self._thread.lock.resume()  # or run would wait for ever
                raise

    def after_snapshot(self) -> None:
        if self._thread is not None:
            self._thread.lock.resume()

    def confirmed(self, checkpoint: int) -> None:
        self._notify(super().confirmed, checkpoint)

    def aborted(self, checkpoint: int) -> None:
        self._notify(super().aborted, checkpoint)

    def _notify(self, call: Any, checkpoint: int) -> None:
        """Call a notification of the function, while ``run`` stays out of what that does under the lock."""
        if self._thread is None:
            call(checkpoint)
            return
        try:
            while not self._thread.lock.pause():
                # Kept and not passed on: after the last barrier nothing may follow.
                self._kept += self._thread.take(READ_RECORDS)
            call(checkpoint)
        finally:
            self._thread.lock.resume()

    def _take(self, thread: SourceThread, limit: int = READ_RECORDS) -> TakenRecords:
        kept, self._kept = self._kept, []
        return kept or thread.take(limit)

    def _pass_taken(self, taken: TakenRecords) -> None:
        has_both = 0 < sum(t is None for _, t in taken) < len(taken)
        for run in [list(r) for _, r in groupby(taken, lambda pair: pair[1] is None)] if has_both else [taken]:
            stamps: list[Any] = [t for _, t in run]
            self._pass_read([r for r, _ in run], stamps if stamps and stamps[0] is not None else None)

    def close(self) -> None:
        try:
            self.function.cancel()
        finally:
            try:
                if self._thread is not None:
                    self._thread.close()
                if self._generator is not None:
                    self._generator.close()
            finally:
                super().close()
