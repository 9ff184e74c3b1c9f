"""Arrays in state: what comes back, what is refused, and bytes that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from stable_ids import shown
from values_both_ways import both_ways

from moorline.errors import StateTypeMismatch
from moorline.state.types.annotations import stored, to_bytes, to_column

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
