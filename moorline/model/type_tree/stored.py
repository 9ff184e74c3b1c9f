"""The type of a state as it is stored: a tree since storage format 4, a text before.

Every type that comes from a file comes through here: those of a manifest (``storage/stored_handles.py``) and those in
the meta rows of RocksDB (``state/rocksdb/registry.py``). What is returned may be believed: it is of bounded size and
depth, and a map state has the type of one, and no other has.
"""

from __future__ import annotations

from moorline.model.type_tree.old_text import read_map, read_type
from moorline.model.type_tree.tree import Map, StateType, Type, check_bounds

#: What stands in a file.
Stored = StateType | str


def state_type(kind: str, stored: Stored) -> StateType:
    """The type of a state of some kind (value, list, map ...). Raises ``ValueError`` for what is none.

    >>> print(state_type("map", "str to int"), "/", state_type("list", "int"))
    str to int / int
    """
    if kind != "map":
        return value_type(stored)
    whole = read_map(stored) if isinstance(stored, str) else stored
    check_bounds(whole)
    if not isinstance(whole, Map):
        raise ValueError(f"{whole!s:.100} has no keys")
    return whole


def value_type(stored: Stored) -> Type:
    """The type of a state that is no map, or of an element. Raises ``ValueError`` for what is none."""
    whole = read_type(stored) if isinstance(stored, str) else stored
    check_bounds(whole)
    if isinstance(whole, Map):
        raise ValueError(f"{whole!s:.100} is that of a map state")
    return whole
