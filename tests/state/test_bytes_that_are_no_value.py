"""Bytes that are no value of the type: a ValueError, whatever they are."""

from __future__ import annotations

import contextlib
import datetime
from enum import Enum

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.state.types.annotations import stored


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
