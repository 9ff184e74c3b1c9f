"""Every exception a user can meet, grouped by who has to act.

    JobError      the author, before anything runs
    StateError    the author, at run time
    RestoreError  the author or the operator, when a job starts from a snapshot
    StorageError  the operator
    QueryFailed   whoever asked for the content of a state
    SparkUnsuitable  the operator: this Spark cannot carry a job
    JobFailed     the operator: the job gave up
    InvalidTransition  us: it is a bug

Fields come first and the sentence last, so callers and tests read attributes instead of parsing text.
What happens daily (declined, expired, a late acknowledgement) is a value, not an exception:
see :class:`FailureReason`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum


class MoorlineError(Exception):
    """Base of all of them."""

    def __reduce__(self) -> tuple[type[MoorlineError], tuple[object, ...]]:
        # Exceptions cross from Spark tasks to the driver, so they must survive pickling.
        if is_dataclass(self):
            return type(self), tuple(getattr(self, f.name) for f in fields(self))
        return type(self), self.args


class FailureReason(Enum):
    """Why a checkpoint did not complete, and whether that counts as a failure."""

    EXPIRED = ("it did not finish within the checkpoint timeout", True)
    DECLINED = ("a subtask declined it", True)
    OVERTAKEN = ("the barrier of a newer checkpoint arrived first at a subtask", False)
    UPLOAD_FAILED = ("a subtask could not write its files", True)
    PUBLISH_FAILED = ("its manifest could not be published", True)
    SUBSUMED = ("a newer checkpoint completed first", False)

    def __init__(self, sentence: str, counts: bool):
        self.sentence, self.counts = sentence, counts


# --- the author, before anything runs ---------------------------------------------------------


class JobError(MoorlineError):
    """The job cannot be built as written."""


@dataclass(eq=False)
class DuplicateUid(JobError):
    """Two operators of a job share a uid."""

    uid: str

    def __str__(self) -> str:
        return (
            f"two operators have the uid {self.uid!r}. State is found again by uid, "
            f"so each operator needs its own: change one of them."
        )


@dataclass(eq=False)
class ParallelismTooHigh(JobError):
    """An operator wants more subtasks than there are key groups."""

    uid: str
    parallelism: int
    max_parallelism: int

    def __str__(self) -> str:
        return (
            f"operator {self.uid!r} has parallelism {self.parallelism}, above the job's max parallelism "
            f"{self.max_parallelism}. Lower it, or build the job with a higher max_parallelism."
        )


@dataclass(eq=False)
class InvalidArgument(JobError):
    """A value given to the API is of no use there."""

    what: str
    had: object
    advice: str

    def __str__(self) -> str:
        return f"{self.what}: got {self.had!r}. {self.advice}"


@dataclass(eq=False)
class KeyedStateWithoutKey(JobError):
    """A function with keyed state sits on a stream that has no key."""

    uid: str
    states: tuple[str, ...]

    def __str__(self) -> str:
        what = f"keyed state ({', '.join(self.states)})" if self.states else "a key"
        return f"operator {self.uid!r} needs {what}, but its input is not keyed. Put .key_by(...) directly before it."


@dataclass(eq=False)
class UnconnectedStream(JobError):
    """The output of an operator goes nowhere."""

    uid: str

    def __str__(self) -> str:
        return (
            f"nothing reads the output of operator {self.uid!r}. End it with .sink(...), "
            f"or with .sink(mo.discard()) if its output is not wanted."
        )


@dataclass(eq=False)
class InvalidLoop(JobError):
    """A loop that cannot be run as it was written."""

    head: str
    cause: str
    advice: str

    def __str__(self) -> str:
        which = f"the loop of operator {self.head!r}" if self.head else "a loop"
        return f"{which} cannot be: {self.cause}. Please {self.advice}."


@dataclass(eq=False)
class NothingToRun(JobError):
    """A job without a source."""

    job: str

    def __str__(self) -> str:
        return f"job {self.job!r} has no source. Start with job.source(...)."


@dataclass(eq=False)
class FunctionNotShippable(JobError):
    """A function cannot travel to the workers."""

    uid: str
    cause: str

    def __str__(self) -> str:
        return (
            f"the function of operator {self.uid!r} cannot be sent to the workers: {self.cause}. "
            f"Open files, locks and connections in open(), not when the function is made."
        )


# --- the author, at run time ------------------------------------------------------------------


class StateError(MoorlineError):
    """State was used in a way that cannot work."""


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
    """A restored key is needed before any record has shown what class it is of."""

    name: str

    def __str__(self) -> str:
        return (
            f"a restored key is of class {self.name!r}, and a snapshot cannot bring a class along. No record with that "
            f"key has come yet, but it is needed now (a timer of it is due, or all keys are asked for). "
            f"Declare the class of the keys: key_by(selector, key_type=...)."
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
    """What goes round a loop cannot be kept in a snapshot."""

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

    def __str__(self) -> str:
        return (
            f"a value in state {self.state!r} does not fit its declared type {self.type}: {self.cause}. "
            f"Store values of that type, or declare the type that is stored."
        )


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
    """A pickle refers to what its state's declaration does not allow."""

    refused: tuple[str, ...]
    allowed: tuple[str, ...]

    def __str__(self) -> str:
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
            f"A key is an int, str, bytes, bool, float, date, datetime, time, UUID, Enum, a frozen dataclass, "
            f"or a tuple of these, and never None."
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


