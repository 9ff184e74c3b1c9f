"""Pickles in state: what is allowed comes back, and what hostile bytes can do."""

from __future__ import annotations

import collections
import contextlib
import copyreg
import dataclasses
import os
import pickle
import random
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from stable_ids import shown
from values_both_ways import both_ways

from moorline.errors import PickleRefused, StateTypeMismatch
from moorline.state.types.annotations import Pickled, stored, to_bytes


@dataclasses.dataclass
class Model:
    weights: list[float]
    inner: Any = None


class Other:
    pass


class Slotted:
    __slots__ = ("x",)


class Bomb:
    def __init__(self, function=os.mkdir, argument="/tmp/moorline-was-here"):
        self.call = function, argument

    def __reduce__(self):
        return self.call[0], self.call[1:]


class Singleton:
    def __reduce__(self):
        return "THE_ONE"


THE_ONE = Singleton()


def test_what_is_allowed_comes_back_and_the_name_says_that_it_is_a_pickle():
    annotation = Pickled(allow=[Model, "collections.OrderedDict"])
    assert stored(annotation, "").name == f"pickle[collections.OrderedDict, {__name__}.Model]"
    assert stored(annotation, "").arrow == pa.binary()
    assert not stored(annotation, "").is_immutable
    value = collections.OrderedDict(m=Model([0.5], inner={"a": {1}, "b": bytearray(b"x"), "c": 1j}))
    assert both_ways(annotation, value) == [value] * 3


def test_a_class_of_a_function_can_be_pickled_as_classes_of_a_script_must_be():
    class Local(Model):
        pass

    value = [Local([1.0]), Local([2.0])]
    assert both_ways(Pickled(allow=[Local]), value) == [value] * 3


def test_slots_are_pickled_too():
    value = Slotted()
    value.x = 5
    assert [v.x for v in both_ways(Pickled(Slotted), value)] == [5] * 3


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        (Other(), "Other"),
        (Model([], Other()), "Other"),
        ([{"deep": (Model([]), [Other()])}], "Other"),
        (Other, "Other"),
        (os.system, "posix.system"),
        (len, "builtins.len"),
        (getattr, "builtins.getattr"),
        ([].append, "None.list.append"),
        (int, "builtins.int"),
        (Bomb(), "mkdir"),
        (Model([], Bomb()), "mkdir"),
        (THE_ONE, "THE_ONE"),
        (np.zeros(2), "numpy"),
        (collections.defaultdict(list), "builtins.list"),
        (type(None), "NoneType"),
    ],
    ids=shown,
)
def test_what_could_not_be_read_is_refused_when_it_is_written(value, refused):
    with pytest.raises(StateTypeMismatch, match=refused) as caught:
        to_bytes(stored(Pickled(allow=[Model]), ""), value, "s")
    assert "Pickled(allow=[" in str(caught.value)
    assert not os.path.exists("/tmp/moorline-was-here")


def test_everything_that_is_refused_is_named_at_once():
    with pytest.raises(TypeError, match=rf"{__name__}.Other, {__name__}.Slotted"):
        Pickled(allow=[Model]).dump([Other(), Slotted(), Model([])])


def test_a_class_of_the_same_name_is_not_the_allowed_one():
    def make():
        class Local:
            pass

        return Local

    first, second = make(), make()
    with pytest.raises(TypeError, match="not allowed"):
        Pickled(allow=[first]).dump(second())


def test_what_cannot_be_pickled_at_all_is_a_mismatch():
    class Failing:
        def __reduce__(self):
            raise RuntimeError("no")

    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    for value in (Failing(), nested, (n for n in ())):
        with pytest.raises(StateTypeMismatch):
            to_bytes(stored(Pickled(allow=[Failing]), ""), value, "s")


