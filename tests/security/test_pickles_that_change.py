"""Pickles that name only what is allowed, and would change it: nothing is changed, and nothing of them is run."""

from __future__ import annotations

import copyreg
import enum
import io
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pytest

import moorline as mo
from moorline.errors import PickleRefused
from moorline.state.types import pickle as pickled

MADE: list[str] = []


class Account:
    """An honest class with a method worth changing."""

    def __init__(self, owner: str = "") -> None:
        MADE.append(owner)
        self.owner = owner

    def may_pay(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Account) and self.owner == other.owner


class Registry(type):
    """A metaclass by which a class can be filled like a list, a dict and a set."""

    seen: list[Any] = []

    def append(cls, item: Any) -> None:
        cls.seen.append(item)

    def extend(cls, items: Any) -> None:
        cls.seen.extend(items)

    def add(cls, item: Any) -> None:
        cls.seen.append(item)

    def __setitem__(cls, key: Any, value: Any) -> None:
        cls.seen.append((key, value))


class Listed(metaclass=Registry):
    pass


class Colour(enum.Enum):
    RED = 1

    def __init__(self, number: int) -> None:
        self.rgb = "ff0000"


def make(owner: str) -> Account:
    return Account(owner)


SHARED = {"limit": 10}


def named(name: str) -> bytes:
    """The opcodes that put what this module calls ``name`` on the stack."""
    module = __name__.encode()
    return b"\x8c" + bytes([len(module)]) + module + b"\x8c" + bytes([len(name)]) + name.encode() + b"\x93"


def by_the_writers_name(name: str) -> bytes:
    """The same by the stand-in that the writer uses for classes of a script."""
    full = f"{__name__}.{name}".encode()
    return b"cmoorline.state.pickled\n_named\n\x8c" + bytes([len(full)]) + full + b"\x85R"


#: A state for BUILD: no dict, and one attribute to be set.
ATTRIBUTE = b"N}\x8c\x07may_pay\x88s\x86"
INT = b"K\x01"

CHANGES = {
    "attributes of a class": named("Account") + ATTRIBUTE + b"b",
    "attributes of a class by the writer's name": by_the_writers_name("Account") + ATTRIBUTE + b"b",
    "attributes of a class that waits in the memo": named("Account") + b"\x940h\x00" + ATTRIBUTE + b"b",
    "attributes of a class that was used first": named("Account") + b"\x94)R0h\x00" + ATTRIBUTE + b"b",
    "attributes of a function": named("make") + b"}\x8c\x07may_pay\x88sb",
    "the writer's stand-in": b"cmoorline.state.pickled\n_named\n}\x8c\x07may_pay\x88sb",
    "an item of a class": named("Listed") + INT + INT + b"s",
    "items of a class": named("Listed") + b"(" + INT + INT + b"u",
    "appended to a class": named("Listed") + INT + b"a",
    "several appended to a class": named("Listed") + b"(" + INT + INT + b"e",
    "added to a class": named("Listed") + b"(" + INT + INT + b"\x90",
    "a member of an Enum": named("Colour") + INT + b"\x85R}\x8c\x03rgb\x8c\x01xsb",
    "a member of an Enum by NEWOBJ": named("Colour") + INT + b"\x85\x81}\x8c\x03rgb\x8c\x01xsb",
    "an item of an object of the module": named("SHARED") + b"\x8c\x05limitK\x00s",
}
ALLOWED = mo.Pickled(allow=[Account, Listed, Colour, make, f"{__name__}.SHARED"])


def attributes(thing: Any) -> dict[str, Any]:
    return {k: v for k, v in vars(thing).items() if k != "__slotnames__"}  # kept there by copyreg when it pickles


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    before = {thing: attributes(thing) for thing in (Account, Listed, Colour, make)}
    yield
    assert {thing: attributes(thing) for thing in before} == before, "a pickle has changed a class or a function"
    assert (Registry.seen, Colour.RED.rgb, SHARED) == ([], "ff0000", {"limit": 10})
    assert not vars(pickled._Unpickler._known)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_has_a_name_is_not_changed_by_a_pickle(change):
    # Followed by a value that would do, so that nothing else is wrong with it.
    hostile = b"\x80\x05" + change + b"0" + named("Account") + b")R."
    with pytest.raises(PickleRefused, match="would change") as refused:
        ALLOWED.load(hostile)
    assert refused.value.would_change
    assert pickle.loads(pickle.dumps(refused.value)).refused == refused.value.refused


