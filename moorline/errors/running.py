"""For the author, at run time: what a function did cannot work."""

from __future__ import annotations

from dataclasses import dataclass

from moorline.errors.common import MoorlineError


class StateError(MoorlineError):
    """State was used in a way that cannot work."""

    can_pass = False


@dataclass(eq=False)
class StateNotBound(StateError):
    """A state was used outside of a running operator."""

    name: str

    def __str__(self) -> str:
        return (
            f"state {self.name!r} is declared but not bound: states can be used in open() and later, "
            f"inside a running operator (or in moorline.testing.OperatorHarness)."
        )


@dataclass(eq=False)
class NoCurrentKey(StateError):
    """Keyed state was touched while no record was being processed."""

    name: str

    def __str__(self) -> str:
        return (
            f"keyed state {self.name!r} was used with no current key. It belongs to the key of the record "
            f"in process_element; open() and close() have none."
        )


@dataclass(eq=False)
class TimersNeedKey(StateError):
    """A timer was set where there is no key to set it for."""

    uid: str

    def __str__(self) -> str:
        return (
            f"operator {self.uid!r} set a timer with no current key. Timers belong to a key: use them in "
            f"process_element or on_timer of a keyed stream, not in open(), on the broadcast side, or without key_by."
        )


@dataclass(eq=False)
class TimerWithoutHandler(StateError):
    """A timer was set by a function that has nothing to do when it is due."""

    uid: str
    function: str
    #: A method of the function's own that may be meant.
    similar: str = ""

    def __str__(self) -> str:
        advice = f"Is {self.similar!r} meant? Rename it to on_timer." if self.similar else "Write on_timer."
        return (
            f"operator {self.uid!r} set a timer, but its function {self.function} has no on_timer(self, timestamp, "
            f"ctx), so nothing would happen when it is due. {advice}"
        )


@dataclass(eq=False)
class InvalidOutput(StateError):
    """A function returned one record, or none, where any number of them is expected."""

    uid: str
    method: str
    had: str
    advice: str
    verb: str = "returned"

    def __str__(self) -> str:
        return f"{self.method} of operator {self.uid!r} {self.verb} {self.had}. {self.advice}"


@dataclass(eq=False)
class RecordNotOfSchema(StateError):
    """A record does not fit the schema that its stream was declared with."""

    uid: str
    record: str
    cause: str
    schema: str

    def __str__(self) -> str:
        return f"operator {self.uid!r} wants {self.schema}, and this does not fit: {self.record}: {self.cause}"


@dataclass(eq=False)
class AggregateTooLarge(StateError):
    """An aggregate does not fit: whole numbers have 64 bits, decimals 38 digits."""

    uid: str
    result: str

    def __str__(self) -> str:
        return (
            f"a result of operator {self.uid!r} no longer fits: {self.result!r}. Whole numbers have 64 bits, and "
            f"decimals 38 digits: aggregate a column of floats, or of larger units."
        )


@dataclass(eq=False)
class TimestampMissing(StateError):
    """A record without a timestamp reached something that goes by event time."""

    uid: str
    record: str

    def __str__(self) -> str:
        return (
            f"operator {self.uid!r} goes by event time, but this record has no timestamp: {self.record}. Put "
            f".assign_timestamps_and_watermarks(...) before it, give the source watermarks=, or use windows of "
            f"processing time."
        )


@dataclass(eq=False)
class ReadOnlyState(StateError):
    """Broadcast state was changed on the side that may only read it."""

    name: str

    def __str__(self) -> str:
        return (
            f"broadcast state {self.name!r} can only be changed in process_broadcast_element: every subtask must "
            f"make the same changes, and only broadcast records reach all of them."
        )


@dataclass(eq=False)
class UnknownState(StateError):
    """A state was asked for that the operator does not have."""

    uid: str
    name: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        has = ", ".join(map(repr, self.known)) or "none"
        return f"operator {self.uid!r} has no state {self.name!r} of that kind (it has {has}). Declare it first."


@dataclass(eq=False)
class KeyClassUnknown(StateError):
    """A restored key is needed before any record has shown its class."""

    name: str

    def __str__(self) -> str:
        return (
            f"a restored key is of class {self.name!r}, and a snapshot cannot bring a class along. No record with that "
            f"key has come yet, but it is needed now (a timer of it is due, or all keys are asked for). "
            f"Declare the class of the keys: key_by(selector, key_type=...)."
        )


@dataclass(eq=False)
class KeyClassesClash(StateError):
    """Keys are of two classes that have the same name."""

    uid: str
    name: str
    first: str
    second: str

    def __str__(self) -> str:
        return (
            f"operator {self.uid!r} has keys of two classes {self.name!r}, one of module {self.first!r} and one of "
            f"{self.second!r}. A key is stored with the name of its class and not with the module, so that a class can "
            f"be moved; the two would become one key. Rename one of them, or put something into the key that tells "
            f"them apart."
        )


@dataclass(eq=False)
class TtlNotEnabled(StateError):
    """One write was given a time to live in a state that has none."""

    name: str
    ttl: object

    def __str__(self) -> str:
        return (
            f"a value of state {self.name!r} was written with ttl={self.ttl!r}, but the state has no time to live, so "
            f"nothing would remove it. Declare the state with ttl= as well; single writes may then have another length."
        )


