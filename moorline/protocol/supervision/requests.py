"""The requests to a job that wait for their answer: snapshots, a stop, another parallelism.

Requests outlive attempts: a stop and a rescale that one attempt could not finish are finished by the next, and a
snapshot waits until an attempt runs. A snapshot that an attempt has begun ends with it.

    snapshot   an attempt runs, or the next one does       -> take it
               it is there; it failed; its attempt ended   -> answer
    stop       an attempt runs, or the next one does       -> take the final checkpoint
    stop with  it is taken like a snapshot, and the sources pause
    savepoint  it is there              -> answer, take the final checkpoint; after a failure only what it covers
               it failed                -> answer, start over: paused sources go on in another attempt only
               its attempt has ended    -> answer, and the job goes on
    rescale    a checkpoint is taken, and the sources pause
               it has ended             -> give way; if it failed, the one before it will do
               an attempt is launched   -> with the new parallelism, whatever ended the one before
               that attempt runs        -> answer
    any        the job has ended        -> answer

Each request is answered exactly once. ``protocol/job.py`` holds this and says when; ``driver/requests.py`` has the
futures. The numbers of requests are the caller's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from moorline.errors import InvalidArgument, MoorlineError, SavepointFailed

# --- events -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SnapshotRequested:
    request: int
    savepoint: str


@dataclass(frozen=True, slots=True)
class StopRequested:
    """End well; with a request, after a savepoint."""

    request: int | None = None
    savepoint: str = ""


@dataclass(frozen=True, slots=True)
class RescaleRequested:
    request: int


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    request: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class SnapshotFailed:
    request: int
    why: str


Request = SnapshotRequested | StopRequested | RescaleRequested
Event = Request | SnapshotTaken | SnapshotFailed

# --- actions ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """A savepoint, or a checkpoint before a rescale."""

    request: int
    #: Where the savepoint goes; empty: it is a checkpoint.
    savepoint: str = ""
    #: The sources read no further once the barrier has gone out.
    pauses: bool = False

    def __str__(self) -> str:
        kind = f"savepoint {self.savepoint}" if self.savepoint else "a checkpoint"
        return f"take {kind} for request {self.request}{', then pause the sources' * self.pauses}"

    def failed(self, why: str) -> SavepointFailed:
        return SavepointFailed(self.savepoint or "a checkpoint", why.rstrip("."))


@dataclass(frozen=True, slots=True)
class TakeFinalCheckpoint:
    """The last checkpoint of the job, wherever the sources are."""

    def __str__(self) -> str:
        return "take the final checkpoint"


@dataclass(frozen=True, slots=True)
class GiveWay:
    """End this attempt for one with another parallelism."""

    def __str__(self) -> str:
        return "give way to another parallelism"


@dataclass(frozen=True, slots=True)
class StartOver:
    """End this attempt, whose sources read nothing any more, for one that goes on."""

    why: str

    def __str__(self) -> str:
        return f"start over: {self.why}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The number of the snapshot, or of the rescaled attempt; or why there is none."""

    request: int
    result: int | MoorlineError

    def __str__(self) -> str:
        return f"answer request {self.request}: {str(self.result).partition(chr(10))[0]}"


Action = TakeSnapshot | TakeFinalCheckpoint | GiveWay | StartOver | Answer

# --- state ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StopNow:
    """A final checkpoint as soon as an attempt runs."""


@dataclass(frozen=True, slots=True)
class StopAfter:
    """A final checkpoint after this savepoint; ``regardless``: also without it."""

    request: int
    savepoint: str
    regardless: bool = False


@dataclass(frozen=True, slots=True)
class StoppedWith:
    """The savepoint is complete: nothing may be read or committed that it does not have."""

    savepoint: str
    checkpoint: int


@dataclass(frozen=True, slots=True)
class Rescale:
    """``has_begun``: the attempt has given way, or the next one was launched."""

    request: int
    has_begun: bool = False