def hostile() -> list[bytes]:
    made = []
    for function, argument in [
        (os.mkdir, "/tmp/moorline-was-here"),
        (eval, "1"),
        (getattr, "x"),
        (exec, "1"),
        (open, "x"),
    ]:
        bomb = Bomb(function, argument)
        for value in (bomb, [bomb], {"a": (bomb,)}, Model([], bomb), {bomb.call[0]: 1}):
            made += [pickle.dumps(value, protocol) for protocol in range(6)]
    # Names with dots must not lead from an allowed class to what it has imported.
    made.append(b"\x80\x04\x8c" + bytes([len(__name__)]) + __name__.encode() + b"\x8c\x09os.system\x93.")
    made.append(b"\x80\x04\x8c" + bytes([len(__name__)]) + __name__.encode() + b"\x8c\x0eModel.__init__\x93.")
    made.append(b"cos\nsystem\n(S'true'\ntR.")
    made.append(b"c__builtin__\neval\n(S'1'\ntR.")
    made.append(b"cmoorline.state.pickled\n_named\n(S'os.system'\ntR.")
    made.append(b"P1\n.")
    return made


@pytest.mark.parametrize("data", hostile(), ids=lambda d: d.hex()[:40])
def test_a_hostile_pickle_is_refused_by_name_and_calls_nothing(data):
    for annotation in (Pickled(), Pickled(allow=[Model]), Pickled(allow=["collections.OrderedDict"])):
        with pytest.raises((PickleRefused, ValueError)):
            annotation.load(data)
        with pytest.raises((PickleRefused, ValueError)):
            stored(annotation, "").from_array(pa.array([data]))
    assert not os.path.exists("/tmp/moorline-was-here")


def test_the_refusal_says_how_to_allow_it_and_survives_pickling():
    with pytest.raises(PickleRefused) as caught:
        Pickled(allow=[Model]).load(pickle.dumps(Other()))
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.refused, error.allowed) == ((f"{__name__}.Other",), (f"{__name__}.Model",))
    assert f"Pickled(allow=[..., '{__name__}.Other'])" in str(error)


@pytest.mark.slow
def test_mutants_of_a_pickle_reach_only_what_is_allowed():
    chance, good = random.Random(7), Pickled(allow=[Model]).dump(Model([1.0], {"a": (1, 2)}))
    for _ in range(3000):
        mutant = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            mutant[chance.randrange(len(mutant))] = chance.randrange(256)
        with contextlib.suppress(PickleRefused, ValueError):
            Pickled(allow=[Model]).load(bytes(mutant))


def test_an_extension_code_is_no_way_around():
    copyreg.add_extension(__name__, "Other", 0x7000)
    try:
        with pytest.raises(StateTypeMismatch, match="Other"):
            to_bytes(stored(Pickled(), ""), Other(), "s")
        with pytest.raises(PickleRefused):
            Pickled().load(pickle.dumps(Other()))
    finally:
        copyreg.remove_extension(__name__, "Other", 0x7000)


def test_a_pickle_of_another_class_than_declared_is_a_value_error():
    with pytest.raises(ValueError, match="not a Model"):
        Pickled(Model).load(pickle.dumps(5))


def test_allow_takes_classes_and_names():
    assert Pickled(allow=Model) == Pickled(allow=[Model]) == Pickled(allow=(Model,))
    assert Pickled(allow="a.B").allow == ("a.B",)
    with pytest.raises(TypeError, match="allow takes classes and names"):
        Pickled(allow=[5])
    assert Pickled(list[Model], allow=[Model]).allowed == {f"{__name__}.Model": Model}


@pytest.mark.parametrize(
    "never",
    [eval, getattr, os.system, "os.system", "builtins.exec", "subprocess.Popen", type, "builtins.type"],
    ids=str,
)
def test_what_would_run_anything_cannot_be_allowed(never):
    with pytest.raises(TypeError, match="never allowed"):
        Pickled(allow=[never])


def test_builtin_data_can_be_allowed():
    annotation = Pickled(allow=[collections.defaultdict, list, ValueError])
    value = collections.defaultdict(list, a=[1])
    assert both_ways(annotation, value) == [value] * 3
    assert annotation.load(annotation.dump(value)).default_factory is list
    assert repr(annotation.load(annotation.dump(ValueError("x")))) == "ValueError('x')"


@dataclasses.dataclass
class Written:
    """Its annotations are text, as everything in this module is."""

    small: pa.int16()
    model: Pickled(Model)
    array: npt.NDArray[np.int8]


def test_annotations_that_are_text_are_understood():
    for found in both_ways(Written, Written(1, Model([]), np.array([1], np.int8))):
        assert (found.small, found.model, found.array.tolist()) == (1, Model([]), [1])
