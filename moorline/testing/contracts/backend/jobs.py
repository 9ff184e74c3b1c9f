"""A job with one state, against a dict that knows better: what the machines of ``machines.py`` have in common.

A machine is a job with one state in some subtasks. Several checkpoints may be pending; each completes (then older
ones never will), is given up after it was written, or fails before. A crash goes back to the last one that has
completed, at any parallelism, with full or incremental snapshots from then on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from moorline.api.state.descriptors import StateDescriptor
from moorline.state.backend import KeyedBackend, OperatorClock
from moorline.testing.contracts.backend.base import (
    DAY,
    HOUR,
    Account,
    BackendTests,
    Colour,
    Part,
    PendingSnapshot,
    Subtask,
    shown,
    subtask_of,
)

#: So many more keys that hardly ever change, lest every increment be as large as the state.
OTHERS = range(100, 140)
KEYS = [0, 1, 2, -5, 2**70, "a", "b", (1, "a"), Colour.RED, Account("north", 1), 2.5]
KEY_TYPE = Colour | Account

some_key = st.sampled_from(KEYS)
some_window = st.sampled_from([HOUR, DAY])
number = st.integers(-9, 9)


class JobMachine(RuleBasedStateMachine):
    """A job with one state: some subtasks, a dict that knows better, and pending checkpoints."""

    descriptor: ClassVar[StateDescriptor | None] = None
    #: Has each window a state of its own?
    is_windowed: ClassVar[bool] = False
    timers: ClassVar[tuple[str, ...]] = ()
    factory: ClassVar[Callable[..., KeyedBackend]]

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[Any, Any] = {}
        self.completed: tuple[int, list[Part], dict[Any, Any]] = (0, [], {})
        self.pending_snapshots: list[tuple[int, list[PendingSnapshot], dict[Any, Any]]] = []
        self.subtasks: list[Subtask] = []
        self.next = 1
        self._start(1, True)
        for key in OTHERS:
            self.touch(key, HOUR)
        self.checkpoint()

    def teardown(self) -> None:
        for subtask in self.subtasks:
            subtask.backend.close()

    # --- the job --------------------------------------------------------------------------------

    def _start(self, parallelism: int, incremental: bool) -> None:
        self.teardown()
        number, parts, model = self.completed
        self.model, self.pending_snapshots = copy.deepcopy(model), []
        declared = [self.descriptor] if self.descriptor is not None else []
        tests = _Tests(type(self).factory)
        self.subtasks = [
            Subtask(
                tests,
                *([] if self.is_windowed else declared),
                windows=declared if self.is_windowed else (),
                timers=self.timers,
                incremental=incremental,
                key_type=KEY_TYPE if self.timers else None,
                restored=parts,
                completed=number,
                index=index,
                parallelism=parallelism,
            )
            for index in range(parallelism)
        ]

    def touch(self, key: Any, window: tuple[int, int]) -> None:
        """Make some change."""
        raise NotImplementedError

    def owner(self, key: Any) -> Subtask:
        return self.subtasks[subtask_of(key, len(self.subtasks))]

    def state(self, key: Any, window: tuple[int, int]) -> Any:
        """The live state, with the key as its current one."""
        subtask = self.owner(key)
        subtask.at(key, window)
        return (subtask.windows if self.is_windowed else subtask.states)[0]

    def ident(self, key: Any, window: tuple[int, int]) -> Any:
        """The name that the model has for it."""
        return (key, window) if self.is_windowed else key

    def agree(self) -> None:
        """The states hold what the model says, for all keys. Looking may count as a change."""
        for key in [*KEYS, *OTHERS]:
            for window in (HOUR, DAY):
                assert shown(self.state(key, window)) == self.model.get(self.ident(key, window)), (key, window)

    # --- checkpoints ----------------------------------------------------------------------------

    @rule()
    @precondition(lambda self: len(self.pending_snapshots) < 3)
    def begin(self) -> None:
        # A number is never used twice, also not by checkpoints that were given up.
        started = []
        for subtask in self.subtasks:
            subtask.next = self.next
            started.append(subtask.begin())
        self.pending_snapshots.append((self.next, started, copy.deepcopy(self.model)))
        self.next += 1

    @rule(which=st.integers(0, 2), confirm=st.booleans())
    @precondition(lambda self: self.pending_snapshots)
    def complete(self, which: int, confirm: bool) -> None:
        which %= len(self.pending_snapshots)
        for _, older, _ in self.pending_snapshots[:which]:
            for subtask, snapshot in zip(self.subtasks, older, strict=True):
                subtask.give_up(snapshot)
        number, started, model = self.pending_snapshots[which]
        del self.pending_snapshots[: which + 1]
        parts = [p for s, taken in zip(self.subtasks, started, strict=True) for p in s.complete(taken, confirm=confirm)]
        self.completed = (number, parts, model)

    @rule(which=st.integers(0, 2), written=st.booleans())
    @precondition(lambda self: self.pending_snapshots)
    def fail(self, which: int, written: bool) -> None:
        _, started, _ = self.pending_snapshots.pop(which % len(self.pending_snapshots))
        for subtask, snapshot in zip(self.subtasks, started, strict=True):
            if written:
                subtask.give_up(snapshot)
            else:
                snapshot.failed()

    @rule()
    def checkpoint(self) -> None:
        self.begin()
        self.complete(len(self.pending_snapshots) - 1, confirm=True)

    @rule(parallelism=st.integers(1, 4), incremental=st.sampled_from([True, True, False]))
    def crash(self, parallelism: int, incremental: bool) -> None:
        self._start(parallelism, incremental)
        self.agree()

    @rule(key=some_key, window=some_window)
    def look(self, key: Any, window: tuple[int, int]) -> None:
        assert shown(self.state(key, window)) == self.model.get(self.ident(key, window))


class StateMachine(JobMachine):
    """A job with snapshot keyed state."""

    @rule(key=some_key, window=some_window)
    def clear(self, key: Any, window: tuple[int, int]) -> None:
        self.state(key, window).clear()
        self.model.pop(self.ident(key, window), None)


class _Tests(BackendTests):
    def __init__(self, factory: Callable[..., KeyedBackend]) -> None:
        self._factory = factory

    def make_backend(
        self,
        uid: str,
        max_parallelism: int,
        moment: OperatorClock | None = None,
        *,
        incremental: bool = False,
        key_type: Any = None,
    ) -> KeyedBackend:
        return self._factory(uid, max_parallelism, moment, incremental=incremental, key_type=key_type)