@dataclass(eq=False)
class StateRegisteredLate(StateError):
    """A state was asked for after the first record."""

    name: str

    def __str__(self) -> str:
        return f"state {self.name!r} was asked for after open(). Ask for every state in open()."


@dataclass(eq=False)
class LoopRecordNotPlain(StateError):
    """A record in a loop cannot be kept in a snapshot."""

    uid: str
    upstream: str
    had: str

    def __str__(self) -> str:
        return (
            f"operator {self.upstream!r} sends records back to {self.uid!r} that a snapshot cannot hold: {self.had}. "
            f"Send plain data (numbers, texts, tuples, lists, dicts ...) round the loop, or say iterate(..., "
            f"pickled=True): then they are kept as pickles, and reading a snapshot of the job runs what is in them."
        )


@dataclass(eq=False)
class StateTypeMismatch(StateError):
    """A value does not fit the declared type of its state."""

    state: str
    type: str
    cause: str
    uid: str = ""
    #: Under which key it was put; empty for a state without keys.
    key: str = ""
    what: str = "value"

    def __str__(self) -> str:
        key = f", key {self.key}" if self.key else ""
        where = f"operator {self.uid!r}{key}: " if self.uid else ""
        return (
            f"{where}a {self.what} in state {self.state!r} does not fit its declared type {self.type}: {self.cause}. "
            f"{self._advice}"
        )

    @property
    def _advice(self) -> str:
        if self.type == "plain":
            # Of a state without a declared type, also that of a reduction or a window.
            return (
                "Without a declared type it holds plain data. Give the class where the state is declared, such as "
                "mo.ValueState(Order); type=Order to reduce(); element_type= or accumulator_type= to a window."
            )
        return "Store values of that type, or declare the type that is stored."


@dataclass(eq=False)
class UnsupportedType(StateError):
    """A state's declared type has no stored form."""

    type: str
    where: str

    def __str__(self) -> str:
        return (
            f"{self.where}: {self.type} cannot be stored. Use int, float, bool, str, bytes, date and time types, UUID, "
            f"Decimal, Enum, NumPy and Arrow types, and list, dict, set, tuple, dataclass or msgspec.Struct of these; "
            f"or leave the type out; or, for classes of which none of this can be made, moorline.Pickled(allow=[...])."
        )


@dataclass(eq=False)
class PickleRefused(StateError):
    """A pickle refers to a name that its state's declaration does not allow, or would change an object not its own."""

    refused: tuple[str, ...]
    allowed: tuple[str, ...]
    would_change: bool = False

    def __str__(self) -> str:
        if self.would_change:
            return (
                f"a pickle would change {', '.join(self.refused)}, which it has not made: no object of an allowed "
                f"class is stored like that. The state was written by something else than a job, and nothing of it "
                f"has been run. Restore from a snapshot of which you know who wrote it."
            )
        return (
            f"a pickle refers to {', '.join(self.refused)}, which is not allowed "
            f"(allowed: {', '.join(self.allowed) or 'nothing'}). If its unpickling can be trusted, declare the state "
            f"with moorline.Pickled(allow=[..., {', '.join(map(repr, self.refused))}])."
        )


@dataclass(eq=False)
class InvalidKey(StateError):
    """A record has no usable key."""

    uid: str
    key: str
    record: str
    cause: str

    def __str__(self) -> str:
        return (
            f"operator {self.uid!r} was given the key {self.key} by record {self.record}: {self.cause}. "
            f"A key is an int, str, bytes, bool, float, Decimal, date, datetime, time, timedelta, UUID, Enum, a frozen "
            f"dataclass, or a tuple or frozenset of these, and never None."
        )


@dataclass(eq=False)
class RecordNotCopied(StateError):
    """A record that could change after it was emitted, and that cannot be copied."""

    type: str
    cause: str

    def __str__(self) -> str:
        return (
            f"a record holds a value of type {self.type}, which could change after it was emitted and cannot be "
            f"copied: {self.cause}. Emit a value that cannot change, give the class a __deepcopy__, or run the job "
            f"with object_reuse=True if no function changes or keeps what it has emitted."
        )


@dataclass(eq=False)
class RecordChanged(StateError):
    """A function has changed a record after it had emitted it; found by a test harness."""

    uid: str
    emitted: str
    now: str

    def __str__(self) -> str:
        return (
            f"operator {self.uid!r} has emitted {self.emitted} and changed it afterwards: now it is {self.now}. "
            f"Emit a copy, or do not run this job with object_reuse=True."
        )


@dataclass(eq=False)
class UserCodeFailed(MoorlineError):
    """User code raised; the traceback is the user's own."""

    uid: str
    name: str
    subtask: int
    position: int
    record: str
    error: str
    traceback: str

    def __str__(self) -> str:
        where = f"operator {self.uid!r} ({self.name}), subtask {self.subtask}"
        at = f", record {self.position} of this attempt: {self.record}" if self.position >= 0 else ""
        return f"{self.error} in {where}{at}\n{self.traceback}"


@dataclass(eq=False)
class RecordTooLarge(StateError):
    """A record cannot be sent to another subtask."""

    size: int
    limit: int

    def __str__(self) -> str:
        return (
            f"a record has {self.size:,} bytes on its way to another subtask, and {self.limit:,} are the limit. "
            f"Send it in parts, or put it into a file and send its name."
        )
