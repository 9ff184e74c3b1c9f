"""One operator of a chain: it takes batches and watermarks and passes on what it makes of them.

What kinds there are: ``function.py`` (map and the like), ``process.py`` (process functions with one or two inputs),
``source.py`` and ``sink.py``, ``subtask/windows/``. When user code raises, the position of the record is read off the
loop's own iterator, so good records pay nothing for it.

A record is the value that it was when it was emitted. So it is copied at that moment if user code, a state or another
record still holds something in it that can change; and of several readers in one chain each gets a copy of its own.
``model/copying/copies.py`` says what can change. An operator may do with its records what it likes.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from moorline.api.metrics import MetricRegistry
from moorline.errors import MoorlineError, UserCodeFailed
from moorline.model.copying.copies import copies_of, owned_of
from moorline.model.copying.immutable import IMMUTABLE
from moorline.model.graph import Operator
from moorline.model.times import MAX_TIME, MIN_TIME
from moorline.state.backend import KeyedBackend, OperatorClock
from moorline.subtask.environment import Background, at_once
from moorline.subtask.failure_report import advice_on_module

if TYPE_CHECKING:
    from moorline.subtask.operators.operator_state import OperatorState


class Target(Protocol):
    """A receiver of batches: an operator or a link."""

    def process(self, records: list[Any], timestamps: list[int] | None = None, side: int = 0) -> None: ...
    def watermark(self, time: int) -> None: ...
    def idle(self) -> None: ...


@dataclass(frozen=True)
class OperatorContext:
    """The place of an operator, and the questions that it may ask there."""

    operator: Operator
    subtask: int
    #: The wall clock, in milliseconds since 1970.
    wall_ms: Callable[[], int]
    moment: OperatorClock
    #: Keyed states, if the operator has a key.
    backend: KeyedBackend | None
    #: Everything that belongs to the subtask and not to a key.
    state: OperatorState
    #: Have the driver say something in its log: a kind, of which once is enough, and the text.
    notice: Callable[[str, str], None] = lambda kind, text: None
    #: Records are passed on by reference: no function changes what it has emitted or been given.
    object_reuse: bool = False
    #: Commits of a sink that take their time.
    commits: Background = at_once
    #: Why outside systems do not answer just now, by uid.
    outages: dict[str, str] = field(default_factory=dict)
    #: What its function defines.
    metrics: MetricRegistry = field(default_factory=lambda: MetricRegistry(""))


class ChainedOperator:
    """One operator in one subtask."""

    def __init__(self, place: OperatorContext) -> None:
        self.operator, self.subtask = place.operator, place.subtask
        self.moment, self.wall_ms, self.backend, self.state = place.moment, place.wall_ms, place.backend, place.state
        self.targets: list[Target] = []
        self.side_targets: dict[str, list[Target]] = {}
        self.notice = place.notice
        self.records_in = self.records_out = 0
        #: The last watermark that it has passed on.
        self.watermark_out = MIN_TIME
        #: The time of the last record that it has stamped.
        self.event_time: int | None = None
        #: What else it counts, for people. Read by another thread.
        self.counters: dict[str, int] = {}
        self._outages = place.outages
        self.metrics = place.metrics
        #: From the results of a call and one of them to the record that is emitted; None: the result itself.
        self.own: Callable[[Any, Any], Any] | None = None if place.object_reuse else owned_of

    def open(self) -> None:
        """Get ready for records."""

    def process(self, records: list[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        raise NotImplementedError

    def watermark(self, time: int) -> None:
        """Event time has come this far."""
        self.moment.watermark = self.moment.passed = time
        self._pass_watermark(time)

    def idle(self) -> None:
        """No input is to be expected for a while."""
        for target in self._all_targets():
            target.idle()

    def next_tick_ms(self) -> int | None:
        """At which wall clock time :meth:`tick` is due; None: never."""
        return None

    def tick(self, now_ms: int) -> None:
        """Time has passed."""

    def records_behind(self) -> dict[str, int]:
        """Of a source: the records of each split that are there and were not read."""
        return {}

    def end_key(self) -> None:
        """In a batch job: the input of the only key that has state has ended, and with it the key's time."""

    def finish(self) -> None:
        """All input has ended, and the last timers have fired."""

    def before_barrier(self) -> None:
        """A barrier is about to go out: the last moment to emit something before it."""

    def after_snapshot(self) -> None:
        """The synchronous part of the snapshot is over."""

    def confirmed(self, checkpoint: int) -> None:
        """A checkpoint is complete."""
        if self.backend is not None:
            self.backend.confirmed(checkpoint)
        self.state.confirmed(checkpoint)

    def aborted(self, checkpoint: int) -> None:
        """A checkpoint was given up."""
        self.state.aborted(checkpoint)

    def close(self) -> None:
        """Called once, at the end or after a failure."""

    def drop_late(self, late_ms: int, advice: str, records: int = 1) -> None:
        """Records that came too late to count are dropped: count them, and say so once."""
        count = self.counters.get("late_records", 0)
        self.counters["late_records"] = count + records
        if not count:
            self.notice(
                "late_records", f"drops records that come too late, the first by {late_ms / 1000:g} s. {advice}"
            )

    def report_outage(self, cause: str | None) -> None:
        """The outside system is away, or back again. Called from any thread."""
        if cause is None:
            self._outages.pop(self.operator.uid, None)
        else:
            self._outages[self.operator.uid] = cause

    def emit(self, records: list[Any], timestamps: list[int] | None = None) -> None:
        if records:
            self._give(self.targets, records, timestamps)

    def _give(self, targets: list[Target], records: list[Any], timestamps: list[int] | None) -> None:
        """Pass records on to all of these. A link keeps them for a while; an operator may change them."""
        self.records_out += len(records)
        if len(targets) < 2 or self.own is None:
            for target in targets:
                target.process(records, timestamps)
            return
        is_kept = not all(isinstance(target, ChainedOperator) for target in targets)
        for number, target in enumerate(targets, 1):
            is_free = not isinstance(target, ChainedOperator) or (number == len(targets) and not is_kept)
            target.process(records if is_free else copies_of(records), timestamps)

    def _pass_watermark(self, time: int) -> None:
        self.watermark_out = time
        if time == MAX_TIME:
            # Before the end of time is passed on: downstream, what is emitted now must not be late.
            self.finish()
        for target in self._all_targets():
            target.watermark(time)

    def _all_targets(self) -> list[Target]:
        return [*self.targets, *(t for targets in self.side_targets.values() for t in targets)]

    def failure(self, error: Exception, records: list[Any], iterator: Any) -> Exception:
        """The error to raise for ``error``, with the place it happened at: ours has a note of it."""
        at = len(records) - iterator.__length_hint__() - 1
        record = f"{records[at]!r:.500}" if 0 <= at < len(records) else ""
        if isinstance(error, MoorlineError) and not isinstance(error, UserCodeFailed):
            return self.noted(error, f"record {self.records_in + at} of this attempt: {record}" if record else "")
        return user_code_failed(self.operator, self.subtask, error, self.records_in + at, record)

    def noted(self, error: MoorlineError, at: str = "") -> MoorlineError:
        """``error`` with a note of the place it happened at, if it has none: the operator farther up has another."""
        if not getattr(error, "__notes__", None):
            place = f"operator {self.operator.uid!r} ({self.operator.name}), subtask {self.subtask}"
            error.add_note(f"in {place}, {at}" if at else f"in {place}")
        return error