# --- starting from a snapshot -----------------------------------------------------------------


class RestoreError(MoorlineError):
    """A snapshot cannot be restored into this job."""


@dataclass(eq=False)
class OperatorNotFound(RestoreError):
    """A snapshot holds state for an operator that the job no longer has."""

    uid: str
    snapshot: str

    def __str__(self) -> str:
        return (
            f"{self.snapshot} holds state for operator {self.uid!r}, but the job has no operator with that uid. "
            f"Give the operator its old uid back, or pass allow_non_restored_state=True to drop this state."
        )


@dataclass(eq=False)
class SnapshotNotFound(RestoreError):
    """There is no snapshot where one was looked for."""

    path: str
    cause: str

    def __str__(self) -> str:
        return (
            f"there is no snapshot to use in {self.path}: {self.cause}. Give the folder of a savepoint (it has a "
            f"manifest.json), or the folder of a job in a checkpoint location (it has a history)."
        )


@dataclass(eq=False)
class SavepointFailed(MoorlineError):
    """A savepoint could not be taken. A job that is running goes on."""

    path: str
    cause: str

    def __str__(self) -> str:
        return f"the savepoint {self.path} was not taken: {self.cause}. Ask again while the job is running."


@dataclass(eq=False)
class MaxParallelismChanged(RestoreError):
    """The number of key groups is fixed by the snapshot: some of its state belongs to key groups and not to keys."""

    uid: str
    snapshot: int
    job: int
    #: What cannot be dealt out anew.
    state: str = ""

    def __str__(self) -> str:
        return (
            f"operator {self.uid!r} has {self.snapshot} key groups in the snapshot and {self.job} in the job, and "
            f"{self.state or 'its state'} cannot be dealt out anew by key. "
            f"Set max_parallelism={self.snapshot} (or leave it unset), and a parallelism not above it."
        )


@dataclass(eq=False)
class StateIncompatible(RestoreError):
    """A state's stored form does not fit its declaration."""

    uid: str
    state: str
    stored: str
    declared: str
    #: What exactly does not fit, if it is a matter of types.
    reason: str = ""

    def __str__(self) -> str:
        what = (
            f"state {self.state!r} of operator {self.uid!r} was stored as {self.stored} and is now declared "
            f"as {self.declared}"
        )
        if not self.reason:
            return (
                f"{what}. Declare it as it was stored, give it another name, or let go of what is stored with "
                f"drop_states={[self.state]!r} on that step."
            )
        return (
            f"{what}: {self.reason}. Declare it as it was stored, give a new field a default, or give the state a "
            f"function migrate= that makes the new value from the old."
        )


