"""The mailbox of a Spark task: where the threads that bring input and orders meet the one that works."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

from moorline.subtask.iteration.feedback import MEMORY_BUDGET
from moorline.subtask.spill_queue import SpillQueue

#: Frames read ahead of the subtask, and about how many bytes of them.
READ_AHEAD, READ_AHEAD_BYTES = 4, 1 << 20


class Mailbox:
    """Frames, feedback and calls. Calls (orders, finished uploads) go before frames and never wait for room."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._frames: deque[bytes] = deque()
        self._frames_bytes = 0
        self._calls: deque[Callable[[], None]] = deque()
        self._feedback = SpillQueue()
        self.input_ended = False
        self._error: BaseException | None = None
        self._closed = False

    def put_frame(self, frame: bytes) -> bool:
        """Wait for room, then add a frame. False: the mailbox is closed, and no more are read."""
        with self._changed:
            while self._is_full() and not self._closed:
                self._changed.wait()
            self._frames.append(frame)
            self._frames_bytes += len(frame)
            self._changed.notify_all()
            return not self._closed

    def _is_full(self) -> bool:
        return len(self._frames) >= READ_AHEAD or self._frames_bytes >= READ_AHEAD_BYTES

    def put_call(self, call: Callable[[], None]) -> None:
        with self._changed:
            self._calls.append(call)
            self._changed.notify_all()

    def put_feedback(self, frame: bytes) -> None:
        """Never waits: see ``subtask/iteration/lines.py``."""
        with self._changed:
            self._feedback.append(frame, to_disk=self._feedback.memory_bytes + len(frame) > MEMORY_BUDGET)
            self._changed.notify_all()

    def take_feedback(self) -> Iterator[bytes]:
        while self._feedback:
            with self._changed:
                frame = self._feedback.popleft()
            yield frame

    def end_input(self, error: BaseException | None) -> None:
        with self._changed:
            self.input_ended, self._error = True, error
            self._changed.notify_all()

    def take_calls(self) -> list[Callable[[], None]]:
        if not self._calls:
            return []
        with self._changed:
            calls, self._calls = list(self._calls), deque()
            return calls

    def has_calls(self) -> bool:
        return bool(self._calls)

    def take_frame(self) -> bytes | None:
        if not self._frames:
            if self._error is not None:
                raise self._error
            return None
        with self._changed:
            frame = self._frames.popleft()
            self._frames_bytes -= len(frame)
            self._changed.notify_all()
            return frame

    def wait(self, seconds: float) -> None:
        """Wait until there is something to take, but no longer than ``seconds``."""
        with self._changed:
            if not self._frames and not self._calls and not self._feedback and not self.input_ended:
                self._changed.wait(seconds)

    def wait_for_calls(self, seconds: float) -> None:
        with self._changed:
            if not self._calls and not self._feedback:
                self._changed.wait(seconds)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._frames.clear()
            self._frames_bytes = 0
            self._feedback.close()
            self._changed.notify_all()
