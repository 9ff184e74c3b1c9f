"""Every tree of a type that a manifest can have, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from moorline.model import value_kinds
from moorline.model.type_tree import arrow, tree

odd = st.text(min_size=1, max_size=8) | st.sampled_from(["f.<locals>.Basket", "größe", 'a"b', "a, b", "x: int)", "\\"])
arrows = st.recursive(
    st.sampled_from(sorted(arrow.WORDS)).map(arrow.Word)
    | st.sampled_from([arrow.Decimal(256, 40, 3), arrow.Decimal(128, 38, 38), arrow.Decimal(128, 1, 0)])
    | st.sampled_from([arrow.Timestamp("ns", "Europe/Berlin"), arrow.Timestamp("ms", "+01:00"), arrow.FixedBytes(3)]),
    lambda inner: (
        st.builds(arrow.List, inner, st.booleans())
        | st.builds(arrow.FixedList, inner, st.integers(0, 9))
        | st.builds(arrow.Map, inner, inner)
        | st.lists(
            st.builds(arrow.Field, odd, inner, st.booleans()), min_size=1, max_size=2, unique_by=lambda f: f.name
        )
        .map(tuple)
        .map(arrow.Struct)
    ),
    max_leaves=4,
)
types = st.recursive(
    st.sampled_from(sorted(tree.WORDS)).map(tree.Word)
    | st.builds(tree.Enum, odd, st.booleans())
    | st.lists(odd | st.integers() | st.booleans(), min_size=1, max_size=3).map(tuple).map(tree.Literal.of)
    | st.sampled_from(sorted(value_kinds.NUMPY_NUMBERS)).map(tree.Array)
    | arrows.map(tree.Arrow)
    | st.lists(odd, max_size=3).map(lambda n: tree.Pickle(tuple(sorted(n)))),
    lambda inner: (
        inner.filter(lambda t: not isinstance(t, tree.Optional)).map(tree.Optional)
        | st.builds(tree.List.of, st.sampled_from([list, set, frozenset, tuple]), inner)
        | st.lists(inner, min_size=1, max_size=3).map(lambda t: tree.Tuple(tuple(t)))
        | st.builds(tree.Dict, inner, inner)
        | st.builds(tree.Fields.of, odd, st.dictionaries(odd, inner, min_size=1, max_size=3))
    ),
    max_leaves=6,
)
state_types = types | st.builds(tree.Map, types, types)