@dataclass(eq=False)
class KeysCollide(RestoreError):
    """Two old keys became one new key, and nobody said what becomes of their values."""

    uid: str
    state: str
    key: str
    rekey: str

    def __str__(self) -> str:
        return (
            f"rekey {self.rekey!r} of operator {self.uid!r} gives several old keys the new key {self.key}, and state "
            f"{self.state!r} has a value for more than one of them. Say how two become one: "
            f"Rekey(..., merge={{{self.state!r}: lambda a, b: ...}})."
        )


@dataclass(eq=False)
class MergeFailed(RestoreError):
    """What several old keys have under one new key could not be merged."""

    uid: str
    rekey: str
    state: str
    key: str
    cause: str

    def __str__(self) -> str:
        return (
            f"rekey {self.rekey!r} of operator {self.uid!r} could not carry state {self.state!r} over to the new key "
            f"{self.key}: {self.cause}. Check the function that merges its values. The snapshot is unharmed."
        )


@dataclass(eq=False)
class RekeyFailed(RestoreError):
    """The user's function from old keys to new ones failed."""

    uid: str
    rekey: str
    key: str
    cause: str

    def __str__(self) -> str:
        return (
            f"rekey {self.rekey!r} of operator {self.uid!r} failed for the key {self.key}: {self.cause}. "
            f"It must return a key (or None to drop it) for every key there is. The snapshot is unharmed."
        )


@dataclass(eq=False)
class InFlightNowhere(RestoreError):
    """A snapshot holds records on their way to an operator that no longer reads from where they come."""

    uid: str
    upstream: str
    snapshot: str
    #: They went round a loop.
    loop: bool = False

    def __str__(self) -> str:
        if self.loop:
            return (
                f"{self.snapshot} holds records that went round a loop, from operator {self.upstream!r} back to "
                f"operator {self.uid!r}, but in this job that does not lead back there. Give the loop back, with these "
                f"uids and the same key; or let the job run until its loop is empty, and change it then."
            )
        return (
            f"{self.snapshot} is an unaligned one and holds records on their way from operator {self.upstream!r} to "
            f"operator {self.uid!r}, but in this job they are not joined as they were. Start the job as it was, take a "
            f"savepoint of it or stop() it, and change it then. allow_non_restored_state=True gives up what was on its "
            f"way to operators that are gone."
        )


@dataclass(eq=False)
class InFlightPickled(RestoreError):
    """A snapshot holds pickled records, and nobody has said that they may be read."""

    uid: str
    snapshot: str

    def __str__(self) -> str:
        return (
            f"{self.snapshot} holds pickled records on their way to operator {self.uid!r}. Reading a pickle can run "
            f"code, so it is done only for a job that writes such snapshots itself: start it with unaligned=True or "
            f"an aligned_timeout; or, if they go round a loop, give iterate() its pickled=True back."
        )


@dataclass(eq=False)
class SnapshotCorrupt(RestoreError):
    """A file of a snapshot is not what its manifest says."""

    path: str
    cause: str

    def __str__(self) -> str:
        return f"{self.path} is damaged: {self.cause}. The snapshot it belongs to cannot be used."


@dataclass(eq=False)
class ExternalStateAhead(RestoreError):
    """An outside store holds state of a later checkpoint than the one that is restored."""

    uid: str
    store: str
    restored: int
    reached: int

    def __str__(self) -> str:
        return (
            f"checkpoint {self.restored} is to be restored, but {self.store} already holds the state of operator "
            f"{self.uid!r} as of checkpoint {self.reached}, and cannot go back. Restore checkpoint {self.reached} or a "
            f"later one; or bring the store back to a backup of that time; or have the store forget the job "
            f"(its forget() method) and start it fresh."
        )


@dataclass(eq=False)
class ExternalStateBehind(RestoreError):
    """An outside store has lost state that a checkpoint builds on."""

    uid: str
    store: str
    needed: int
    reached: int

    def __str__(self) -> str:
        return (
            f"the state of operator {self.uid!r} in {self.store} should be as of checkpoint {self.needed} or later, "
            f"and is as of {self.reached or 'before the first one'}: the store has lost data, or is another one than "
            f"before. Point the job to the right store, or bring its data back from a backup."
        )