@dataclass(slots=True)
class Requests:
    """Of one job, from its first start to its end.

    >>> requests = Requests("orders")
    >>> [str(action) for action in requests.handle(StopRequested(1, "here"), runs=True)]
    ['take savepoint here for request 1, then pause the sources']
    """

    job: str
    #: State moves through checkpoints when a job is rescaled.
    has_storage: bool = True
    #: Snapshots for the next attempt that runs, and those that the running one has begun.
    waiting: list[TakeSnapshot] = field(default_factory=list)
    under_way: list[TakeSnapshot] = field(default_factory=list)
    stop: StopNow | StopAfter | StoppedWith | None = None
    rescale: Rescale | None = None

    def handle(self, event: Event, *, runs: bool, refusal: str = "") -> list[Action]:
        """``runs``: an attempt can take a snapshot now. ``refusal``: no attempt ever will, and why."""
        match event:
            case SnapshotTaken(request, checkpoint):
                return self._taken(request, checkpoint)
            case SnapshotFailed(request, why):
                return self._failed(request, why)
            case StopRequested(None):
                self._stop()
                return self._final() if runs else []
            case RescaleRequested(request):
                refused = self._no_rescale(refusal)
                if refused is not None:
                    return [Answer(request, refused)]
                self.rescale, snapshot = Rescale(request), TakeSnapshot(request, pauses=True)
            case StopRequested(int(request), savepoint):
                snapshot = TakeSnapshot(request, savepoint, pauses=True)
                # A second stop is a snapshot like others: the answer to the first one has to hold.
                if not refusal and (self.stop is None or isinstance(self.stop, StopNow)):
                    self.stop = StopAfter(request, savepoint, regardless=self.stop is not None)
            case SnapshotRequested(request, savepoint):
                snapshot = TakeSnapshot(request, savepoint)
            case _:
                raise AssertionError(event)
        if refusal:
            return [Answer(snapshot.request, snapshot.failed(refusal))]
        (self.under_way if runs else self.waiting).append(snapshot)
        return [snapshot] if runs else []

    # --- the life of the job ---------------------------------------------------------------------

    @property
    def stopped(self) -> StoppedWith | None:
        """The savepoint that the job was stopped with."""
        return self.stop if isinstance(self.stop, StoppedWith) else None

    def launching(self) -> int | None:
        """An attempt is launched: the request that it is rescaled by."""
        if self.rescale is None:
            return None
        # The attempt before has made room, even if it failed before it could give way.
        self.rescale = replace(self.rescale, has_begun=True)
        self.waiting = [snapshot for snapshot in self.waiting if snapshot.request != self.rescale.request]
        return self.rescale.request

    def attempt_runs(self, attempt: int) -> list[Action]:
        """All its subtasks run: it can do what has waited for it."""
        actions: list[Action] = []
        if self.rescale is not None and self.rescale.has_begun:
            actions.append(Answer(self.rescale.request, attempt))
            self.rescale = None
        self.under_way, self.waiting = self.waiting, []
        return [*actions, *self.under_way, *self._final()]

    def attempt_ended(self, why: str) -> list[Action]:
        """Answer what it had begun: that is not there, and no other attempt does it."""
        ended, self.under_way = self.under_way, []
        for snapshot in ended:
            if isinstance(self.stop, StopAfter) and self.stop.request == snapshot.request:
                self.stop = StopNow() if self.stop.regardless else None
        return [Answer(s.request, s.failed(why)) for s in ended if not self._is_rescale(s.request)]

    def job_ended(self, status: str, error: MoorlineError | None) -> list[Action]:
        """Answer all that still wait."""
        waiting, self.waiting = [s for s in self.waiting if not self._is_rescale(s.request)], []
        answers: list[Action] = [Answer(s.request, s.failed(f"the job is {status}")) for s in waiting]
        if self.rescale is not None:
            ended = InvalidArgument("rescale", self.job, f"The job is {status} before it could be rescaled.")
            answers.append(Answer(self.rescale.request, error or ended))
            self.rescale = None
        return answers

    # --- inside ----------------------------------------------------------------------------------

    def _stop(self) -> None:
        if self.stop is None:
            self.stop = StopNow()
        elif isinstance(self.stop, StopAfter):
            self.stop = replace(self.stop, regardless=True)

    def _final(self) -> list[Action]:
        waits = self.stop is None or (isinstance(self.stop, StopAfter) and not self.stop.regardless)
        return [] if waits else [TakeFinalCheckpoint()]

    def _no_rescale(self, refusal: str) -> InvalidArgument | None:
        why = ""
        if not self.has_storage:
            why = "Give checkpoints=: state moves through them."
        elif self.rescale is not None or self.stop is not None:
            why = "The job is being rescaled or stopped already."
        elif refusal:
            why = f"It cannot be rescaled any more: {refusal}."
        return InvalidArgument("rescale", self.job, why) if why else None

    def _is_rescale(self, request: int) -> bool:
        return self.rescale is not None and self.rescale.request == request

    def _taken(self, request: int, checkpoint: int) -> list[Action]:
        if self._ended(request) is None:
            return []
        if self._is_rescale(request):
            return self._give_way()
        answer = Answer(request, checkpoint)
        if not isinstance(self.stop, StopAfter) or self.stop.request != request:
            return [answer]
        self.stop = StoppedWith(self.stop.savepoint, checkpoint)
        return [answer, *self._final()]

    def _failed(self, request: int, why: str) -> list[Action]:
        snapshot = self._ended(request)
        if snapshot is None:
            return []
        if self._is_rescale(request):
            return self._give_way()
        error = snapshot.failed(why)
        if not isinstance(self.stop, StopAfter) or self.stop.request != request:
            return [Answer(request, error)]
        self.stop = StopNow() if self.stop.regardless else None
        return [Answer(request, error), StartOver(f"the savepoint before the stop failed: {why}")]

    def _ended(self, request: int) -> TakeSnapshot | None:
        """The snapshot of a request, which is no longer under way. None: it was not, or is answered already."""
        for snapshot in self.under_way:
            if snapshot.request == request:
                self.under_way.remove(snapshot)
                return snapshot
        return None

    def _give_way(self) -> list[Action]:
        assert self.rescale is not None
        self.rescale = replace(self.rescale, has_begun=True)
        return [GiveWay()]
