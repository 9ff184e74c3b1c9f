"""Which values can change, how they are copied, and when they need not be."""

from __future__ import annotations

import collections
import copy
import datetime
import decimal
import enum
import random
import typing
import uuid
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pytest
from stable_ids import shown

from moorline.errors import RecordNotCopied
from moorline.model.copying.closed_functions import keeps_nothing
from moorline.model.copying.copies import copies_of, copy_of, owned, owned_of
from moorline.model.copying.immutable import IMMUTABLE, are_immutable


class Colour(enum.Enum):
    RED = 1


@dataclass(frozen=True)
class Frozen:
    number: int
    colour: Colour | None = None
    names: tuple[str, ...] = ()
    inner: Frozen | None = None


@dataclass(frozen=True)
class FrozenInName:
    names: list[str]


@dataclass
class Changeable:
    number: int = 0
    names: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Slotted:
    number: int = 0
    names: list[str] = field(default_factory=list)


class Struct(msgspec.Struct):
    number: int = 0
    names: list[str] = msgspec.field(default_factory=list)


class FrozenStruct(msgspec.Struct, frozen=True):
    number: int
    pairs: tuple[tuple[int, str], ...] = ()


class Named(typing.NamedTuple):
    number: int
    at: datetime.datetime | None = None


class NamedList(typing.NamedTuple):
    names: list[str]


class Plain:
    def __init__(self, parts):
        self.parts = parts

    def __eq__(self, other):
        return vars(self) == vars(other)

    __hash__ = None


class Own:
    """Says itself how it is copied."""

    def __init__(self, parts):
        self.parts = parts

    def __deepcopy__(self, memo):
        return Own([*self.parts, "copied"])


FIXED = (
    *(1, 2.5, "a", b"b", None, True, ..., 1j, range(3), frozenset({1}), Colour.RED, np.int64(1), np.float32(0.5), int),
    *(datetime.datetime(2026, 1, 1), datetime.date(2026, 1, 1), datetime.timedelta(1), datetime.UTC),
    *(decimal.Decimal("1.5"), uuid.UUID(int=1), Frozen(1, Colour.RED, ("a",), Frozen(2)), FrozenStruct(1, ((1, "a"),))),
    *(Named(1), (), (1, "a", None), ((1, 2), (3, (4,)))),
)


@pytest.mark.parametrize("value", FIXED, ids=repr)
def test_what_cannot_change_is_never_copied(value):
    holder = [value]
    assert owned(value) is value and copy_of(value) is value and copies_of(holder)[0] is value


CHANGEABLE = (
    *([1], {"a": 1}, {1}, bytearray(b"a"), [[1], [2]], {"a": {"b": [1]}}, (1, [2]), ({"a": 1}, "b")),
    *(collections.deque([[1]]), collections.Counter("ab"), collections.OrderedDict(a=[1])),
    *(collections.defaultdict(list, a=[1]), Changeable(1, ["a"]), Slotted(1, ["a"]), Struct(1, ["a"])),
    *(FrozenInName(["a"]), NamedList(["a"]), Plain({"a": [1]}), (Plain([1]), 2), [Struct(), Changeable()]),
)


@pytest.mark.parametrize("make", [lambda v=v: copy.deepcopy(v) for v in CHANGEABLE], ids=map(shown, CHANGEABLE))
def test_what_can_change_is_copied_if_something_else_holds_it_and_only_then(make):
    held = make()
    holder = [held]
    for copied in (owned(held), copy_of(held), *copies_of(holder)):
        assert copied is not held and copied == held and type(copied) is type(held)
    del holder
    assert owned(held) is held


def shared(value, other):
    """Is there an object in both that can change?"""
    seen = {id(v) for v in parts_of(value)}
    return [v for v in parts_of(other) if id(v) in seen]


def parts_of(value):
    if type(value) in IMMUTABLE:
        return
    if not isinstance(value, tuple):
        yield value
    for part in inside(value):
        yield from parts_of(part)


def inside(value):
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, (Slotted, Struct)):
        return (value.number, value.names)
    return value if isinstance(value, (list, tuple)) else vars(value).values()


