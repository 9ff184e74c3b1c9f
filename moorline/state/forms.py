"""What the rows of one state are like: its kind, its types, what stands beside each value."""

from __future__ import annotations

from dataclasses import dataclass

from moorline.api.state.descriptors import MapStateDescriptor, StateDescriptor
from moorline.api.state.ttl import StateTtlConfig
from moorline.state.types.annotations import StoredType, stored


@dataclass(frozen=True)
class Form:
    """How the entries of one table look as rows."""

    state: str
    kind: str
    #: As it stands in the manifest.
    type: str
    value: StoredType
    map_key: StoredType | None = None
    #: Are the entries kept under pairs of key and namespace?
    is_windowed: bool = False
    #: Elements of a state with a time to live are stamped: (value, last access, own length).
    ttl: StateTtlConfig | None = None

    def __str__(self) -> str:
        is_of_windows = self.is_windowed and self.kind != "timers"
        return f"{self.kind} of {self.type}" + (" for each window" if is_of_windows else "")


def form_of(descriptor: StateDescriptor, where: str, is_windowed: bool) -> Form:
    """The form of a state as it is declared. ``where``: which state it is, for people."""
    value = stored(descriptor.type, where)  # type: ignore[attr-defined]
    map_key = stored(descriptor.key_type, where) if isinstance(descriptor, MapStateDescriptor) else None
    type_name = value.name if map_key is None else f"{map_key.name} to {value.name}"
    return Form(descriptor.name, descriptor.kind, type_name, value, map_key, is_windowed, descriptor.ttl_config)
