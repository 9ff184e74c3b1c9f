"""Objects that are pickled together come out as pickle would have made them, each by itself."""

from __future__ import annotations

import abc
import copy
import copyreg
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, InitVar, dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.model.wire import elements
from moorline.model.wire.objects import Together, make_objects, make_of_columns, together


@dataclass
class Plain:
    key: int
    name: str = "none"
    tags: Any = None


@dataclass(frozen=True)
class Frozen:
    key: int
    at: datetime | None = None


@dataclass
class Child(Plain):
    more: int = 0


@dataclass
class Computing:
    key: int
    seed: InitVar[int] = 0

    def __post_init__(self, seed):
        self.made = self.key + seed

    @cached_property
    def twice(self):
        return 2 * self.key


class Undeclared(Frozen):
    """No dataclass of its own, with an attribute that its base does not know."""

    def __init__(self, key, name):
        super().__init__(key)
        object.__setattr__(self, "name", name)


@dataclass
class Empty:
    pass


class Loose:
    def __init__(self, key):
        self.key = key


@dataclass(slots=True)
class Slots:
    key: int


class HalfSlots:
    __slots__ = ("__dict__", "key")

    def __init__(self, key):
        self.key, self.other = key, key


@dataclass
class WithState:
    key: int

    def __getstate__(self):
        return {"key": self.key + 1}


@dataclass
class WithSetState:
    key: int

    def __setstate__(self, state):
        self.key = -state["key"]


@dataclass
class WithReduce:
    key: int

    def __reduce__(self):
        return WithReduce, (self.key * 10,)


@dataclass
class WithNew:
    key: int

    def __new__(cls, key=7):
        made = super().__new__(cls)
        made.born = key
        return made


class Names(dict):
    pass


class Problem(Exception):
    pass


class Registered:
    def __init__(self, key):
        self.key = key


copyreg.pickle(Registered, lambda r: (Registered, (r.key + 100,)))


class Late:
    def __init__(self, key):
        self.key = key

    def __getattr__(self, name):
        if name == "__setstate__":
            return lambda state: self.__dict__.update(key=-1)
        raise AttributeError(name)


class Abstract(abc.ABC):
    @abc.abstractmethod
    def call(self): ...


@dataclass
class Concrete(Abstract):
    key: int

    def call(self):
        return self.key


class Struct(msgspec.Struct):
    key: int
    name: str = "none"


class FrozenStruct(msgspec.Struct, frozen=True):
    key: int
    values: Any = None


class UntrackedStruct(msgspec.Struct, gc=False):
    key: int
    values: Any = None


class KeywordStruct(msgspec.Struct, kw_only=True):
    key: int


class CheckedStruct(msgspec.Struct):
    key: int

    def __post_init__(self):
        self.key += 1


class DictStruct(msgspec.Struct, dict=True):
    key: int


class TaggedStruct(msgspec.Struct, tag="t", omit_defaults=True, array_like=True):
    key: int
    rest: int = 3


def content(record: Any) -> Any:
    """Everything that can be seen of an object."""
    fields = [(f, getattr(record, f)) for f in getattr(record, "__struct_fields__", ())]
    slots = [getattr(record, s) for k in type(record).__mro__ for s in getattr(k, "__slots__", ()) if s == "key"]
    return type(record), getattr(record, "__dict__", None), fields, slots, repr(record).split(" at 0x")[0]


def through_the_wire(records: list[Any]) -> list[Any]:
    part = elements.pack_records(records)
    return elements.unpack_part(part, 0)[1]


def with_extra(record: Any, **extra: Any) -> Any:
    record.__dict__.update(extra)
    return record


def computed(record: Computing) -> Computing:
    assert record.twice == 2 * record.key
    return record


def without(record: Any, name: str) -> Any:
    delattr(record, name)
    return record


TOGETHER = [
    [Plain(1), Plain(2, "b")],
    [Frozen(1), Frozen(2, datetime(2024, 1, 2))],
    [Child(1, more=3)],
    [with_extra(Plain(1), extra=Decimal("1.5")), Plain(2)],
    [computed(Computing(1, 5)), Computing(2)],
    [without(Plain(1), "name"), Plain(3)],
    [Concrete(1), Concrete(2)],
    [Struct(1), Struct(2, "b")],
    [FrozenStruct(1, b"x")],
    [TaggedStruct(1), TaggedStruct(2, 4)],
    [UntrackedStruct(1), UntrackedStruct(2, "b")],
    [Plain(1, tags=UUID(int=5)), Plain(2)],
]
OF_COLUMNS = [
    [Plain(1), Plain(2, "b")],
    [Frozen(1), Frozen(2, datetime(2024, 1, 2))],
    [Child(1, more=3), Child(2)],
]
WITH_DICTS = [
    [with_extra(Plain(1), extra=2), Plain(2)],
    [with_extra(without(Plain(1), "name"), other=2), Plain(2)],
    [without(Plain(1), "name"), without(Plain(2), "name")],
    [Computing(1, 5), Computing(2)],
    [Undeclared(1, "a")],
    [Empty(), Empty()],
    [Loose(1), Loose(2)],
    [Concrete(1), Concrete(2)],
]
BY_PICKLE = [
    [1, 2],
    ["a"],
    [(1, 2)],
    [{"a": 1}],
    [],
    [Plain(1), Child(2)],
    [Plain(1), "and", 3],
    [Plain(1, tags=["a"])],
    [Plain(1, tags=Plain(2))],
    [Slots(1), Slots(2)],
    [HalfSlots(1)],
    [WithState(1)],
    [WithSetState(1)],
    [WithReduce(1)],
    [WithNew(1)],
    [Names(a=1)],
    [Problem("x", 1)],
    [Registered(1)],
    [Late(1)],
    [Struct(1), FrozenStruct(1)],
    [FrozenStruct(1, [1])],
    [UntrackedStruct(1, [2])],
    [KeywordStruct(key=1)],
    [CheckedStruct(1)],
    [with_extra(DictStruct(1), extra=2)],
]