@dataclass(eq=False)
class ExternalStateLeftOver(RestoreError):
    """A state starts empty, and its outside store has something of an earlier run."""

    uid: str
    store: str
    reached: int

    def __str__(self) -> str:
        return (
            f"operator {self.uid!r} starts with empty state, but {self.store} holds its state as of checkpoint "
            f"{self.reached} of an earlier run. Restore that run's checkpoints, or say what to do with it: "
            f'on_fresh_start="clear" removes it, on_fresh_start="keep" goes on with it.'
        )


# --- the operator -----------------------------------------------------------------------------


@dataclass(eq=False)
class StorageError(MoorlineError):
    """Storage did not do what was asked."""

    path: str
    operation: str
    cause: str

    def __str__(self) -> str:
        return f"could not {self.operation} {self.path}: {self.cause}"


@dataclass(eq=False)
class BlobMissing(StorageError):
    """A file that was asked for is not there."""


@dataclass(eq=False)
class QueryFailed(MoorlineError):
    """A query of state has no answer. That there is nothing under the key is an answer: None."""

    uid: str
    state: str
    cause: str

    def __str__(self) -> str:
        return f"state {self.state!r} of operator {self.uid!r} cannot be queried: {self.cause}"


@dataclass(eq=False)
class QueryUnavailable(QueryFailed):
    """The running job has not answered in time. The same query may succeed later."""


@dataclass(eq=False)
class ConsoleRefused(MoorlineError):
    """A job's console has turned a request down, or cannot be reached."""

    url: str
    cause: str

    def __str__(self) -> str:
        return f"the console at {self.url}: {self.cause}"


@dataclass(eq=False)
class ExternalStateTaken(MoorlineError):
    """Another attempt has taken over the state that an outside store keeps for this one."""

    uid: str
    store: str
    ours: int
    theirs: int

    def __str__(self) -> str:
        whose = f"attempt {self.theirs}" if self.theirs else "somebody else"
        return (
            f"{whose} has taken over the state of operator {self.uid!r} in {self.store} from our attempt {self.ours}. "
            f"Nothing was written. If no other run of this job is alive and its checkpoints were removed on purpose, "
            f"have the store forget the job (its forget() method)."
        )


@dataclass(eq=False)
class Fenced(MoorlineError):
    """Another driver has taken over this job's storage."""

    location: str
    ours: int
    theirs: int

    def __str__(self) -> str:
        return (
            f"attempt {self.theirs} of another driver has taken over {self.location} from our attempt {self.ours}. "
            f"This driver stops and changes nothing; give each running job a name or a location of its own."
        )


@dataclass(eq=False)
class LeadershipLost(MoorlineError):
    """This driver may no longer lead the job: another one does, or may from now on."""

    job: str
    reason: str

    def __str__(self) -> str:
        return (
            f"this driver no longer leads job {self.job!r}: {self.reason}. It stops and changes nothing; the driver "
            f"that leads goes on from the newest checkpoint. Start this one again to have it stand by."
        )


@dataclass(eq=False)
class SparkUnsuitable(MoorlineError):
    """This Spark cannot carry a streaming job as it is set up."""

    problems: list[str]

    def __str__(self) -> str:
        return "Spark cannot run this job:\n" + "\n".join(f"  - {p}" for p in self.problems)


@dataclass(eq=False)
class JobFailed(MoorlineError):
    """The job gave up."""

    job: str
    reason: str
    last: str
    history: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        told = "".join(f"\n  {line}" for line in self.history)
        return f"job {self.job!r} failed: {self.reason}{told}\n{self.last}"


@dataclass(eq=False)
class JobCancelled(MoorlineError):
    """The job was cancelled while somebody waited for its result."""

    job: str

    def __str__(self) -> str:
        return f"job {self.job!r} was cancelled."


# --- us ---------------------------------------------------------------------------------------


@dataclass(eq=False)
class InvalidTransition(MoorlineError):
    """A machine of ours met an event that cannot happen. Please report it with the story."""

    machine: str
    state: str
    event: str
    story: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        told = "".join(f"\n  {line}" for line in self.story)
        return f"{self.machine} in state {self.state} cannot take: {self.event}{told}"
