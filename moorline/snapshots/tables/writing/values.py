"""From the columns people have to the columns a snapshot stores.

A DataFrame has a timestamp where state is ISO text, a struct where it is a tuple, a map where it is a list of entries.
What Arrow can turn over as a whole is not looked at value by value; the rest goes through the type's own rules, found
by the type's tree, so that no class of the job has to be where this runs. What does not fit is
:class:`StateTypeMismatch` with the state's name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from moorline.errors import InvalidKey, StateTypeMismatch
from moorline.model import keys
from moorline.model.type_tree import tree
from moorline.model.value_kinds import LOWERED
from moorline.state.evolution.untyped import raw_type
from moorline.state.types.annotations import UNFIT
from moorline.state.types.leaf import LEAVES, LeafType, StoredType
from moorline.state.types.numpy import NumpyTimeType, NumpyType

#: Words whose column holds the values themselves, not a text or bytes that stand for them.
_DIRECT = {leaf.tree for leaf in LEAVES.values() if isinstance(leaf, LeafType)}
#: Raised by the ways of storing for a value that does not fit.
_UNFIT = (*UNFIT, KeyError, ArithmeticError)
#: By the word of a type, and what a column may have instead of its values: how they are read from that.
_LIFTS: dict[tuple[str, type], Callable[[Any], Any]] = {
    (kind.name, form.wire): form.lift
    for kind in LOWERED
    for form in (kind.json, kind.packed)
    if form is not None and form.wire in (str, bytes)
}


def stored_column(declared: tree.Type, column: Any, state: str) -> pa.Array:
    """Values as they are stored. ``column`` holds them as Arrow, Spark or pandas would.

    >>> pair = tree.Tuple((tree.INT, tree.INT))
    >>> stored_column(pair, pa.array([[1, 2]]), "sums").to_pylist()
    Traceback (most recent call last):
    moorline.errors.StateTypeMismatch: a value in state 'sums' does not fit its declared type tuple[int, int]: ...
    >>> stored_column(pair, pa.array([{"f0": 1, "f1": 2}]), "sums").to_pylist()
    [{'f0': 1, 'f1': 2}]
    """
    array = _whole(column)
    kind = raw_type(declared)
    if array.null_count and not isinstance(declared, tree.Optional) and declared != tree.PLAIN:
        raise StateTypeMismatch(state, str(declared), f"{array.null_count} values are null")
    try:
        return _converted(declared, kind, array)
    except _UNFIT as error:
        raise StateTypeMismatch(state, str(declared), f"{error}") from error


def check_stored(declared: tree.Type, column: Any, state: str) -> pa.Array:
    """A column that claims to be in its stored form already. Raises if it is not."""
    array = _whole(column)
    kind = raw_type(declared)
    try:
        if not _alike(array.type, kind.arrow):
            raise TypeError(f"the column is {array.type} and should be {kind.arrow}")
        if not _is_direct(declared):
            kind.from_array(array)
        return array if array.type == kind.arrow else array.cast(kind.arrow)
    except _UNFIT as error:
        raise StateTypeMismatch(state, str(declared), f"{error}") from error


def _whole(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _converted(declared: tree.Type, kind: StoredType, array: pa.Array) -> pa.Array:
    wanted = kind.arrow
    if _is_direct(declared) and _alike(array.type, wanted):
        return array if array.type == wanted else array.cast(wanted)
    is_scalar = isinstance(kind, (NumpyType, NumpyTimeType))
    if isinstance(declared, tree.Arrow) or (is_scalar and _is_number(array.type) == _is_number(wanted)):
        return array.cast(wanted)
    return kind.to_array([_to_raw(declared, value) for value in array.to_pylist()])


def _is_direct(declared: tree.Type) -> bool:
    match declared:
        case tree.Word():
            return declared in _DIRECT
        case tree.Enum() | tree.Literal() | tree.Array() | tree.Pickle():
            return False
        case _:
            return all(map(_is_direct, tree.parts(declared)))


def _alike(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Do they hold the same values, up to width and to names that carry no meaning?"""
    kinds = pa.types
    if kinds.is_signed_integer(wanted):
        return bool(kinds.is_integer(given))
    if kinds.is_floating(wanted):
        return bool(kinds.is_floating(given))
    if kinds.is_string(wanted):
        return bool(kinds.is_string(given) or kinds.is_large_string(given))
    if kinds.is_binary(wanted):
        return bool(kinds.is_binary(given) or kinds.is_large_binary(given))
    if kinds.is_list(wanted):
        is_list = kinds.is_list(given) or kinds.is_large_list(given)
        return bool(is_list and _alike(given.value_type, wanted.value_type))
    if kinds.is_struct(wanted):
        same = kinds.is_struct(given) and [f.name for f in given] == [f.name for f in wanted]
        return same and all(_alike(a.type, b.type) for a, b in zip(given, wanted))
    return bool(given == wanted)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _to_raw(declared: tree.Type, value: Any) -> Any:
    """A value as Arrow shows it, in the raw form of ``state/evolution/untyped.py``."""
    if value is None:
        return None
    match declared:
        case tree.Optional(inner):
            return _to_raw(inner, value)
        case tree.List(_, item):
            if isinstance(value, (str, bytes, dict)):
                raise TypeError(f"{value!r:.100} is no list")
            return [_to_raw(item, v) for v in value]
        case tree.Tuple(items):
            parts = list(value.values()) if isinstance(value, dict) else value
            if isinstance(parts, (str, bytes)) or len(parts) != len(items):
                raise ValueError(f"{value!r:.100} does not have {len(items)} parts")
            if not isinstance(value, (dict, tuple)):
                raise TypeError(f"{value!r:.100} is a list; a tuple is a struct of {len(items)} fields")
            return tuple(_to_raw(t, v) for t, v in zip(items, parts))
        case tree.Dict(key, inner):
            return [(_to_raw(key, k), _to_raw(inner, v)) for k, v in _pairs(value)]
        case tree.Fields(cls, fields):
            names = [field.name for field in fields]
            if not isinstance(value, dict) or set(value) != set(names):
                raise ValueError(f"{value!r:.100} does not have the fields of {cls}: {', '.join(names)}")
            return tuple(_to_raw(field.type, value[field.name]) for field in fields)
        case tree.Word(word) if (word, type(value)) in _LIFTS:
            return _LIFTS[word, type(value)](value)
        case tree.Enum(cls, False) if not isinstance(value, str):
            raise TypeError(f"{value!r:.100} is not the name of a member of {cls}")
        case _:
            return value