def take(made: Iterable[Any], out: list[Any], own: Callable[[Any, Any], Any] | None) -> bool:
    """Append the results of a call to ``out``, each as the value that it is when it is made.

    Can one of them be ``tag, value``? A tuple of immutable parts is none, and nothing else is looked at.

    Give the results themselves, not a variable with them: a reference more looks as if user code kept them.
    """
    if own is None:
        out.extend(made)
        return True
    may_be_tagged = False
    for value in made:
        cls = type(value)
        if cls is tuple:
            for part in value:
                if type(part) not in IMMUTABLE:
                    may_be_tagged, part = True, None
                    value = own(made, value)
                    break
        elif cls not in IMMUTABLE:
            value = own(made, value)
        out.append(value)
    return may_be_tagged


def user_code_failed(
    operator: Operator, subtask: int, error: Exception, position: int = -1, record: str = ""
) -> UserCodeFailed:
    """``error`` with the user's own part of its traceback, and where it happened."""
    frames = traceback.extract_tb(error.__traceback__)
    user_frames = [f for f in frames if "/moorline/subtask/" not in f.filename.replace("\\", "/")]
    shown = "".join(traceback.format_list(user_frames)) + "".join(traceback.format_exception_only(error))
    name = f"{type(error).__name__}: {error}"
    if isinstance(error, ModuleNotFoundError):
        name += f" ({advice_on_module(error)})"
    return UserCodeFailed(operator.uid, operator.name, subtask, position, record, name, shown)
