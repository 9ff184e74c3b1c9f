"""The form of one state's rows: its kind, its types, what stands beside each value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from moorline.api.state.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from moorline.api.state.ttl import StateTtlConfig
from moorline.model.type_tree.tree import INT, Map, StateType
from moorline.state.types.annotations import StoredType, stored

#: The kind of the rows that timers are stored as. They have no descriptor.
TIMERS_KIND = "timers"


@dataclass(frozen=True)
class Form:
    """The look of one table's entries as rows. Its questions are asked for every row, so their answers are kept."""

    state: str
    #: As it stands in the manifest.
    kind: str
    #: As it stands in the manifest.
    type: StateType
    value: StoredType
    map_key: StoredType | None = None
    #: Are the entries kept under pairs of key and namespace?
    is_windowed: bool = False
    #: Elements of a state with a time to live are stamped: (value, last access, own length).
    ttl: StateTtlConfig | None = None

    @cached_property
    def is_timers(self) -> bool:
        return self.kind == TIMERS_KIND

    @cached_property
    def is_list(self) -> bool:
        return self.kind == ListStateDescriptor.kind

    @cached_property
    def is_map(self) -> bool:
        return self.map_key is not None

    @cached_property
    def has_elements(self) -> bool:
        """May one entry have several rows?"""
        return self.is_list or self.is_map or self.is_timers

    def is_like(self, other: Form) -> bool:
        """Are the rows of both alike, so that one may be read as the other?"""
        mine, others = (self.kind, self.type, self.is_windowed), (other.kind, other.type, other.is_windowed)
        return mine == others

    def __str__(self) -> str:
        return described(self.kind, self.type, self.is_windowed)


def form_of(descriptor: StateDescriptor, where: str, is_windowed: bool) -> Form:
    """The form of a state as it is declared. ``where``: which state it is, for people."""
    value = stored(descriptor.type, where)  # type: ignore[attr-defined]
    map_key = stored(descriptor.key_type, where) if isinstance(descriptor, MapStateDescriptor) else None
    state_type = value.tree if map_key is None else Map(map_key.tree, value.tree)
    return Form(descriptor.name, descriptor.kind, state_type, value, map_key, is_windowed, descriptor.ttl_config)


def timers_form(state: str) -> Form:
    """The form of the timers of a kind: times, for each key and namespace."""
    return Form(state, TIMERS_KIND, INT, stored(int, "timers"), is_windowed=True)


def described(kind: str, stored_type: StateType, is_windowed: bool) -> str:
    """A form for people.

    >>> described("value", INT, is_windowed=True)
    'value of int for each window'
    """
    return f"{kind} of {stored_type}" + (" for each window" if is_windowed and kind != TIMERS_KIND else "")
