"""Standing for leadership of a job, and giving it up: the thread that ``protocol/supervision/leadership.py`` runs on.

Two threads. One keeps the time and never waits for anything else, so that a leader stops in time however long storage
takes to answer. The other does what takes long: one request at a time. What comes of it all goes to the driver loop:
start, stop, or stop waiting.
"""

from __future__ import annotations

import importlib.util
import logging
import queue
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

from moorline.driver.loop import DriverLoop, now_ms
from moorline.driver.supervision import Supervision
from moorline.errors import InvalidArgument, LeadershipLost, StorageError
from moorline.model.config.leadership import StorageLease, ZooKeeper
from moorline.model.facts import YIELDED, Term
from moorline.protocol.supervision import leadership as le
from moorline.storage.history import History
from moorline.storage.lease import LeaseFiles

log = logging.getLogger("moorline")

#: How long the end of a job waits for its outcome to be on record.
CLOSING_SECONDS = 5.0


class Lease(Protocol):
    """A place that keeps terms. Everything may raise StorageError: then it is unknown whether it was done."""

    #: The leader, for people.
    leader: str

    def look(self) -> Term | None:
        """The highest term."""

    def take(self, term: Term) -> bool:
        """Create a term of ours. False if its number is taken."""

    def renew(self, term: Term) -> bool:
        """Create the next term of ours, if the last one is ours still."""

    def record(self, term: Term) -> None:
        """Put the end of our last term on record."""

    def close(self) -> None:
        """Let go of what it takes."""


def perform(lease: Lease, action: le.Action, now: Callable[[], int]) -> le.Event | None:
    """Carry one action out that has to do with the lease, and say what came of it."""
    try:
        match action:
            case le.LookAtLease():
                return le.Looked(lease.look(), now())
            case le.Take(term, renews):
                return le.Got(term, now()) if (lease.renew if renews else lease.take)(term) else le.LeaseRefused(now())
            case le.LeaseRecord(term):
                lease.record(term)
    except StorageError as error:
        log.warning("the lease: %s", error)
        return le.LeaseFailed(now())
    return None


class Election:
    """One driver's candidacy for one job."""

    def __init__(self, config: StorageLease | ZooKeeper, history: History, job: str, loop: DriverLoop) -> None:
        self._history, self._job, self._loop = history, job, loop
        if isinstance(config, ZooKeeper) and importlib.util.find_spec("kazoo") is None:
            advice = "It needs a package that is not there (kazoo): pip install 'moorline[zookeeper]'."
            raise InvalidArgument("ha", config, advice)
        self._config = config
        self._lease: Lease | None = None
        self._machine = le.Leadership(history.writer, uuid.uuid4().hex, config.ttl_ms)
        self._events: queue.SimpleQueue[le.Event] = queue.SimpleQueue()
        self._requests = ThreadPoolExecutor(1, thread_name_prefix="moorline-lease")
        self._done = threading.Event()
        #: The holder of the lead that we wait for, once that is known.
        self.waits_for = ""

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"moorline-leader-{self._job}", daemon=True).start()

    def close(self) -> None:
        """The driver is done with the job: put its outcome on record, if it was ours to say."""
        status = self._loop.status
        outcome = status.value if status.is_terminal and not self._loop.has_crashed else YIELDED
        self._events.put(le.JobEnded(outcome))
        # A candidate that never asked to lead has nothing that others wait for: its lease is closed in its own time.
        if self._machine.asked is not None and not self._done.wait(CLOSING_SECONDS):
            self._requests.shutdown(wait=False, cancel_futures=True)

    # --- inside -------------------------------------------------------------------------------

    def _run(self) -> None:
        machine = self._machine
        try:
            while machine.state in (le.LeadershipState.WATCHING, le.LeadershipState.LEADING) or machine.is_busy:
                due = machine.next_wakeup_ms()
                seconds = 1.0 if due is None else min(max((due - now_ms()) / 1000, 0.0), 1.0)
                try:
                    event: le.Event = self._events.get(timeout=seconds)
                except queue.Empty:
                    event = le.TimePassed(now_ms())
                self._obey(machine.handle(event))
                self._obey(machine.handle(le.TimePassed(now_ms())))
        except BaseException as error:  # a thread's last words; without it nobody keeps the lease
            log.exception("the election for job %r failed", self._job)
            self._lose(f"the election failed, which is a bug: {error!r}")
        finally:
            # The last record, if there is one, is under way: behind it nothing comes.
            with suppress(RuntimeError):  # close() has not waited for us
                self._requests.submit(self._close_lease)
                self._requests.shutdown(wait=False)

    def _obey(self, actions: list[le.Action]) -> None:
        for action in actions:
            log.debug("%s", action)
            match action:
                case le.Lead(term):
                    log.info("job %r: this driver leads (number %d)", self._job, term.number)
                    self._history.run, self._history.term = term.run, term.number
                    self._loop.post(Supervision.start)
                case le.StopLeading(reason):
                    self._lose(reason)
                case le.StopWaiting(outcome):
                    log.info("job %r has %s under another driver", self._job, outcome)
                    self._loop.post(lambda supervision, now: supervision.ended_elsewhere(outcome))
                case le.LookAtLease() | le.Take() | le.LeaseRecord():
                    self._requests.submit(self._request, action)

    def _request(self, action: le.Action) -> None:
        try:
            if self._lease is None:
                self._lease = open_lease(self._config, self._history, self._job)
            event = perform(self._lease, action, now_ms)
        except StorageError as error:
            log.warning("the lease: %s", error)
            event = le.LeaseFailed(now_ms())
        except BaseException as error:  # a thread's last words; without it nobody keeps the lease
            log.exception("the lease of job %r failed", self._job)
            reason = f"the lease failed: {error!r}"
            self._lose(reason)
            event = le.JobEnded(YIELDED)
        if event is not None:
            self._log_leader(event)
            self._events.put(event)

    def _log_leader(self, event: le.Event) -> None:
        """Log once for each leader that we wait."""
        term = event.term if isinstance(event, le.Looked) else None
        if term is None or term.ended or term.holder in (self.waits_for, self._history.writer) or self._lease is None:
            return
        self.waits_for = term.holder
        log.info("job %r: waiting, because %s leads", self._job, self._lease.leader or "another driver")

    def _lose(self, reason: str) -> None:
        error = LeadershipLost(self._job, reason)
        self._loop.post(lambda supervision, now: supervision.leadership_lost(error))

    def _close_lease(self) -> None:
        try:
            if self._lease is not None:
                self._lease.close()
        finally:
            self._done.set()


def open_lease(config: StorageLease | ZooKeeper, history: History, job: str) -> Lease:
    """The lease that ``mo.run(ha=...)`` asks for."""
    if isinstance(config, StorageLease):
        return LeaseFiles(history.store)
    # The client is needed only where ZooKeeper is asked for.
    from moorline.driver.leadership.zookeeper import ZooKeeperLease  # noqa: PLC0415

    return ZooKeeperLease(config, job)
