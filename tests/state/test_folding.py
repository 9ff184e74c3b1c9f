"""Folding a chain is what applying it key by key would be."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import examples

from moorline.model import keys
from moorline.state.folding import fold

NAMESPACE = pa.struct([("start", pa.int64()), ("end", pa.int64())])
GROUPS = 8

some_key = st.sampled_from([0, 1, -3, 7, "a", "b", "größe", (1, "x"), 2**70, 1.5])
int_key = st.sampled_from([0, 1, -3, 7, 2**63 - 1, -(2**63)])
str_key = st.sampled_from(["", "a", "b", "größe", "z"])
namespace = st.none() | st.sampled_from([(0, 10), (0, 20), (10, 20), (-5, 0)])


def chains(one_key, spaces):
    """Tables as {(key, namespace): rows}, an empty list for what is gone."""
    ident = st.tuples(one_key, spaces)
    increment = st.dictionaries(ident, st.lists(st.integers(0, 99), max_size=3), max_size=6)
    base = st.dictionaries(ident, st.lists(st.integers(0, 99), min_size=1, max_size=3), max_size=6)
    return st.tuples(base, st.lists(increment, max_size=4))


def table(content, is_increment, has_namespace, has_stamps):
    rows = []
    for (key, space), values in content.items():
        for value in values or [None]:
            rows.append((keys.key_group(key, GROUPS), keys.encode(key), key, space, value, not values))
    rows.sort(key=lambda row: (row[0], row[1], row[3] is None, row[3] or ()))
    found = [row[2] for row in rows]
    kinds = {type(key) for key in found}
    if kinds == {int} and all(-(2**63) <= key < 2**63 for key in found):
        column = pa.array(found, pa.int64())
    elif kinds == {str}:
        column = pa.array(found, pa.string())
    else:
        column = pa.array([row[1] for row in rows], pa.binary())
    columns = {"key_group": pa.array([row[0] for row in rows], pa.int32()), "key": column}
    if has_namespace:
        spans = [row[3] and {"start": row[3][0], "end": row[3][1]} for row in rows]
        columns["namespace"] = pa.array(spans, NAMESPACE)
    columns["value"] = pa.array([row[4] for row in rows], pa.int64())
    if has_stamps:
        columns["last_access"] = pa.array([row[4] for row in rows], pa.int64())
        columns["ttl"] = pa.array([None] * len(rows), pa.int64())
    if is_increment:
        columns["gone"] = pa.array([row[5] for row in rows], pa.bool_())
    return pa.table(columns)


def shown(folded):
    found = {}
    encoded = pa.types.is_binary(folded["key"].type)
    for row in folded.to_pylist():
        key = row["key"] if encoded else keys.encode(row["key"])
        space = row.get("namespace")
        found.setdefault((key, space and (space["start"], space["end"])), []).append(row["value"])
    return found


@pytest.mark.parametrize("key", [some_key, int_key, str_key], ids=["any", "int", "str"])
@pytest.mark.parametrize("has_namespace", [False, True], ids=["keys", "windows"])
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_folding_is_what_applying_key_by_key_would_be(key, has_namespace, data):
    base, increments = data.draw(chains(key, namespace if has_namespace else st.none()))
    stamps = data.draw(st.lists(st.booleans(), min_size=5, max_size=5))
    expected = dict(base)
    for increment in increments:
        expected |= increment
    chain = [(table(base, False, has_namespace, stamps[0]), False)]
    chain += [(table(c, True, has_namespace, s), True) for c, s in zip(increments, stamps[1:])]
    folded = fold(chain)
    assert shown(folded) == {(keys.encode(k), n): values for (k, n), values in expected.items() if values}
    assert "gone" not in folded.column_names
    assert ("last_access" in folded.column_names) == any(stamps[: len(chain)])
    groups = folded["key_group"].to_pylist()
    encoded = [k if pa.types.is_binary(folded["key"].type) else keys.encode(k) for k in folded["key"].to_pylist()]
    assert groups == [keys.encoded_key_group(e, GROUPS) for e in encoded]
    assert list(zip(groups, encoded)) == sorted(zip(groups, encoded))


def test_several_bases_of_other_key_groups_are_put_together():
    one = table({(0, None): [1], (1, None): [2]}, False, False, False)
    other = table({("a", None): [3]}, False, False, False)
    step = table({(1, None): [], ("a", None): [4, 5]}, True, False, False)
    folded = fold([(one, False), (other, False), (step, True)])
    assert shown(folded) == {(keys.encode(0), None): [1], (keys.encode("a"), None): [4, 5]}


def test_everything_may_be_gone():
    base, step = table({(0, None): [1]}, False, False, False), table({(0, None): []}, True, False, False)
    assert fold([(base, False), (step, True)]).num_rows == 0


def test_a_chain_of_nothing_is_nothing():
    assert fold([]) is None


def test_stamps_that_were_not_there_are_null():
    base = table({(0, None): [1]}, False, False, False)
    step = table({(1, None): [2]}, True, False, True)
    rows = {row["key"]: row["last_access"] for row in fold([(base, False), (step, True)]).to_pylist()}
    assert rows == {0: None, 1: 2}