def _pairs(value: Any) -> Any:
    if isinstance(value, dict):
        return value.items()
    return [tuple(p.values()) if isinstance(p, dict) else p for p in value]


# --- keys -----------------------------------------------------------------------------------------


def stored_keys(columns: list[Any], max_parallelism: int, uid: str) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """A column of keys as it is stored, and the key group of each. Several columns make keys that are tuples.

    >>> stored_keys([pa.array(["user-1"])], 128, "count")[1].tolist()
    [14]
    """
    arrays = [_whole(column) for column in columns]
    for array in arrays:
        if array.null_count:
            raise InvalidKey(uid, "None", "a row of the table", "None is not a key")
    kind = arrays[0].type
    if len(arrays) == 1 and (pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and kind != pa.uint64())):
        numbers = arrays[0].cast(pa.int64())
        return numbers, keys.int_key_groups(numbers.to_numpy(zero_copy_only=False), max_parallelism)
    listed = [a.to_pylist() for a in arrays]
    keys_of_rows = listed[0] if len(arrays) == 1 else zip(*listed, strict=True)
    encoded = [_encode(key, uid) for key in keys_of_rows]
    groups = key_groups_of_encoded(encoded, max_parallelism)
    if len(arrays) == 1 and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return arrays[0].cast(pa.string()), groups
    return pa.array(encoded, pa.binary()), groups


def check_key_groups(table: pa.Table, max_parallelism: int) -> None:
    """Raises ``ValueError`` unless each row of a stored table is in the key group of its key."""
    column = table["key"].combine_chunks()
    if pa.types.is_int64(column.type):
        groups = keys.int_key_groups(column.to_numpy(zero_copy_only=False), max_parallelism)
    else:
        is_text = pa.types.is_string(column.type)
        encoded = [b"s" + k.encode() if is_text else k for k in column.to_pylist()]
        groups = key_groups_of_encoded(encoded, max_parallelism)
    if not np.array_equal(groups, table["key_group"].to_numpy()):
        raise ValueError("the key of a row does not belong to its key group")


def key_groups_of_encoded(encoded: list[bytes], max_parallelism: int) -> npt.NDArray[np.int64]:
    return np.fromiter((keys.encoded_key_group(e, max_parallelism) for e in encoded), np.int64, len(encoded))


def _encode(key: Any, uid: str) -> bytes:
    try:
        return keys.encode(_hashable(key))
    except keys.NotAKey as error:
        raise InvalidKey(uid, repr(key)[:200], "a row of the table", str(error)) from None


def _hashable(key: Any) -> Any:
    """A struct or list of a column is a tuple as a key."""
    if isinstance(key, dict):
        return tuple(_hashable(v) for v in key.values())
    return tuple(_hashable(v) for v in key) if isinstance(key, (list, tuple)) else key
