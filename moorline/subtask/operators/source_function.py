"""The operators around :class:`SourceFunction` and :class:`SinkFunction`.

A ``run`` that is a generator is asked for some records at a time, on the subtask's own thread. A ``run`` that is not
has a thread of its own, which puts records into a queue while it holds the checkpoint lock. Before a barrier goes out
the subtask takes the lock and passes on all that is queued; so what the function snapshots is exactly what it has
emitted.

    who waits                      for what             and is woken by
    run, in collect                room in the queue    the subtask, which reads; or close
    run, at the lock               the snapshot         its end; or close
    the subtask, before a barrier  the lock             run, which lets go of it; and the subtask reads on meanwhile,
                                                        because run may hold the lock while it waits for room

The lock is never let go in the middle of a ``with``: what is done under it is one step for every snapshot.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import groupby, islice
from types import TracebackType
from typing import Any

from moorline.api.functions.source_function import SinkFunction, SourceFunction
from moorline.errors import InvalidArgument, MoorlineError
from moorline.model.times import MIN_TIME
from moorline.state.backend import NO_KEY
from moorline.subtask.operators.base import Place, take, user_code_failed
from moorline.subtask.operators.ends import READ_RECORDS, ReadingOperator
from moorline.subtask.operators.function import FunctionOperator
from moorline.subtask.operators.runtime_context import RuntimeContext

#: So many records may wait in the queue of a threaded source.
QUEUED = 4 * READ_RECORDS
#: A generator is asked for fewer records at a time if it takes longer than this for them.
PATIENCE_SECONDS = 0.02
#: Close waits so long for the thread of a source to end.
FAREWELL_SECONDS = 1.0
#: How often the subtask looks for queued records while it waits for the lock.
_LOOK_SECONDS = 0.001

_Taken = list[tuple[Any, int | None]]


class _Stopped(BaseException):
    """Raised out of ``collect`` and the lock to end the thread of a source that was closed."""


class _Lock:
    """The checkpoint lock: reentrant, and whoever takes snapshots goes first.

    Without that a source that lets go of it only to take it again would starve them.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        #: Set while no snapshot is wanted.
        self._open = threading.Event()
        self._open.set()
        self.is_closed = False
        self._is_paused = False

    def __enter__(self) -> _Lock:
        lock = self._lock
        if not self._open.is_set() and not lock._is_owned():  # type: ignore[attr-defined]
            self._open.wait()
        lock.acquire()
        if self.is_closed:
            lock.release()
            raise _Stopped
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()

    def pause(self) -> bool:
        """For the subtask: take it, if nobody has it. Until :meth:`resume` nobody else enters it anew."""
        self._open.clear()
        self._is_paused = self._lock.acquire(timeout=_LOOK_SECONDS)
        return self._is_paused

    def resume(self) -> None:
        """For the subtask: give it back, if it has it."""
        if self._is_paused:
            self._is_paused = False
            self._lock.release()
        self._open.set()


