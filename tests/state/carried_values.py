"""Values of one type, stored and read as another."""

from __future__ import annotations

from dataclasses import make_dataclass
from enum import Enum
from typing import Any, NamedTuple

import pytest

from moorline.errors import StateIncompatible
from moorline.state.evolution.plan import Where, plan
from moorline.state.types.annotations import stored

HERE = Where("totals", "sums")


def carried(old: Any, values: list[Any], new: Any, migrate: Any = None) -> list[Any]:
    """Old values as the new type sees them: out of a column, and the same out of bytes."""
    was = stored(old, "here")
    reader = plan(was.tree, new, where=HERE, migrate=migrate)
    column = was.to_array(values)
    assert reader.arrow == column.type
    found = reader.from_array(column)
    assert repr([reader.unpack(was.pack(v)) for v in values]) == repr(found)
    now = stored(new, "here")
    now.to_array(found)  # what was carried over can be stored again
    return found


def described(old: Any, new: Any) -> str:
    return plan(stored(old, "here").tree, new, where=HERE).describe()


def refused(old: Any, new: Any) -> str:
    with pytest.raises(StateIncompatible) as caught:
        plan(stored(old, "here").tree, new, where=HERE)
    assert (caught.value.uid, caught.value.state) == ("totals", "sums")
    assert caught.value.declared == stored(new, "here").name
    return caught.value.reason


def same(a: Any, b: Any) -> bool:
    return repr(a) == repr(b)


class Tupled(NamedTuple):
    x: int
    y: int = 5


class Colour(Enum):
    RED = 1
    BLUE = 2


class Farbe(Enum):
    BLUE = "b"
    RED = "r"


POINT = make_dataclass("Point", [("x", int), ("colour", Colour)], frozen=True)
PLAIN_POINT = {"x": 1, "colour": "RED"}
