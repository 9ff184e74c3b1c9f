"""From events of jobs to their listeners: a queue and a thread for each, so that none holds up a job or another.

``driver/observation/observation.py`` publishes on the driver's thread, which never waits here.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from moorline.api.listeners import JobEvent, JobListener, check_listener
from moorline.errors import InvalidArgument
from moorline.model.options import checks_options

log = logging.getLogger("moorline")
#: Where ``events="log"`` writes.
events_log = logging.getLogger("moorline.events")

#: So many events wait for a listener; then those of progress are dropped.
MOST_WAITING = 1_000
#: What comes again in a moment, and may be left out.
PERIODIC = ("progress", "metrics")
#: At the end of a job its listeners have so long to hear of it.
END_SECONDS = 5.0


class Delivery:
    """The events that wait for one listener, and the thread that calls it."""

    def __init__(self, listener: JobListener) -> None:
        self.listener = listener
        #: They are large: a listener without the method does not get them.
        self._takes_metrics = type(listener).on_metrics is not JobListener.on_metrics
        self._waiting: deque[JobEvent] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_calling = self._is_closed = False
        self._dropped = 0
        #: Methods that have raised: once is enough in the log.
        self._failed: set[str] = set()

    def put(self, event: JobEvent) -> None:
        """Have the listener called. Never waits for it."""
        if event.event == "metrics" and not self._takes_metrics:
            return
        with self._changed:
            if self._is_closed:
                return
            if len(self._waiting) >= MOST_WAITING and not self._drop(event):
                return
            self._waiting.append(event)
            if self._thread is None:
                name = f"moorline-listener-{self.name}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait until everything has been delivered. False if the time was not enough."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._is_calling, seconds)

    def close(self) -> None:
        """Call it no more; what waits is dropped."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()

    @property
    def name(self) -> str:
        return type(self.listener).__qualname__

    def _drop(self, event: JobEvent) -> bool:
        """Make room. False: it is the event itself that is dropped."""
        self._dropped += 1
        if self._dropped == 1:
            log.warning("listener %s is too slow: some events of progress are left out", self.name)
        if event.event in PERIODIC:
            return False
        oldest = next((e for e in self._waiting if e.event in PERIODIC), self._waiting[0])
        self._waiting.remove(oldest)
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_calling = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if self._is_closed:
                    return
                event = self._waiting.popleft()
                self._is_calling = True
            self._call(event)

    def _call(self, event: JobEvent) -> None:
        method = f"on_{event.event}"
        try:
            # A copy: what one listener does with it is not another's business.
            getattr(self.listener, method)(JobEvent(json.loads(event.json)))
        except Exception:  # whatever a listener raises, the job goes on
            if method not in self._failed:
                self._failed.add(method)
                log.exception("listener %s failed in %s; the job goes on", self.name, method)


class Listeners:
    """All listeners of one job: those of the process, and its own."""

    def __init__(self, own: list[JobListener]) -> None:
        self._own = [Delivery(listener) for listener in own]

    def publish(self, event: JobEvent) -> None:
        for delivery in [*self._own, *list(_deliveries)]:
            delivery.put(event)

    def close(self) -> None:
        """Give listeners the time to hear of the job's end."""
        deadline = time.monotonic() + END_SECONDS
        for delivery in [*self._own, *list(_deliveries)]:
            if not delivery.flush(max(0.0, deadline - time.monotonic())):
                log.warning("listener %s has not had all of its events when the job ended", delivery.name)
        for delivery in self._own:
            delivery.close()
            with suppress(AttributeError):
                delivery.listener.close()  # type: ignore[attr-defined]


#: Those of the process. Replaced as a whole, so that it can be read by any thread.
_deliveries: tuple[Delivery, ...] = ()
_lock = threading.Lock()


@checks_options()
def add_listener(listener: JobListener) -> None:
    """Register a listener for all jobs of this process, also for those that run already.

    >>> import moorline as mo
    >>> class Ends(mo.JobListener):
    ...     def on_terminated(self, event):
    ...         print(event["job"], event["status"])
    >>> ends = Ends()
    >>> mo.add_listener(ends)
    >>> mo.remove_listener(ends)
    """
    global _deliveries
    check_listener(listener)
    with _lock:
        if all(delivery.listener is not listener for delivery in _deliveries):
            _deliveries = (*_deliveries, Delivery(listener))


@checks_options()
def remove_listener(listener: JobListener) -> None:
    """Remove a listener. Nothing happens if it was not added."""
    global _deliveries
    with _lock:
        gone = [delivery for delivery in _deliveries if delivery.listener is listener]
        _deliveries = tuple(delivery for delivery in _deliveries if delivery.listener is not listener)
    for delivery in gone:
        delivery.close()


class _Lines(JobListener):
    """Every event as a line of JSON."""

    def on_started(self, event: JobEvent) -> None:
        self.write(event.json)

    on_progress = on_checkpoint = on_restart = on_terminated = on_started

    def write(self, line: str) -> None:
        raise NotImplementedError


class EventLog(_Lines):
    """Every event as a line of JSON in the log, by the logger ``moorline.events``."""

    def write(self, line: str) -> None:
        events_log.info("%s", line)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class EventFile(_Lines):
    """Every event as a line of JSON at the end of a file, each written at once."""

    def __init__(self, path: str) -> None:
        try:
            # Errors in it may show records, so a new file is for its owner alone.
            self._file = open(path, "a", encoding="utf-8", opener=_private)  # noqa: SIM115  open as long as the job runs
        except OSError as error:
            raise InvalidArgument("events", path, f"It cannot be written: {error}.") from error

    def write(self, line: str) -> None:
        self._file.write(line + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def events_listener(events: str | os.PathLike[str]) -> JobListener:
    """The listener for the ``events=`` of a start: a path, a ``file:`` URL, or ``log``."""
    text = os.fspath(events)
    if text == "log":
        return EventLog()
    url = urlsplit(text)
    if url.scheme == "file" and url.netloc in ("", "localhost"):
        return EventFile(unquote(url.path))
    if "://" in text or not text:
        raise InvalidArgument("events", text, "Give a path, a URL such as file:///var/log/events.jsonl, or 'log'.")
    return EventFile(str(Path(text)))
