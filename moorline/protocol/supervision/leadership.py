"""Leadership of a job that several drivers stand ready for: when one may lead, and when it must stop.

Leading is a numbered *term*. A term is taken by creating its number, which can be done once; a leader that lives takes
the next number again and again. No wall clocks are compared: a standby waits until it has seen no new number for
``ttl`` of its own clock, and a leader counts from before it asked for its number, which is earlier than any other can
have seen it. It stops at two thirds of ``ttl``, so clocks may run at speeds that differ by up to half.

    WATCHING   nothing there, or given back               -> take the next number
               the same number for ttl                    -> take the next number: its holder is gone
               a new number                               -> wait on
               the job has ended that we waited for       -> OVER, with its outcome
               we got our number                          -> LEADING
               it was taken first, or that is unknown     -> look again
    LEADING    a third of ttl since the last number       -> take the next one
               it is unknown whether we got it            -> ask again, counting from the first time we asked
               two thirds of ttl since the last number    -> LOST: stop, while no other can have taken over yet
               the next number is another's               -> LOST: stop
               the job has ended                          -> OVER: put its outcome on record

A leader that is stopped in its tracks cannot stop itself. When it wakes it finds out here at once; what it does before
that is refused by the history, which the next leader has claimed. Leases save work and keep a second driver waiting;
that nothing is written twice does not rest on them. ``driver/leadership/election.py`` drives this, by files or by
ZooKeeper.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from moorline.model.facts import YIELDED, Term

# --- events -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimePassed:
    now_ms: int


@dataclass(frozen=True, slots=True)
class Looked:
    """This was there: the highest number, or nothing."""

    term: Term | None
    now_ms: int


@dataclass(frozen=True, slots=True)
class Got:
    """The number that we asked for is ours."""

    term: Term
    now_ms: int


@dataclass(frozen=True, slots=True)
class LeaseRefused:
    """The number that we asked for is another's."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class LeaseFailed:
    """The request may have been carried out or not."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The job that we led has ended, or we are no longer a candidate."""

    outcome: str


Event = TimePassed | Looked | Got | LeaseRefused | LeaseFailed | JobEnded


# --- actions ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LookAtLease:
    def __str__(self) -> str:
        return "look who leads"


@dataclass(frozen=True, slots=True)
class Take:
    """Create this number, for the first time or as a renewal."""

    term: Term
    renews: bool = False

    def __str__(self) -> str:
        return f"{'renew with' if self.renews else 'take'} number {self.term.number}, run {self.term.run}"


@dataclass(frozen=True, slots=True)
class Lead:
    term: Term

    def __str__(self) -> str:
        return f"lead: number {self.term.number}, run {self.term.run}"


@dataclass(frozen=True, slots=True)
class StopLeading:
    reason: str

    def __str__(self) -> str:
        return f"stop leading: {self.reason}"


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """Put on record that the term is over. It is not waited for: if it fails, others wait for ``ttl``."""

    term: Term

    def __str__(self) -> str:
        return f"record number {self.term.number}: {self.term.ended}"


@dataclass(frozen=True, slots=True)
class StopWaiting:
    outcome: str

    def __str__(self) -> str:
        return f"stop waiting: the job has {self.outcome}"


Action = LookAtLease | Take | Lead | StopLeading | LeaseRecord | StopWaiting


class LeadershipState(Enum):
    WATCHING = "watching"
    LEADING = "leading"
    LOST = "lost"
    OVER = "over"


