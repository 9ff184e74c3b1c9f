"""The place that a line of the log comes from: job, attempt, operators and subtask; and the last lines of a job.

A thread of the driver says once what it works for; a worker says so for its whole process. A filter on the logger
``moorline`` writes that into each record, as ``record.place``, so that any format can show it.

    12:00:01 WARNING moorline [job=orders attempt=3 operators=count,out subtask=1/0]: ...
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

NAME = "moorline"
FORMAT, TIME_FORMAT = "%(asctime)s %(levelname)s moorline%(shown_place)s: %(message)s", "%H:%M:%S"
#: So many lines of a job are kept, and so many characters of each.
KEPT_LINES, KEPT_CHARACTERS = 1000, 10_000


@dataclass(frozen=True)
class LogPlace:
    """A place in a job.

    >>> str(LogPlace("orders", 3, "count,out", "1/0"))
    'job=orders attempt=3 operators=count,out subtask=1/0'
    """

    job: str
    attempt: int = 0
    operators: str = ""
    subtask: str = ""

    def __str__(self) -> str:
        known = [f"job={self.job}"] + ([f"attempt={self.attempt}"] if self.attempt else [])
        known += [f"operators={self.operators}"] if self.operators else []
        return " ".join(known + ([f"subtask={self.subtask}"] if self.subtask else []))


_of_thread: ContextVar[LogPlace | None] = ContextVar("moorline_place", default=None)
_of_process: list[LogPlace] = []


def work_for(place: LogPlace) -> None:
    """From now on this thread works for a place."""
    _mark_records()
    _of_thread.set(place)


def show_in_worker(place: LogPlace, level: str) -> None:
    """From now on this process works for a place, and its lines go to standard error, from ``level`` on."""
    logger = _mark_records()
    _of_process[:] = [place]
    if not any(isinstance(handler, _WorkerHandler) for handler in logger.handlers):
        logger.addHandler(_WorkerHandler())
        logger.propagate = False  # Python's last resort would print it once more
    logger.setLevel(level.upper())


def formatter() -> logging.Formatter:
    """The form of our own lines."""
    _mark_records()
    return _OneRecordEach(FORMAT, TIME_FORMAT)


class _OneRecordEach(logging.Formatter):
    """Lines that are read in a terminal, with what records and exceptions of users have put into them.

    Nothing in a message moves the cursor or turns the direction of the text, and none of its lines looks like a line
    of the log: all but the first are indented.
    """

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if text.isprintable():
            return text
        shown = (c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)
        return "".join(shown).replace("\n", "\n  ")


class LogTail(logging.Handler):
    """The last lines of one job's log, numbered from 1.

    >>> tail = LogTail("orders")
    >>> logger = logging.getLogger("moorline")
    >>> logger.addHandler(tail)
    >>> work_for(LogPlace("orders", 2))
    >>> logger.error("checkpoint %d is late", 7)
    >>> [(line["number"], line["text"]) for line in tail.after(0)]
    [(1, 'checkpoint 7 is late')]
    >>> logger.removeHandler(tail)
    """

    def __init__(self, job: str) -> None:
        super().__init__()
        self._job, self._lines, self._count = job, deque[dict[str, Any]](maxlen=KEPT_LINES), 0
        self._guard = threading.Lock()
        _mark_records()

    def emit(self, record: logging.LogRecord) -> None:
        place: LogPlace | None = getattr(record, "place", None)
        if place is not None and place.job != self._job:
            return
        text = self.format(record)[:KEPT_CHARACTERS]
        with self._guard:
            self._count += 1
            line = {"number": self._count, "time_ms": int(record.created * 1000), "level": record.levelname}
            self._lines.append(line | {"text": text})

    def after(self, number: int) -> list[dict[str, Any]]:
        """The lines with a higher number that are still kept."""
        with self._guard:
            return [line for line in self._lines if line["number"] > number]


class _PlaceFilter(logging.Filter):
    """Lets everything through, marked with its place."""

    def filter(self, record: logging.LogRecord) -> bool:
        place = _of_thread.get() or (_of_process[0] if _of_process else None)
        record.place = place
        # Lines on the life of a job name job and attempt themselves.
        is_named = place is None or (not place.subtask and str(record.msg).startswith("job "))
        record.shown_place = "" if is_named else f" [{place}]"
        return True


class _WorkerHandler(logging.StreamHandler[Any]):
    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(formatter())


def _mark_records() -> logging.Logger:
    logger = logging.getLogger(NAME)
    if not any(isinstance(known, _PlaceFilter) for known in logger.filters):
        logger.addFilter(_PlaceFilter())
    return logger
