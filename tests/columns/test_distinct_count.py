"""The approximate count of different values: its error, and that a sketch is that of a set."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorline.api.columns.distinct_count import (
    REGISTERS,
    estimates,
    hashes_of,
    merged,
    registers_of,
    sketch_of,
)

VALUES = st.lists(st.integers() | st.text(max_size=5) | st.floats() | st.binary(max_size=5), max_size=50)


@pytest.mark.parametrize("distinct", [1, 10, 100, 1000, 5000, 50_000])
def test_the_standard_error_is_what_is_said(distinct: int) -> None:
    repeats = 60 if distinct < 50_000 else 20
    chance = np.random.default_rng(distinct)
    sketches = []
    for _ in range(repeats):
        chosen, kept = registers_of(chance.integers(0, 2**64, distinct, np.uint64))
        registers = np.zeros(REGISTERS, np.uint8)
        np.maximum.at(registers, chosen, kept)
        sketches.append(registers.tobytes())
    errors = estimates(sketches) / distinct - 1
    said = 1.04 / math.sqrt(REGISTERS)
    assert np.sqrt(np.mean(errors**2)) < 1.3 * said
    assert abs(np.mean(errors)) < 4 * said / math.sqrt(repeats), "it leans to one side"
    assert np.abs(errors).max() < 4.5 * said


@pytest.mark.parametrize("kind", [int, str, float])
def test_hashes_of_values_are_as_good_as_chance(kind: type) -> None:
    sketches = [sketch_of(map(kind, range(n * 10_000, n * 10_000 + 3000))) for n in range(20)]
    errors = estimates(sketches) / 3000 - 1
    assert np.abs(errors).max() < 0.09
    assert abs(np.mean(errors)) < 0.02


@given(a=VALUES, b=VALUES)
def test_a_sketch_is_that_of_a_set(a: list, b: list) -> None:
    assert merged(sketch_of(a), sketch_of(b)) == sketch_of([*b, *a, *a])
    assert merged(sketch_of(a), sketch_of([])) == sketch_of(a)


@given(rest=st.integers(0, 2**53 - 1), register=st.integers(0, REGISTERS - 1))
def test_a_register_counts_zeros(rest: int, register: int) -> None:
    chosen, kept = registers_of(np.array([register << 53 | rest], np.uint64))
    assert (int(chosen[0]), int(kept[0])) == (register, 54 - rest.bit_length())


def test_edges_are_estimated() -> None:
    full = bytes([54]) * REGISTERS
    assert estimates([sketch_of([]), sketch_of(["a"]), sketch_of([float("nan"), -float("nan")])]).tolist() == [0, 1, 1]
    assert estimates([full])[0] > 2**53
    assert estimates([]).tolist() == []


def test_hashes_never_change() -> None:
    """What is in a snapshot was hashed by another version, on another machine."""
    values = [0, -1, 2**63 - 1, 0.5, "ada", "ü", b"\x00", True]
    assert hashlib.sha256(hashes_of(values).astype("<u8").tobytes()).hexdigest()[:16] == "2614ed8f0684f27a"
