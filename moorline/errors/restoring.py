"""For the author or the operator, when a job starts from a snapshot."""

from __future__ import annotations

from dataclasses import dataclass

from moorline.errors.common import MoorlineError


class RestoreError(MoorlineError):
    """A snapshot cannot be restored into this job."""

    can_pass = False


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
class KeysChanged(RestoreError):
    """Restored state is under keys of another kind than the job's: none of it would be found again."""

    uid: str
    stored: tuple[str, ...]
    now: str
    #: A key of the new kind; empty if its type alone is known.
    key: str = ""

    def __str__(self) -> str:
        stored, example = " or ".join(self.stored), f" (such as {self.key})" if self.key else ""
        return (
            f"the state of operator {self.uid!r} is stored under keys of kind {stored}, and its keys are now of kind "
            f"{self.now}{example}: none of that state would be found again. Give key_by the key that it had; or make "
            f"new keys of the old ones, with rekey=mo.Rekey(name, lambda old: ...) on that step. If keys of both kinds "
            f"are meant, declare them: key_by(..., key_type=...)."
        )


@dataclass(eq=False)
class KeysCollide(RestoreError):
    """Two old keys became one new key, and no rule merges their values."""

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
    """The values of several old keys could not be merged under one new key."""

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
    """A snapshot holds pickled records, and the job does not permit reading them."""

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
    """A file of a snapshot does not match its manifest."""

    path: str
    cause: str

    def __str__(self) -> str:
        return f"{self.path} is damaged: {self.cause}. The snapshot it belongs to cannot be used."


@dataclass(eq=False)
class HistoryBroken(SnapshotCorrupt):
    """The history of a job says that there was state, and no checkpoint of it can be used."""

    def __str__(self) -> str:
        folder = self.path.partition("/history")[0]
        return (
            f"{self.path}: {self.cause}. There was state, and no checkpoint is left to restore it from, so the job is "
            f"not started. Nothing was deleted. Bring {folder} back from a backup; or start from a savepoint with "
            f'restore="..."; or, to begin with empty state on purpose, start with restore=None. `moorline fsck '
            f"{folder}` says what is missing, and --give-up takes the number of an entry that will not come back."
        )


@dataclass(eq=False)
class OutputCannotBeUndone(RestoreError):
    """A sink has output that it cannot take back, and the job would have to go back past it."""

    uid: str
    checkpoint: int
    damage: str

    def __str__(self) -> str:
        return (
            f"{self.damage}. The job would go back to checkpoint {self.checkpoint}, and sink {self.uid!r} cannot take "
            f"back what it has written since: those records would be written twice. The job is not started, and "
            f'nothing was changed. Bring the damaged file back from a backup; or give the sink on_roll_back="repeat" '
            f'to have them written twice; or start from a savepoint with restore="...".'
        )


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
            f"{self.uid!r} as of checkpoint {self.reached}, and cannot go back. Restore checkpoint {self.reached} (a "
            f"savepoint, if the job was stopped with one) or a later one; or bring the store back to a backup of that "
            f"time; or have the store forget the job (its forget() method) and start it fresh."
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