def shown(records: list[Any]) -> str:
    return "-".join(type(r).__name__ for r in records)


@pytest.mark.parametrize("records", TOGETHER, ids=shown)
def test_objects_with_nothing_but_plain_values_go_together(records):
    assert isinstance(together(records), Together)
    found, wanted = through_the_wire(records), pickle.loads(pickle.dumps(records))
    assert [content(r) for r in found] == [content(r) for r in wanted]
    assert len({id(r) for r in found}) == len(records)


@pytest.mark.parametrize("records", OF_COLUMNS, ids=shown)
def test_fields_of_a_dataclass_travel_as_columns(records):
    made, _ = together(records).__reduce__()
    assert made is make_of_columns
    assert [content(r) for r in through_the_wire(records)] == [content(r) for r in records]
    # As they are known: a column bears no names of its own, so their order is what counts.
    assert [list(vars(r)) for r in through_the_wire(records)] == [list(vars(r)) for r in records]


@pytest.mark.parametrize("records", WITH_DICTS, ids=shown)
def test_objects_of_other_classes_or_with_other_attributes_keep_all_of_them(records):
    made, _ = together(records).__reduce__()
    assert made is make_objects
    assert [content(r) for r in through_the_wire(records)] == [content(r) for r in records]


def test_what_comes_out_behaves_as_one_of_its_class():
    (found,) = through_the_wire([Frozen(1)])
    with pytest.raises(FrozenInstanceError):
        found.key = 2
    assert found == Frozen(1) and hash(found) == hash(Frozen(1)) and copy.deepcopy(found) == found
    (open_one,) = through_the_wire([Plain(1)])
    open_one.key, open_one.added = 5, 6
    assert vars(open_one) == {"key": 5, "name": "none", "tags": None, "added": 6}


def test_names_of_columns_that_are_no_fields_are_refused():
    with pytest.raises(ValueError, match="other fields"):
        make_of_columns(Plain, (("key", "name = 1; key"), [[1], [2]]))


def test_columns_of_different_lengths_are_refused():
    names = tuple(Plain.__dataclass_fields__)
    columns = [[1, 2] for _ in names[1:]]
    with pytest.raises(ValueError, match=r"shorter|longer"):
        make_of_columns(Plain, (names, [[1], *columns]))


@pytest.mark.parametrize("records", BY_PICKLE, ids=shown)
def test_everything_else_is_left_to_pickle(records):
    assert together(records) is records
    found, wanted = through_the_wire(records), pickle.loads(pickle.dumps(records))
    assert [content(r) for r in found] == [content(r) for r in wanted]


def test_objects_that_are_there_twice_or_hold_each_other_stay_one():
    one = Plain(1)
    found = through_the_wire([one, one])
    assert found[0] is found[1]
    one.tags = one
    (found,) = through_the_wire([one])
    assert found.tags is found


def test_a_struct_without_a_field_is_refused_as_pickle_refuses_it():
    records = [without(Struct(1), "name")]
    assert together(records) is records


def test_classes_that_are_made_inside_of_a_function_travel_too():
    @dataclass
    class Local:
        key: int

    found = through_the_wire([Local(1), Local(2)])
    assert [r.key for r in found] == [1, 2]
    (again,) = through_the_wire([Local(3)])
    assert type(found[0]) is type(found[1]) is type(again) is Local


def test_a_process_that_does_not_know_a_class_makes_it_once():
    """As a worker gets it whose script is another."""
    program = """
import pickle, sys
records = [pickle.loads(bytes.fromhex(line)) for line in sys.argv[1:]]
assert [r.key for part in records for r in part] == [1, 2, 3], records
assert len({type(r) for part in records for r in part}) == 1
"""

    @dataclass
    class Local:
        key: int

    parts = [elements.pickled(together(records)).hex() for records in ([Local(1), Local(2)], [Local(3)])]
    subprocess.run([sys.executable, "-c", program, *parts], check=True, timeout=600)


def test_timestamps_travel_beside_objects():
    part = elements.pack_records([Plain(1), Plain(2)], [5, 6])
    assert elements.unpack_part(part, 0)[1:3] == ([Plain(1), Plain(2)], [5, 6])


leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary())
values = st.recursive(leaves, lambda inner: st.one_of(st.lists(inner, max_size=3), st.tuples(inner, inner)))


@given(
    st.lists(
        st.one_of(st.builds(Plain, st.integers(), st.text(), values), st.builds(Frozen, st.integers())), max_size=6
    )
)
def test_any_mix_of_objects_comes_out_equal(records):
    assert through_the_wire(records) == records


@given(st.lists(st.builds(FrozenStruct, st.integers(), values), max_size=6))
def test_any_structs_come_out_equal(records):
    assert through_the_wire(records) == records
