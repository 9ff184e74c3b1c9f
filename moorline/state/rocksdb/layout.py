"""The layout of state in RocksDB: the bytes of row keys and of row values.

Everything is in one column family. A row key begins with the number of its state, so a state is one range of rows, the
key groups ``[first,end)`` of a state are one range, and a key's list or map is one range. Numbers are big endian, so
rows are sorted as numbers are; signed ones have their sign bit flipped for the same reason.

    meta         0 u16     what (1 byte)      name                                  -> msgpack
    value        state u16 key group u16      key  [window]                         -> element
    list         state u16 key group u16      key  [window]      sequence u64       -> element
    map          state u16 key group u16      key  [window]      map key            -> element
    timers       store u16 key group u16      key  window        time i64           -> nothing
    timers due   store u16 time i64           key group u16      key  window        -> nothing

    key          an encoding of ``model/keys/encoding.py``. One of fixed length as it is (its tag says which); any
                 other with each 0 byte as 0 255, and 0 0 at its end. So no key is the beginning of another, and keys
                 are sorted as their encodings are
    window       1, start i64, end i64; or 2 if it is of none
    sequence     rises with every element that is added to any list
    map key      an encoding of ``model/keys/encoding.py`` too, where it has one (``state/rocksdb/maps.py``)

    element      flags u8   [last access i64]   [time to live i64]   [length u32, packed map key]   packed value
                 bit 0: there is a last access; bit 1: a time to live; bit 2: a packed map key

The flags stand in every row: a state may get a time to live, or lose it, without being rewritten.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from moorline.model import keys
from moorline.state.backend import Namespace

#: The version of this layout, kept in the meta rows. A reader refuses any other.
LAYOUT = 1
#: Numbers that states can have: 0 is the meta rows'.
MAX_NUMBER = (1 << 16) - 2

HAS_ACCESS, HAS_TTL, HAS_MAP_KEY = 1, 2, 4

_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_WINDOW = struct.Struct(">BQQ")
NO_WINDOW = b"\2"
_SIGN = 1 << 63
#: Encodings of fixed length, by their tag: bytes with the tag.
_FIXED = dict.fromkeys(b"ifdtTc", 9) | {ord("u"): 17}
_END = b"\0\0"


# --- row keys ---------------------------------------------------------------------------------


def number_bytes(number: int) -> bytes:
    """The beginning of all rows of a state."""
    return _U16.pack(number)


def prefix_free(encoded: bytes) -> bytes:
    """An encoded key, so that no other one begins with it.

    >>> prefix_free(b"sa\\0b"), prefix_free(b"sa")
    (b'sa\\x00\\xffb\\x00\\x00', b'sa\\x00\\x00')
    """
    if encoded[0] in _FIXED:
        return encoded
    return encoded.replace(b"\0", b"\0\xff") + _END


def place(key: Any, max_parallelism: int) -> bytes:
    """Key group and key, as they stand in a row key."""
    return encoded_place(keys.encode(key), max_parallelism)


def encoded_place(encoded: bytes, max_parallelism: int) -> bytes:
    """:func:`place` of a key that is encoded already."""
    return _U16.pack(keys.encoded_key_group(encoded, max_parallelism)) + prefix_free(encoded)


def int_places(numbers: list[int] | npt.NDArray[np.int64], max_parallelism: int, start: bytes = b"") -> list[bytes]:
    """:func:`place` of many ints, behind ``start``. Raises ``OverflowError`` if one is beyond 64 bits.

    >>> int_places([5], 128) == [place(5, 128)]
    True
    """
    column = np.array(numbers, np.int64)
    rows = np.empty(len(column), [("start", "u1", (len(start),)), ("group", ">u2"), ("tag", "S1"), ("number", ">u8")])
    rows["start"] = np.frombuffer(start, np.uint8)
    rows["group"], rows["tag"] = keys.int_key_groups(column, max_parallelism), b"i"
    rows["number"] = column.view(np.uint64) ^ np.uint64(_SIGN)
    data, size = rows.tobytes(), rows.itemsize
    return [data[at : at + size] for at in range(0, len(data), size)]


def str_places(texts: list[str], max_parallelism: int) -> list[bytes]:
    """:func:`place` of many texts. Raises ``UnicodeEncodeError`` if one is no valid Unicode.

    >>> str_places(["a"], 128) == [place("a", 128)]
    True
    """
    pack, group = _U16.pack, keys.encoded_key_group
    encoded = [b"s" + text.encode() for text in texts]
    return [pack(group(e, max_parallelism)) + e.replace(b"\0", b"\0\xff") + _END for e in encoded]


def place_end(row: bytes, at: int = 2) -> int:
    """The end of the place that begins at ``at``. Raises ``ValueError`` if there is none."""
    start = at + 2
    if start >= len(row):
        raise ValueError(f"row {row[:50]!r} has no key")
    length = _FIXED.get(row[start])
    end = row.find(_END, start) + 2 if length is None else start + length
    if end < start + 2 or end > len(row):
        raise ValueError(f"row {row[:50]!r} has no key")
    return end


def encoded_key(place_bytes: bytes) -> bytes:
    """The encoded key in a place."""
    encoded = place_bytes[2:]
    if encoded[0] in _FIXED:
        return encoded
    return encoded[:-2].replace(b"\0\xff", b"\0")


def group_of(row: bytes, at: int = 2) -> int:
    """The key group in a row key."""
    (group,) = _U16.unpack_from(row, at)
    return int(group)


def after(prefix: bytes) -> bytes:
    """The first row key behind all that begin with ``prefix``."""
    number = int.from_bytes(prefix) + 1
    return number.to_bytes(len(prefix))


def groups(number: int, first: int, end: int) -> tuple[bytes, bytes]:
    """The range of rows of the key groups ``[first,end)`` of a state."""
    return _U16.pack(number) + _U16.pack(first), _U16.pack(number) + _U16.pack(end)


def window_bytes(namespace: Namespace) -> bytes:
    """A window, or none."""
    return NO_WINDOW if namespace is None else _WINDOW.pack(1, namespace[0] + _SIGN, namespace[1] + _SIGN)


def window_at(row: bytes, at: int) -> tuple[Namespace, int]:
    """The window that begins at ``at``, and where it ends."""
    if row[at] != 1:
        return None, at + 1
    _, start, end = _WINDOW.unpack_from(row, at)
    return (start - _SIGN, end - _SIGN), at + _WINDOW.size


def time_bytes(time: int) -> bytes:
    """A time."""
    return _U64.pack(time + _SIGN)


def time_at(row: bytes, at: int) -> int:
    """The time that begins at ``at``."""
    return int(_U64.unpack_from(row, at)[0]) - _SIGN


sequence_bytes = _U64.pack


# --- row values -------------------------------------------------------------------------------


def element(
    packed: bytes, last_access: int | None = None, ttl: int | None = None, map_key: bytes | None = None
) -> bytes:
    """A row value.

    >>> element(b"v"), element(b"v", map_key=b"k")
    (b'\\x00v', b'\\x04\\x00\\x00\\x00\\x01kv')
    """
    if last_access is None and ttl is None and map_key is None:
        return b"\0" + packed
    flags, parts = 0, [b""]
    if last_access is not None:
        flags |= HAS_ACCESS
        parts.append(time_bytes(last_access))
    if ttl is not None:
        flags |= HAS_TTL
        parts.append(time_bytes(ttl))
    if map_key is not None:
        flags |= HAS_MAP_KEY
        parts += [_U32.pack(len(map_key)), map_key]
    parts[0] = bytes((flags,))
    return b"".join(parts) + packed


def stamp(row_value: bytes) -> tuple[int | None, int | None, int]:
    """Last access and time to live of an element, and where the rest begins."""
    flags, at, last_access, ttl = row_value[0], 1, None, None
    if flags & HAS_ACCESS:
        last_access = time_at(row_value, at)
        at += 8
    if flags & HAS_TTL:
        ttl = time_at(row_value, at)
        at += 8
    return last_access, ttl, at


def packed_map_key(row_value: bytes, at: int) -> tuple[bytes | None, int]:
    """The packed map key of an element, if it stands there, and where the packed value begins."""
    if not row_value[0] & HAS_MAP_KEY:
        return None, at
    (length,) = _U32.unpack_from(row_value, at)
    at += 4
    return row_value[at : at + length], at + length


def packed_value(row_value: bytes) -> bytes:
    """The packed value of an element, whatever stands before it."""
    if not row_value[0]:
        return row_value[1:]
    return row_value[packed_map_key(row_value, stamp(row_value)[2])[1] :]


def heads(rows: Iterable[tuple[bytes, bytes]], with_window: bool) -> Iterator[bytes]:
    """The places of the keys that rows belong to, once each; or once for each of their windows."""
    before = b""
    for row, _ in rows:
        end = place_end(row)
        head = row[: window_at(row, end)[1]] if with_window else row[:end]
        if head != before:
            before = head
            yield row[2:end]
