"""Arrays, pickles and bytes of single values: what comes back, what is refused, and what hostile bytes can do."""

from __future__ import annotations

import collections
import contextlib
import copyreg
import dataclasses
import datetime
import os
import pickle
import random
from enum import Enum
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stable_ids import shown

from moorline.errors import PickleRefused, StateTypeMismatch
from moorline.state.types.annotations import Pickled, stored, to_bytes, to_column


def both_ways(annotation: Any, value: Any) -> list[Any]:
    """A value out of a column that went through a file, and out of bytes."""
    found = stored(annotation, "here")
    table = pa.table({"value": to_column(found, [None, value, value], "s")})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="lz4", use_dictionary=False)
    again = pq.read_table(pa.BufferReader(sink.getvalue()), use_threads=False)["value"].combine_chunks()
    assert again.type == found.arrow
    assert found.from_array(again)[0] is None
    assert found.unpack(found.pack(None)) is None
    return [
        found.from_array(again)[2],
        found.from_array(again.slice(1, 1))[0],
        found.unpack(to_bytes(found, value, "s")),
    ]


# --- arrays -----------------------------------------------------------------------------------

POINT = np.dtype([("x", "<f4"), ("tag", "S3"), ("inner", [("n", "<i2", (2,))])])
ARRAYS = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.arange(6, dtype=np.float32).reshape(2, 3).T,
    np.zeros((0, 3), np.int8),
    np.array(5.5),
    np.array([], np.uint64),
    np.array([1, 2**64 - 1], np.uint64),
    np.array([True, False]),
    np.array([1 + 2j]),
    np.array(["a", "größe"]),
    np.array([b"x"]),
    np.array(["2024-01-01", "NaT"], "M8[D]"),
    np.array([1.5], ">f8"),
    np.arange(10)[::3],
    np.zeros(2, POINT),
    np.array([0.5], np.float16),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype.kind}{a.shape}")
def test_an_array_of_any_dtype_comes_back_fresh_and_writable(array):
    for found in both_ways(np.ndarray, array):
        np.testing.assert_array_equal(found, array)
        assert (found.dtype, found.shape, type(found)) == (array.dtype, array.shape, np.ndarray)
        assert found.flags.writeable and found.flags.owndata
        assert not np.shares_memory(found, array)


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "?"])
def test_an_array_of_a_declared_dtype_is_a_list_anybody_can_read(dtype):
    kind = np.dtype(dtype).type
    array = np.array([[0, 1], [1, 1]], dtype)
    annotation = npt.NDArray[kind]
    for found in both_ways(annotation, array):
        np.testing.assert_array_equal(found, array)
        assert found.dtype == array.dtype
        found[0, 0] = 1
    assert stored(annotation, "").name == f"np.ndarray[np.{np.dtype(dtype).name}]"
    row = stored(annotation, "").to_array([array]).to_pylist()[0]
    assert row == {"shape": [2, 2], "data": [0, 1, 1, 1]}


def test_a_typed_array_keeps_nan_and_takes_either_byte_order():
    for found in both_ways(npt.NDArray[np.float64], np.array([np.nan, 1.0], ">f8")):
        np.testing.assert_array_equal(found, [np.nan, 1.0])
        assert found.dtype == np.float64
    assert stored(npt.NDArray[np.float32], "").from_array(stored(npt.NDArray[np.float32], "").to_array([])) == []


def test_an_array_of_what_arrow_has_no_column_for_is_stored_as_any_array_is():
    for scalar in (np.str_, np.datetime64, np.complex128, np.floating, Any):
        assert stored(npt.NDArray[scalar], "").name == "np.ndarray"
    with pytest.raises(StateTypeMismatch, match="not one of str_"):
        to_bytes(stored(npt.NDArray[np.str_], ""), np.array([1]), "s")


@pytest.mark.parametrize(
    ("annotation", "wrong"),
    [
        (np.ndarray, np.array([object()])),
        (np.ndarray, np.zeros(1, [("a", "O")])),
        (np.ndarray, [1, 2]),
        (np.ndarray, np.float64(1)),
        (np.ndarray, np.ma.masked_array([1], [True])),
        (npt.NDArray[np.float32], np.zeros(2)),
        (npt.NDArray[np.float64], np.zeros(2, np.float32)),
        (npt.NDArray[np.int64], np.array([object()])),
        (npt.NDArray[np.int64], [1]),
    ],
    ids=shown,
)
def test_an_array_that_does_not_fit_is_refused(annotation, wrong):
    with pytest.raises(StateTypeMismatch):
        to_column(stored(annotation, "here"), [wrong], "s")
    with pytest.raises(StateTypeMismatch):
        to_bytes(stored(annotation, "here"), wrong, "s")


def test_arrays_can_change_in_place_and_live_in_other_types():
    assert not stored(np.ndarray, "").is_immutable
    assert not stored(tuple[int, npt.NDArray[np.int8]], "").is_immutable
    for number, array in both_ways(tuple[int, npt.NDArray[np.int8]], (1, np.array([2], np.int8))):
        assert (number, array.tolist()) == (1, [2])
    for found in both_ways(list[np.ndarray], [np.zeros(2), np.ones((1, 1))]):
        assert [a.tolist() for a in found] == [[0.0, 0.0], [[1.0]]]


@pytest.mark.parametrize(
    "row",
    [
        ("|O", [1], b"12345678"),
        ("O", [1], b"12345678"),
        ("<f8", [2], b"12345678"),
        ("<f8", [-1], b""),
        ("<f8", [2**40, 2**40], b"x"),
        ("<f8", [0, 2**70], b""),
        ("nonsense", [1], b"x"),
        ('[["a", "|O"]]', [1], b"12345678"),
        ("[[[[[[", [1], b""),
        ("[1]", [1], b""),
        ('[["a"]]', [1], b""),
        ("", [1], b""),
    ],
    ids=str,
)
def test_bytes_that_are_no_array_are_a_value_error(row):
    with pytest.raises(ValueError):
        stored(np.ndarray, "").lift(row)


# --- bytes of single values -------------------------------------------------------------------


class Colour(Enum):
    RED = 1


@pytest.mark.parametrize(
    ("annotation", "data"),
    [
        (int, b""),
        (int, b"\xc1"),
        (int, msgspec.msgpack.encode("x")),
        (str, msgspec.msgpack.encode(5)),
        (tuple[int, int], msgspec.msgpack.encode([1])),
        (tuple[int, int], msgspec.msgpack.encode([1, 2, 3])),
        (list[int], msgspec.msgpack.encode(["a"])),
        (dict[str, int], msgspec.msgpack.encode([1])),
        (Colour, msgspec.msgpack.encode("GREEN")),
        (np.int8, msgspec.msgpack.encode(300)),
        (object, b"\xc1"),
        (datetime.date, msgspec.msgpack.encode("soon")),
    ],
    ids=lambda v: str(v),
)
def test_other_bytes_are_a_value_error(annotation, data):
    with pytest.raises(ValueError):
        stored(annotation, "here").unpack(data)


@given(st.binary(max_size=40))
def test_noise_is_a_value_or_a_value_error(data):
    for annotation in (tuple[int, list[Colour]], dict[str, np.int8], npt.NDArray[np.int16], np.ndarray, object):
        with contextlib.suppress(ValueError):
            stored(annotation, "here").unpack(data)


def test_a_member_that_is_gone_is_named():
    with pytest.raises(ValueError, match="Colour has no member 'GREEN'; it has RED"):
        stored(Colour, "here").from_array(pa.array(["GREEN"]))


# --- pickles ----------------------------------------------------------------------------------


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
