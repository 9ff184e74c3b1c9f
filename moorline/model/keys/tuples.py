"""Key groups of keys of several columns, for a whole batch at once.

The encoding of a tuple (``model/keys/encoding.py``) is put together by column, by Arrow, and hashed row by row: the
same bytes and the same hash as for each tuple alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from moorline.model.keys.hashing import groups_of

_INT = np.dtype([("length", ">u4"), ("tag", "S1"), ("number", ">u8")])
_TEXT = np.dtype([("length", ">u4"), ("tag", "S1")])
_SIGN = np.uint64(1 << 63)


def tuple_key_groups(columns: Sequence[pa.Array], max_parallelism: int) -> npt.NDArray[np.int64] | None:
    """The key group of each row's tuple; None if a column is not of ints or texts, or has nulls.

    >>> from moorline.model.keys import key_group
    >>> tuple_key_groups([pa.array(["a", "b"]), pa.array([1, -1])], 128).tolist() == [
    ...     key_group(("a", 1), 128), key_group(("b", -1), 128)]
    True
    """
    parts: list[pa.Array] = []
    for column in columns:
        made = _encoded(column)
        if made is None:
            return None
        parts += made
    encoded = pc.binary_join_element_wise(pa.scalar(b"("), *parts, pa.scalar(b""))
    hashes = np.fromiter(map(xxhash.xxh3_64_intdigest, encoded.to_pylist()), np.uint64, len(encoded))
    return groups_of(hashes, max_parallelism)


def _encoded(column: pa.Array) -> list[pa.Array] | None:
    """The parts that the items of a column add to the encodings of their tuples."""
    if column.null_count:
        return None
    if pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type):
        items = np.empty(len(column), _INT)
        items["length"], items["tag"] = 9, b"i"
        items["number"] = column.cast(pa.int64()).to_numpy(zero_copy_only=False).view(np.uint64) ^ _SIGN
        return [_binary(items)]
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        heads = np.empty(len(column), _TEXT)
        heads["length"], heads["tag"] = pc.binary_length(column).to_numpy(zero_copy_only=False) + 1, b"s"
        return [_binary(heads), column.cast(pa.binary())]
    return None


def _binary(items: npt.NDArray[np.void]) -> pa.Array:
    width = pa.binary(items.itemsize)
    return pa.Array.from_buffers(width, len(items), [None, pa.py_buffer(items)]).cast(pa.binary())