class _Thread:
    """``run`` on a thread of its own, and the queue between. It is also the context that ``run`` gets."""

    def __init__(self, function: SourceFunction, own: Callable[[Any, Any], Any] | None) -> None:
        self._function, self._own = function, own
        self.lock = _Lock()
        self._room = threading.Condition()
        self._queue: deque[tuple[Any, int | None]] = deque()
        self.error: BaseException | None = None
        self.has_ended = False
        self._thread = threading.Thread(target=self._run, name="moorline-source", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            found = self._function.run(self)
            if found is not None:
                self._pull(iter(found))
        except _Stopped:
            pass
        except BaseException as error:  # the user's; sys.exit() is no way to end a source either
            self.error = error
        self.has_ended = True

    def _pull(self, records: Iterator[Any]) -> None:
        """``run`` has returned an iterator without being a generator itself."""
        while True:
            with self.lock:  # making a record may change what is snapshotted
                for value in islice(records, 1):
                    self._put(value, None)
                    break
                else:
                    return

    # --- for run ---------------------------------------------------------------------------------

    def collect(self, value: Any) -> None:
        self._put(value, None)

    def collect_with_timestamp(self, value: Any, timestamp: int) -> None:
        self._put(value, timestamp)

    def get_checkpoint_lock(self) -> _Lock:
        return self.lock

    def _put(self, value: Any, timestamp: int | None) -> None:
        with self.lock:  # for those who forget it
            if len(self._queue) >= QUEUED:
                with self._room:
                    while len(self._queue) >= QUEUED and not self.lock.is_closed:
                        self._room.wait()
            if self.lock.is_closed:
                raise _Stopped
            self._queue.append((value if self._own is None else self._own(None, value), timestamp))

    # --- for the subtask -------------------------------------------------------------------------

    def take(self, limit: int) -> _Taken:
        queue = self._queue
        taken = [queue.popleft() for _ in range(min(limit, len(queue)))]
        with self._room:
            self._room.notify_all()
        return taken

    def close(self) -> None:
        self.lock.is_closed = True
        self.lock.resume()
        with self._room:
            self._room.notify_all()
        self._thread.join(FAREWELL_SECONDS)


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

    def __init__(self, place: Place, runtime_context: RuntimeContext) -> None:
        super().__init__(place, runtime_context)
        self._begin_time()
        self._generator: Any = None
        self._asked_for = 1
        self._thread: _Thread | None = None
        #: Taken from the queue to make room, and not passed on yet.
        self._kept: _Taken = []

    def open(self) -> None:
        super().open()
        if inspect.isgeneratorfunction(self.function.run):
            self._generator = self.function.run(_Yielding())

    def read(self) -> bool:
        return self._read_generator() if self._generator is not None else self._read_thread()

    def _read_generator(self) -> bool:
        began, wanted = time.perf_counter(), self._asked_for
        try:
            records: list[Any] = []
            take(islice(self._generator, wanted), records, self.own)
        except MoorlineError:
            raise
        except Exception as error:
            raise user_code_failed(self.operator, self.subtask, error, self.records_in) from error
        # One that waits for its records must not make barriers wait for thousands of them.
        is_slow = time.perf_counter() - began > PATIENCE_SECONDS
        self._asked_for = max(1, wanted // 2) if is_slow else min(READ_RECORDS, 2 * wanted)
        self._pass_read(records)
        if len(records) < wanted:
            self._end()
        return True

    def _read_thread(self) -> bool:
        if self._thread is None:
            self._thread = _Thread(
                self.function, self.own
            )  # not before: a snapshot may be taken of what was just restored
        ended = self._thread.has_ended  # asked before the queue is: what is in it then is all there is
        taken = self._take(self._thread)
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
        self._told(super().confirmed, checkpoint)

    def aborted(self, checkpoint: int) -> None:
        self._told(super().aborted, checkpoint)

    def _told(self, tell: Any, checkpoint: int) -> None:
        """Tell the function something, while ``run`` stays out of what it does under the lock."""
        if self._thread is None:
            tell(checkpoint)
            return
        try:
            while not self._thread.lock.pause():
                # Kept and not passed on: after the last barrier nothing may follow.
                self._kept += self._thread.take(READ_RECORDS)
            tell(checkpoint)
        finally:
            self._thread.lock.resume()

    def _take(self, thread: _Thread) -> _Taken:
        kept, self._kept = self._kept, []
        return kept or thread.take(READ_RECORDS)

    def _pass_taken(self, taken: _Taken) -> None:
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


class _InvokeContext:
    """What ``invoke`` gets beside its value."""

    def __init__(self, operator: SinkFunctionOperator) -> None:
        self._operator = operator

    def timestamp(self) -> int | None:
        return self._operator.moment.timestamp

    def current_watermark(self) -> int:
        return self._operator.moment.watermark

    def current_processing_time(self) -> int:
        return self._operator.wall_ms()


class SinkFunctionOperator(FunctionOperator):
    """Around a :class:`SinkFunction`. On a keyed stream it has keyed state."""

    function: SinkFunction

    def open(self) -> None:
        super().open()
        self.moment.watermark = MIN_TIME
        self._context = _InvokeContext(self)
        self._invoke: Any = self.function.invoke

    def _keyed(self, records: list[Any]) -> Any:
        """``invoke``, called for these records in turn: each has its key."""
        assert self.backend is not None
        invoke, current = self._invoke, self.backend.current
        following = iter(self._begin(self.operator.inputs[0].key, records)).__next__

        def keyed(record: Any, context: Any) -> None:
            current.key = following()
            invoke(record, context)

        return keyed

    def process(self, records: list[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        invoke, context, moment = self._invoke, self._context, self.moment
        iterator: Any = iter(records)
        if self.backend is not None:
            invoke = self._keyed(records)
        try:
            if timestamps is None:
                for record in iterator:
                    invoke(record, context)
            else:
                for record, moment.timestamp in zip(iterator, timestamps):
                    invoke(record, context)
        except Exception as error:
            raise self.failure(error, records, iterator) from error
        finally:
            moment.timestamp = None
            if self.backend is not None:
                self.backend.current.key = NO_KEY
        if self.backend is not None:
            self.backend.settle()
        self.records_in += len(records)
