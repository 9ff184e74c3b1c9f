"""The states of one operator in one subtask: which are bound, in which form, and which restored rows wait for them.

Backends keep content in different ways and do the same with names, forms and rows, so that is here, once:

    restore            rows wait under the name of their state until it is bound
    bind               a name stands for one form. A state with a time to live lies over a plain one
    timers             are a state too, under a name that no user's state has
    check_all_bound    rows that are left must belong to a state that may be dropped

A backend has one :class:`Registration`, and gives it a function that makes its own part of a state. None of it is on
the way of a record: a live state works on its part directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, NoReturn, Protocol, TypeVar

from moorline.api.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from moorline.api.state.states import State
from moorline.errors import InvalidArgument, StateIncompatible, UnknownState
from moorline.state.backend import CurrentKey, OperatorClock, RestoredFiles, RestoredRows
from moorline.state.forms import Form, form_of, timers_form
from moorline.state.ttl.states import expiring, judged_at

#: The name of the state that holds the timers of a kind begins so.
TIMERS = "timers:"


class Part(Protocol):
    """A backend's own part of one state: its content, in whatever way the backend keeps it."""

    @property
    def form(self) -> Form: ...


P = TypeVar("P", bound=Part)


class Made(NamedTuple, Generic[P]):
    """A part that a backend has made for a state, with the plain live state over it."""

    part: P
    live: State
    #: For the removal of what is over its time, as :func:`expiring` wants them. None: the backend does that by itself.
    idents: Callable[[], Iterator[Any]] | None = None
    look: Callable[[Any], Any] | None = None


#: Makes the part of a state from its form, the descriptor of its plain state and the current key that it looks at.
Make = Callable[[Form, StateDescriptor, CurrentKey], Made[P]]


class Registration(Generic[P]):
    """The bound states of one operator, by name, and the restored rows of those that are not bound yet.

    ``allow_dropped`` names restored states that need not be bound any more; None: any.
    """

    def __init__(self, uid: str, clock: OperatorClock | None, allow_dropped: frozenset[str] | None) -> None:
        self.uid, self.allow_dropped = uid, allow_dropped
        #: For states with a time to live.
        self.clock = clock if clock is not None else OperatorClock()
        #: In the order they were bound, those of timers among them.
        self.parts: dict[str, P] = {}
        self._live: dict[str, State] = {}
        self._restored: dict[str, list[RestoredRows]] = {}

    # --- restored rows --------------------------------------------------------------------------

    def add_rows(self, restored: RestoredRows) -> None:
        """Keep restored rows for the state that will be bound for them."""
        self._restored.setdefault(restored.handle.state, []).append(restored)

    def refuse_files(self, restored: RestoredFiles, expected: str) -> NoReturn:
        """Raise for files of another backend's own kind."""
        names = ", ".join(name for name, _, _ in restored.handle.states)
        raise StateIncompatible(self.uid, names, f"files of the {restored.handle.backend} backend", expected)

    def take_rows(self, state: str) -> list[RestoredRows]:
        """The rows that were restored for a state, in the order of their chain. They are its own from now on."""
        return self._restored.pop(state, [])

    def take_unbound(self) -> dict[str, RestoredRows]:
        """The rows of states that were not bound: of each the first. They are forgotten."""
        left = {state: rows[0] for state, rows in self._restored.items()}
        self._restored = {}
        return left

    def check_all_bound(self, unbound: Mapping[str, str] | None = None) -> None:
        """Raise if something was restored for a state that is not bound and may not be dropped.

        ``unbound``: such states that the backend itself knows of, and how each was stored.
        """
        left = dict(unbound or {})
        left |= {state: f"{r.handle.kind} of {r.handle.type}" for state, r in self.take_unbound().items()}
        for state, was in left.items():
            if self.not_droppable([state]):
                raise StateIncompatible(self.uid, state, was, "nothing: the operator has no such state")

    def not_droppable(self, states: Iterable[str]) -> set[str]:
        """Those of some states that must not be dropped."""
        return set() if self.allow_dropped is None else set(states) - self.allow_dropped

    # --- binding --------------------------------------------------------------------------------

    def bind(self, descriptor: StateDescriptor, current: CurrentKey, scope: CurrentKey | None, make: Make[P]) -> State:
        """The live state of a descriptor; the same one if it was bound before. ``scope``: for states of windows."""
        name, where = descriptor.name, f"state {descriptor.name!r} of operator {self.uid!r}"
        form = form_of(descriptor, where, scope is not None)
        if name in self._live:
            known = self.parts[name].form
            if not known.is_like(form):
                advice = f"It was declared as {known} before. Give one of them another name."
                raise InvalidArgument(where, str(form), advice)
            return self._live[name]
        key = current if scope is None else scope
        made = make(form, _plain(descriptor), key)
        live = made.live
        if form.ttl is not None:
            live = expiring(descriptor, live, self.clock, key, made.idents, made.look)
        self.parts[name], self._live[name] = made.part, live
        return live

    def timers(self, name: str, make: Callable[[Form], P]) -> P:
        """The part that holds the timers of a kind; the same one if it was asked for before."""
        state = TIMERS + name
        if state not in self.parts:
            self.parts[state] = make(timers_form(state))
        return self.parts[state]

    # --- lookup ---------------------------------------------------------------------------------

    def part(self, state: str) -> P:
        """The part of a state, or of timers. Raises :class:`UnknownState`."""
        if state not in self.parts:
            raise UnknownState(self.uid, state, tuple(self._live))
        return self.parts[state]

    def queried(self, state: str) -> P:
        """The part of a state that a query may ask for: timers are none. Raises :class:`UnknownState`."""
        if state not in self.parts or self.parts[state].form.is_timers:
            raise UnknownState(self.uid, state, tuple(self._live))
        return self.parts[state]

    def of_states(self) -> Iterator[P]:
        """The parts of all states, without those of timers."""
        return (part for part in self.parts.values() if not part.form.is_timers)

    def clear(self) -> None:
        """Forget everything: the backend is closed."""
        self.parts, self._live, self._restored = {}, {}, {}

    # --- time -----------------------------------------------------------------------------------

    def judged_at(self, form: Form) -> int | None:
        """As of when a query judges what has expired; None: nothing does."""
        return None if form.ttl is None else judged_at(form.ttl, self.clock)

    def left_out_at(self, form: Form) -> int | None:
        """As of when a full snapshot leaves out what has expired; None: it leaves out nothing."""
        return self.judged_at(form) if form.ttl is not None and form.ttl.cleanup_full_snapshot else None


def _plain(descriptor: StateDescriptor) -> StateDescriptor:
    """The descriptor of the plain state that the state of ``descriptor`` lies over: itself without a time to live."""
    if descriptor.ttl_config is None or isinstance(descriptor, (ListStateDescriptor, MapStateDescriptor)):
        return descriptor
    value_type: Any = descriptor.type  # type: ignore[attr-defined]
    return ValueStateDescriptor(descriptor.name, value_type, migrate=descriptor.migrate)
