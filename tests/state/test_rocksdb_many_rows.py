"""Many rows of RocksDB at once: the same tables and the same rows as one by one."""

from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdb_worlds import EVERYTHING, new_world, scratch
from thoroughness import examples

from moorline.api.state.descriptors import ValueStateDescriptor
from moorline.errors import StateTypeMismatch
from moorline.model import keys
from moorline.state.forms import form_of
from moorline.state.rocksdb import many_rows, rows
from moorline.state.rocksdb.layout import groups, number_bytes, place
from moorline.state.rocksdb.many_rows import elements_of, prefixes_of
from moorline.state.rocksdb.store import Store, new_batch
from moorline.testing.contracts.backend.base import MAX_PARALLELISM

NUMBERS = st.integers(-(2**63), 2**63 - 1)
VALUES = {
    int: NUMBERS,
    tuple[int, float]: st.tuples(NUMBERS, st.floats(allow_nan=False)),
    list[str]: st.lists(st.text(max_size=3), max_size=3),
    object: st.none() | NUMBERS | st.text(max_size=3),
}
TEXTS = st.text(st.sampled_from("a\0\xffé\x01"), max_size=4)


@pytest.fixture(scope="module")
def store():
    with scratch() as folder:
        store = Store(folder / "db", 8 << 20)
        yield store
        store.close()


def stored_rows(store, form, entries):
    """The entries as the rows of state 1, with nothing else in the database."""
    batch = new_batch()
    batch.delete_range(number_bytes(1), number_bytes(2))
    store.write(batch)
    batch = new_batch()
    for key, value in entries.items():
        batch[number_bytes(1) + place(key, MAX_PARALLELISM)] = b"\0" + form.value.pack(value)
    store.write(batch)


def tables(store, form):
    view = store.view(*groups(1, EVERYTHING.first, EVERYTHING.end))
    return list(rows.tables_of(view, 1, form, EVERYTHING, is_stamped=False))


@st.composite
def states(draw):
    annotation = draw(st.sampled_from(list(VALUES)))
    entries = draw(st.dictionaries(draw(st.sampled_from([NUMBERS, TEXTS, NUMBERS | TEXTS])), VALUES[annotation]))
    return form_of(ValueStateDescriptor("state", annotation), "here", False), entries


@settings(max_examples=examples(100), deadline=None)
@given(states())
def test_the_tables_are_those_of_one_row_after_the_other(store, state):
    form, entries = state
    stored_rows(store, form, entries)
    quick = tables(store, form)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "are_alike", lambda form, tag: False)
        slow = tables(store, form)
    assert [t.schema for t in quick] == [t.schema for t in slow]
    assert [t.to_pylist() for t in quick] == [t.to_pylist() for t in slow]
    assert sum(t.num_rows for t in quick) == len(entries)


@settings(max_examples=examples(50), deadline=None)
@given(st.sets(st.integers(0, 500), min_size=1), st.integers(1, 30), st.integers(1, 7))
def test_tables_are_cut_between_key_groups(store, numbers, most, piece):
    form = form_of(ValueStateDescriptor("state", int), "here", False)
    stored_rows(store, form, {n: n for n in numbers})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(many_rows, "PIECE_ROWS", piece)
        patch.setattr(many_rows, "TABLE_ROWS", most)
        found = [t["key_group"].to_pylist() for t in tables(store, form)]
    assert list(chain(*found)) == sorted(keys.key_group(n, MAX_PARALLELISM) for n in numbers)
    largest = max(map(list(chain(*found)).count, chain(*found)))
    if largest < many_rows.TOO_LARGE * most:
        assert not any(set(one) & set(other) for n, one in enumerate(found) for other in found[n + 1 :])
    assert all(len(group) < many_rows.TOO_LARGE * most + largest + piece for group in found)


def test_large_rows_come_in_pieces_of_few(store):
    form = form_of(ValueStateDescriptor("state", bytes), "here", False)
    stored_rows(store, form, dict.fromkeys(range(300), b"x" * 1000))
    view = store.view(*groups(1, EVERYTHING.first, EVERYTHING.end))
    sizes = [len(found) for found, values in view.pieces(8_192, 10_000)]
    assert sum(sizes) == 300 and sizes[0] == 64 and max(sizes[1:]) == 10


@given(
    st.lists(NUMBERS).map(lambda found: (found, pa.int64()))
    | st.lists(TEXTS).map(lambda found: (found, pa.string()))
    | st.lists(NUMBERS | TEXTS | st.tuples(NUMBERS)).map(lambda found: (found, pa.binary()))
)
def test_the_beginnings_of_rows_are_those_of_one_key_after_the_other(found):
    some, arrow = found
    column = pa.chunked_array([pa.array(list(map(keys.encode, some)) if arrow == pa.binary() else some, arrow)])
    assert prefixes_of(b"\0\7", column, 128) == [b"\0\7" + place(key, 128) for key in some]


def test_a_value_that_does_not_fit_is_refused_with_the_name_of_its_state():
    form = form_of(ValueStateDescriptor("totals", tuple[int, int]), "here", False)
    assert elements_of(form.value, [(1, 2), None], "totals") == [b"\0\x92\1\2", b"\0\xc0"]
    with pytest.raises(StateTypeMismatch, match=r"totals.*tuple\[int, int\].*str"):
        elements_of(form.value, [(1, 2), (1, "2")], "totals")


def test_a_state_of_many_keys_comes_back_at_another_parallelism():
    with new_world() as world:
        subtask = world.start(ValueStateDescriptor("pair", tuple[int, str]), incremental=False)
        subtask.backend.prefetch(range(20_000))
        for subtask.backend.current.key in range(20_000):
            subtask.states[0].update((subtask.backend.current.key, "x"))
        subtask.backend.flush()
        parts, together = subtask.checkpoint(), {}
        for index in range(3):
            again = world.start(
                ValueStateDescriptor("pair", tuple[int, str]), index=index, parallelism=3, restored=parts
            )
            together |= again.held(0, again.backend.keys("pair"))
        assert together == {key: (key, "x") for key in range(20_000)}