def test_the_attack_works_without_us():
    class Victim(Account):
        pass

    class Trusting(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            return Victim

    Trusting(io.BytesIO(b"\x80\x05" + CHANGES["attributes of a class"] + b".")).load()
    assert Victim.may_pay is True


def test_nothing_is_called_by_a_pickle_that_is_refused_at_its_end():
    MADE.clear()
    with pytest.raises(PickleRefused):
        ALLOWED.load(b"\x80\x05" + named("make") + b"\x8c\x01x\x85R0" + CHANGES["attributes of a class"] + b".")
    assert MADE == []


def test_a_number_of_an_extension_leads_past_no_list():
    """The interpreter keeps what a number has once led to, and does not ask again."""
    copyreg.add_extension(__name__, "Account", 0x7001)
    try:
        assert pickle.loads(pickle.dumps(Account)) is Account
        with pytest.raises(PickleRefused):
            mo.Pickled().load(pickle.dumps(Account))
        kept = mo.Pickled(Account)
        assert kept.load(kept.dump(Account("x"))) == Account("x")
    finally:
        copyreg.remove_extension(__name__, "Account", 0x7001)


# --- honest pickles -----------------------------------------------------------------------------


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a, self.b = 1, [2]


class Numbers(list):
    pass


class Lookup(dict):
    pass


class Tags(set):
    pass


class Stateful:
    def __init__(self) -> None:
        self.kind: Any = Account

    def __getstate__(self) -> Any:
        return ("kind", self.kind)

    def __setstate__(self, state: Any) -> None:
        self.kind = state[1]


class Keyword:
    def __new__(cls, *, size: int) -> Keyword:
        made = super().__new__(cls)
        made.size = size
        return made

    def __getnewargs_ex__(self) -> Any:
        return (), {"size": self.size}


@dataclass
class Order:
    owner: Account
    colour: Colour
    lines: Numbers = field(default_factory=Numbers)
    prices: Lookup = field(default_factory=Lookup)


def filled(made: Any, **attributes: Any) -> Any:
    vars(made).update(attributes)
    return made


def loop() -> Any:
    made = Account("me")
    made.owner = [made]
    return made


HONEST: dict[str, Any] = {
    "an instance": Account("x"),
    "slots": Slotted(),
    "a list with attributes": filled(Numbers([1, 2]), note="x"),
    "a dict with attributes": filled(Lookup(a=1), note="x"),
    "a set with attributes": filled(Tags({1, 2}), note="x"),
    "a state of its own that holds a class": Stateful(),
    "keyword arguments": Keyword(size=3),
    "a member of an Enum": [Colour.RED, Colour.RED],
    "a dataclass of all": Order(Account("y"), Colour.RED, Numbers([Decimal("1.5")]), Lookup({UUID(int=1): 1j})),
    "collections": [OrderedDict(a=1), Counter("aab"), deque([1, 2], 3), defaultdict(list, a=[1])],
    "a class as a value": {"kind": Account, "by": make},
    "objects as keys and members": {frozenset({Colour.RED}): {Colour.RED}},
    "an array": np.arange(6.0).reshape(2, 3),
}
HONEST_LIST = mo.Pickled(
    allow=[
        *(Account, Slotted, Numbers, Lookup, Tags, Stateful, Keyword, Colour, Order, make),
        *(OrderedDict, Counter, deque, defaultdict, list, np.ndarray, np.dtype),
        *("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct"),
        *("numpy.core.numeric._frombuffer", "numpy._core.numeric._frombuffer"),
    ]
)


@pytest.mark.parametrize("value", HONEST.values(), ids=HONEST.keys())
def test_what_a_job_has_pickled_comes_back(value):
    expected = pickle.loads(pickle.dumps(value))
    found = HONEST_LIST.load(HONEST_LIST.dump(value))
    assert type(found) is type(value)
    assert pickle.dumps(found) == pickle.dumps(expected)


def test_an_object_that_holds_itself_comes_back():
    found = HONEST_LIST.load(HONEST_LIST.dump(loop()))
    assert found.owner == [found]