def random_value(chance, depth=0):
    leaf = chance.choice([1, "text", None, 2.5, Frozen(1), Colour.RED])
    if depth > 3 or chance.random() < 0.3:
        return leaf
    parts = [random_value(chance, depth + 1) for _ in range(chance.randint(0, 3))]
    make = (list, tuple, lambda p: dict(enumerate(p)), Plain, lambda p: Changeable(1, p), lambda p: Slotted(1, p))
    return chance.choice([*make, lambda p: Struct(1, p), lambda p: NamedList(p)])(parts)


@pytest.mark.parametrize("seed", range(300))
def test_a_copy_is_equal_and_shares_nothing_that_can_change(seed):
    value = random_value(random.Random(seed))
    copied = copy_of(value)
    assert copied == copy.deepcopy(value) and not shared(value, copied)
    # A new whole around old parts, as a function would make it.
    made = owned([{"part": value}, value])
    assert made == [{"part": value}, value] and not shared(value, made)


def test_the_result_of_a_call_that_nothing_holds_is_not_copied():
    def alone():
        yield {"n": 1}, [2]

    def still_held():
        row = {"n": 1}
        yield row
        row.clear()

    results = (alone, True), (lambda: [{"n": 1}], True), (lambda: ({"n": 1},), True), (still_held, False)
    for call, expected in results:
        made = call()
        for value in made:
            kept = owned_of(made, value)
            assert (kept is value) is expected
    buffer = made = [{"n": 1}]
    for value in made:
        assert owned_of(made, value) is not value
    assert buffer


def test_an_object_twice_in_one_record_becomes_two():
    row = {"n": 1}
    first, second = owned((row, row))
    assert first == second == row and len({id(row), id(first), id(second)}) == 3


def test_arrays_are_copied_with_their_memory():
    array = np.zeros(4)
    view = array[:2]
    kept = owned(view)
    array[0] = 1
    assert kept.tolist() == [0, 0]
    objects = np.array([[1], None], object)
    copied = copy_of(objects)
    objects[0].append(2)
    assert copied[0] == [1]


def test_a_value_that_is_part_of_itself_is_copied_all_the_same():
    for value in (Plain(None), [None]):
        inner = value if isinstance(value, list) else vars(value)
        inner[0 if isinstance(value, list) else "parts"] = value
        for _ in range(2):
            copied = copy_of(value)
            assert copied is not value
            assert (copied[0] if isinstance(value, list) else copied.parts) is copied


def test_a_class_may_say_how_it_is_copied():
    value = Own(["a"])
    assert [copy_of(value).parts, value.parts] == [["a", "copied"], ["a"]]


def test_what_cannot_be_copied_is_refused_by_its_type():
    made = (n for n in range(3))
    with pytest.raises(RecordNotCopied, match=r"builtins\.generator"):
        copy_of([made])


def test_a_batch_is_judged_by_its_types():
    assert are_immutable([]) and are_immutable([(1, "a"), ()]) and are_immutable([1, Frozen(1), None] * 2)
    assert not are_immutable([1, [1]]) and not are_immutable([(1, [1])])
    records = [(1, 2)] * 3
    assert copies_of(records) is records


# --- functions that keep nothing ------------------------------------------------------------------

LIMIT, ROW = 10, {}


def within(record):
    return record["n"] < LIMIT


def calling(record):
    return {**record, "ok": within(record), "parts": [len(p) for p in record["parts"] if within(p)]}


def with_default(record, row={}):  # noqa: B006
    return row


def with_global(record):
    return ROW


def calling_that(record):
    return with_global(record)


def test_functions_without_closures_and_globals_keep_nothing():
    row = {}
    for function in (within, calling, len, str, str.lower, dict, lambda r: (r[0], r[1] + 1), lambda r: r.name):
        assert keeps_nothing(function), function
    for function in (
        *(with_default, with_global, calling_that, lambda r: row, ROW.get, Plain([]).__eq__),
        *(Plain, lambda r: print(r), lambda r: (yield r), np.sum, lambda r: globals()),
    ):
        assert not keeps_nothing(function), function