@dataclass(slots=True)
class Leadership:
    """One candidate. Feed it events; obey the actions. One request is under way at a time."""

    holder: str
    #: The name of the run that begins if there is none to go on with.
    new_run: str
    ttl_ms: int
    state: LeadershipState = LeadershipState.WATCHING
    #: The last number that was seen, and since when.
    seen: Term | None = None
    seen_ms: int = 0
    #: The run of the leader that we have waited for.
    waited_for: str = ""
    #: What we have, and when we asked for it.
    term: Term | None = None
    held_since_ms: int = 0
    #: The number that was asked for, and when that was first done.
    asked: Term | None = None
    asked_ms: int = 0
    is_busy: bool = False
    due_ms: int = 0
    outcome: str = ""

    def handle(self, event: Event) -> list[Action]:
        match event:
            case TimePassed(now):
                return self._time_passed(now)
            case Looked(term, now):
                self.is_busy = False
                return self._looked(term, now) if self.state is LeadershipState.WATCHING else []
            case Got(term, now):
                self.is_busy = False
                return self._got(term, now)
            case LeaseRefused(now):
                self.is_busy = False
                return self._refused(now)
            case LeaseFailed(now):
                self.is_busy = False
                self.due_ms = now + self.ttl_ms // 10
                return self._record_end()
            case JobEnded(outcome):
                self.outcome = outcome
                return self._record_end()
            case _:
                assert_never(event)

    def next_wakeup_ms(self) -> int | None:
        """The time at which :class:`TimePassed` is due; None: something else will happen first."""
        times = [] if self.is_busy else [self.due_ms]
        if self.state is LeadershipState.LEADING:
            times.append(self.held_since_ms + self._patience_ms)
        return min(times) if times and self.state in (LeadershipState.WATCHING, LeadershipState.LEADING) else None

    @property
    def _patience_ms(self) -> int:
        return self.ttl_ms * 2 // 3

    def _time_passed(self, now: int) -> list[Action]:
        if self.state is LeadershipState.LEADING and now - self.held_since_ms >= self._patience_ms:
            self.state = LeadershipState.LOST
            late = now - self.held_since_ms
            return [StopLeading(f"the lease could not be renewed for {late} ms, and others may take it from now on")]
        if self.is_busy or now < self.due_ms or self.outcome:
            return []
        if self.state is LeadershipState.LEADING and self.term is not None:
            return [self._ask(self.term, now, renews=True)]
        if self.state is LeadershipState.WATCHING:
            self.is_busy = True
            return [LookAtLease()]
        return []

    def _looked(self, term: Term | None, now: int) -> list[Action]:
        if self.outcome:
            return self._record_end()
        if term != self.seen:
            # From when we know of it, not from when it was written: the holder has had at least that long.
            self.seen, self.seen_ms = term, now
        if term is not None and term.holder == self.holder:
            # The answer to our request got lost, but not the request.
            return [self._ask(term, now, renews=True)]
        if term is not None and not term.ended:
            self.waited_for = term.run
        if term is not None and term.ended not in ("", YIELDED) and term.run == self.waited_for:
            self.state = LeadershipState.OVER
            return [StopWaiting(term.ended)]
        if term is None or term.ended or now - self.seen_ms >= self.ttl_ms:
            return [self._ask(term, now)]
        self.due_ms = now + self.ttl_ms // 5
        return []

    def _ask(self, before: Term | None, now: int, renews: bool = False) -> Take:
        # A run goes on until its job has ended. What cannot be read is no run.
        goes_on = before is not None and before.ended in ("", YIELDED) and before.run
        run = before.run if before is not None and goes_on else self.new_run
        term = Term((before.number if before is not None else 0) + 1, self.holder, run)
        if term != self.asked:
            # Asked for again, it may have been ours, and seen by others, since the first time.
            self.asked, self.asked_ms = term, now
        self.is_busy = True
        return Take(term, renews)

    def _got(self, term: Term, now: int) -> list[Action]:
        was, self.term = self.state, term
        if was in (LeadershipState.LOST, LeadershipState.OVER):
            # We have stopped: others need not wait for what we do not use.
            return [self._closing(YIELDED)]
        self.held_since_ms = self.asked_ms
        self.due_ms = self.asked_ms + self.ttl_ms // 3
        if was is LeadershipState.LEADING or self.outcome:
            return self._record_end()
        if now - self.held_since_ms >= self._patience_ms:
            # It took so long that it may be lost already: have a newer number before anything is started.
            return [self._ask(term, now)]
        self.state = LeadershipState.LEADING
        return [Lead(term)]

    def _refused(self, now: int) -> list[Action]:
        self.due_ms = now
        if self.state is LeadershipState.LEADING:
            self.state = LeadershipState.LOST
            return [StopLeading("another driver has taken over")]
        return self._record_end()

    def _record_end(self) -> list[Action]:
        """Once nothing is under way any more: our last number says how it ended."""
        if not self.outcome or self.is_busy or self.state not in (LeadershipState.WATCHING, LeadershipState.LEADING):
            return []
        # A term that came when we no longer wanted it has seen nothing of the job.
        ended = self.outcome if self.state is LeadershipState.LEADING else YIELDED
        self.state = LeadershipState.OVER
        return [self._closing(ended)] if self.term is not None else []

    def _closing(self, ended: str) -> LeaseRecord:
        assert self.term is not None
        return LeaseRecord(Term(self.term.number + 1, self.holder, self.term.run, ended))
