"""Rows of the heap: values of a few bytes are sorted as columns, others before, with the same result."""

from itertools import chain
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from moorline.api.state.descriptors import ValueStateDescriptor
from moorline.errors import StateTypeMismatch
from moorline.model import keys
from moorline.state.forms import form_of
from moorline.state.heap import rows
from moorline.state.heap.rows import Content, entries_of, tables_of
from moorline.state.readers import RowReaders

GROUPS = 128
NUMBERS = st.integers(-(2**63), 2**63 - 1)
TYPES: dict[Any, Any] = {
    int: NUMBERS,
    bool: st.booleans(),
    float | None: st.none() | st.floats(allow_nan=False),
    tuple[int, int]: st.tuples(NUMBERS, NUMBERS),
    tuple[int, tuple[bool, float]] | None: st.none()
    | st.tuples(NUMBERS, st.tuples(st.booleans(), st.floats(allow_nan=False))),
}
KEYS = st.sampled_from([st.integers(-50, 50) | NUMBERS, st.text(max_size=3), st.integers(-5, 5) | st.text(max_size=2)])


@st.composite
def contents(draw: Any) -> tuple[Any, Content]:
    annotation = draw(st.sampled_from(list(TYPES)))
    idents, is_windowed = draw(KEYS), draw(st.booleans())
    if is_windowed:
        window = st.none() | st.tuples(st.integers(-9, 9), st.integers(10, 19))
        idents = st.tuples(idents, window)
    form = form_of(ValueStateDescriptor("state", annotation), "here", is_windowed)
    entries = draw(st.dictionaries(idents, TYPES[annotation], max_size=40))
    gone = draw(st.none() | st.lists(idents.filter(lambda ident: ident not in entries), max_size=3, unique=True))
    return form, Content(entries, gone)


def written(form: Any, content: Content, **limits: int) -> list[pa.Table]:
    with patch.multiple(rows, **{"TABLE_ROWS": rows.TABLE_ROWS, **limits}):
        return list(tables_of(form, content, GROUPS))


@settings(max_examples=examples(200))
@given(contents())
def test_both_ways_give_the_same_rows(formed):
    form, content = formed
    quick, slow = written(form, content), written(form, content, NARROW_BITS=0)
    assert [t.schema for t in quick] == [t.schema for t in slow]
    assert [t.to_pylist() for t in quick] == [t.to_pylist() for t in slow]
    found = entries_of(form, RowReaders(form.value, None), quick)
    assert found.entries == content.entries and sorted(map(repr, found.gone)) == sorted(map(repr, content.gone or ()))


@settings(max_examples=examples(50))
@given(contents(), st.integers(1, 10))
def test_tables_of_narrow_values_are_cut_between_key_groups(formed, most):
    form, content = formed
    tables = written(form, content, TABLE_ROWS=most, NARROW_ROWS=3)
    groups = [table["key_group"].to_pylist() for table in tables]
    assert list(chain(*groups)) == sorted(chain(*groups))
    assert not any(set(one) & set(other) for n, one in enumerate(groups) for other in groups[n + 1 :])
    # A table ends at the first end of a key group after so many rows.
    assert all(len(g) - g.count(g[-1]) < most for g in groups) and all(len(g) >= most for g in groups[:-1])
    assert pa.concat_tables(tables).equals(pa.concat_tables(written(form, content))) if tables else not content.entries


def test_rows_are_in_the_order_of_key_group_and_key():
    form = form_of(ValueStateDescriptor("state", int), "here", False)
    (table,) = written(form, Content({key: key for key in [5, -3, 2**62, 0, -(2**63), 77, 1]}))
    found = list(zip(table["key_group"].to_pylist(), table["key"].to_pylist()))
    assert found == sorted((keys.key_group(key, GROUPS), key) for key in [5, -3, 2**62, 0, -(2**63), 77, 1])
    assert table["value"].to_pylist() == table["key"].to_pylist()


def test_a_narrow_value_that_does_not_fit_is_refused_with_the_name_of_its_state():
    form = form_of(ValueStateDescriptor("totals", tuple[int, int]), "here", False)
    with pytest.raises(StateTypeMismatch, match=r"totals.*tuple\[int, int\].*str"):
        written(form, Content({1: (1, 2), 2: (1, "2")}))
