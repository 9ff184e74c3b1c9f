"""The deployment of an attempt: its plan, and the state that each of its subtasks restores."""

from __future__ import annotations

from dataclasses import dataclass, field

from moorline.model.config.state import ON_THE_HEAP, StateConfig
from moorline.model.graph import Plan
from moorline.model.ids import Attempt, CheckpointId, SubtaskId
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import ElementsHandle, InFlightHandle, KeyedHandle


@dataclass(frozen=True)
class ElementsSlice:
    """Elements ``[start,stop)`` behind a handle."""

    handle: ElementsHandle
    start: int
    stop: int


@dataclass(frozen=True)
class InFlightShare:
    """Of the elements behind a handle every ``step``-th from ``first`` on, and of those the records of some keys."""

    handle: InFlightHandle
    first: int = 0
    step: int = 1
    #: None: all records.
    key_groups: KeyGroupRange | None = None


@dataclass(frozen=True)
class OperatorRestore:
    """The state that one operator of one subtask gets back."""

    #: Every file with rows in the subtask's key-group range; it reads just those rows.
    keyed: tuple[KeyedHandle, ...] = ()
    elements: dict[str, tuple[ElementsSlice, ...]] = field(default_factory=dict)
    #: The keys are to be changed on the way; :attr:`keyed` is then everybody's.
    changes_keys: bool = False
    #: The number of key groups in the snapshot, if it is another one than the job's: keys are dealt out anew.
    key_groups: int | None = None
    #: Records that come before all new ones.
    in_flight: tuple[InFlightShare, ...] = ()
    #: The kinds of keys that the operator had, in all subtasks. Empty: not known.
    key_kinds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Deployment:
    """One attempt of a job."""

    plan: Plan
    attempt: Attempt
    #: The checkpoint it starts from; None: empty.
    restored: CheckpointId | None = None
    #: The parts of that checkpoint, by subtask and operator uid.
    restores: dict[SubtaskId, dict[str, OperatorRestore]] = field(default_factory=dict)
    #: Where snapshots go: the job's folder as a URL; None: nowhere.
    location: str | None = None
    #: Where the restored snapshot lies, if it is not one of the job's own checkpoints.
    restore_location: str | None = None
    #: How keyed state is kept.
    state: StateConfig = ON_THE_HEAP
    #: Nothing is read and nothing fires: all that is left to do is to commit and to end.
    is_paused: bool = False
    #: The line of checkpoints that it goes on with: see :attr:`moorline.CommitterContext.lineage`.
    lineage: str = ""
