"""A source function on a thread of its own: the checkpoint lock and the queue between.

    who waits                      for what             and is woken by
    run, in collect                room in the queue    the subtask, which reads; or close
    run, at the lock               the snapshot         its end; or close
    the subtask, before a barrier  the lock             run, which lets go of it; and the subtask reads on meanwhile,
                                                        because run may hold the lock while it waits for room

The lock is never let go in the middle of a ``with``: what is done under it is one step for every snapshot.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from types import TracebackType
from typing import Any

from moorline.api.functions.source_function import SourceFunction
from moorline.subtask.operators.read_size import READ_BYTES, READ_RECORDS, rough_size

#: So many records may wait in the queue of a threaded source, of about so many bytes.
QUEUED, QUEUED_BYTES = 4 * READ_RECORDS, 4 * READ_BYTES
#: One record of so many is looked at for its size; of large ones each.
_LOOK_AT = 16
#: Close waits so long for the thread of a source to end.
SHUTDOWN_GRACE_SECONDS = 1.0
#: How often the subtask looks for queued records while it waits for the lock.
_LOOK_SECONDS = 0.001
TakenRecords = list[tuple[Any, int | None]]


class _Stopped(BaseException):
    """Raised out of ``collect`` and the lock to end the thread of a source that was closed."""


class _Lock:
    """The checkpoint lock: reentrant, and snapshots go first.

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
        """For the subtask: take it, if it is free. Until :meth:`resume` no other thread enters it anew."""
        self._open.clear()
        self._is_paused = self._lock.acquire(timeout=_LOOK_SECONDS)
        return self._is_paused

    def resume(self) -> None:
        """For the subtask: give it back, if it has it."""
        if self._is_paused:
            self._is_paused = False
            self._lock.release()
        self._open.set()


class SourceThread:
    """``run`` on a thread of its own, and the queue between. It is also the context that ``run`` gets."""

    def __init__(self, function: SourceFunction, own: Callable[[Any, Any], Any] | None) -> None:
        self._function, self._own = function, own
        self.lock = _Lock()
        self._room = threading.Condition()
        self._queue: deque[tuple[Any, int | None]] = deque()
        #: How many may wait, going by the size of the last ones; and how many were put.
        self._most, self._put_count = QUEUED, 0
        self.error: BaseException | None = None
        self.has_ended = False
        self._thread = threading.Thread(target=self._run, name="moorline-source", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            results = self._function.run(self)
            if results is not None:
                self._pull(iter(results))
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
            self._put_count += 1
            if self._most < QUEUED or self._put_count % _LOOK_AT == 1:
                self._most = max(1, min(QUEUED, QUEUED_BYTES // max(1, rough_size(value))))
            if len(self._queue) >= self._most:
                with self._room:
                    while len(self._queue) >= self._most and not self.lock.is_closed:
                        self._room.wait()
            if self.lock.is_closed:
                raise _Stopped
            self._queue.append((value if self._own is None else self._own(None, value), timestamp))

    # --- for the subtask -------------------------------------------------------------------------

    def take(self, limit: int) -> TakenRecords:
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
        self._thread.join(SHUTDOWN_GRACE_SECONDS)
