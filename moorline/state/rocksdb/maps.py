"""A map per key in RocksDB: each entry is a row, so an access touches one entry, however large the map.

The row is found by the map key's encoding of ``model/keys/encoding.py``, where Python's equal keys are equal too. A key
that cannot be read back from it as it was (``True`` becomes 1, an Enum member needs its class) is stored packed beside
its value as well. Keys that have no such encoding (a timedelta, a frozenset, None) are found by their packed form,
behind a tag of their own.

Entries that were asked for or changed stay in a cache until there is no room. An iteration first writes what the map
has pending, and then reads the rows as they are at that moment: it may be lazy, and the map may change meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any

import rocksdict

from moorline.api.state.descriptors import MapStateDescriptor
from moorline.api.state.states import MapState
from moorline.model import keys
from moorline.model.durations import Duration
from moorline.state.backend import CurrentKey
from moorline.state.rocksdb.cells import MISS, WEIGHED, Room
from moorline.state.rocksdb.layout import HAS_MAP_KEY, after, element, packed_map_key, packed_value, stamp
from moorline.state.rocksdb.lists import remove_rows
from moorline.state.rocksdb.states import refuse_ttl
from moorline.state.rocksdb.store import Store, new_batch
from moorline.state.types.annotations import StoredType, to_bytes

#: Types whose encoding says everything.
_INT64 = 1 << 63
_EXACT: dict[str, type] = {"int": int, "str": str, "bytes": bytes}


class MapKeys:
    """The codec of one map state's keys, as they stand in its rows."""

    def __init__(self, key_type: StoredType, state: str) -> None:
        self._type, self._state = key_type, state
        #: The Python type of a key that can be read back from its row key alone; None: the row has the key as well.
        self._exact = _EXACT.get(key_type.name)

    def row(self, key: Any) -> bytes:
        """The ending of a map key's row."""
        if self._exact is not None and (type(key) is not self._exact or not self._fits(key)):
            key = self._type.unpack(to_bytes(self._type, key, self._state))
        try:
            return keys.encode_map_key(key)
        except (keys.NotAKey, RecursionError):
            if isinstance(key, Decimal) and key.is_finite():
                return _decimal(key)
            return b"~" + to_bytes(self._type, key, self._state)

    def _fits(self, key: Any) -> bool:
        return self._exact is not int or -_INT64 <= key < _INT64

    def beside(self, key: Any) -> bytes | None:
        """The packed map key, if it is to be stored beside its value."""
        return None if self._exact is not None else to_bytes(self._type, key, self._state)

    def read(self, ending: bytes, row_value: bytes) -> Any:
        """The map key of a row."""
        if row_value[0] & HAS_MAP_KEY:
            packed, _ = packed_map_key(row_value, stamp(row_value)[2])
            assert packed is not None
            return self._type.unpack(packed)
        return keys.decode(ending)


def _decimal(number: Decimal) -> bytes:
    """The same for 1.5 and 1.50, which are equal, and for the float 1.5."""
    if float(number) == number:
        return keys.encode(float(number))
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    short = text.rstrip("0")
    return b"~" + f"{'-' if sign else ''}{short}e{exponent + len(text) - len(short)}".encode()


def map_codec(value: StoredType, state: str, is_stamped: bool) -> tuple[Callable[[Any, bytes | None], bytes], Any]:
    """To a row value and back, with the packed map key if it is to stand there."""
    unpack = value.unpack

    def encode(thing: Any, map_key: bytes | None) -> bytes:
        return element(to_bytes(value, thing, state), None, None, map_key)

    def decode(row: bytes) -> Any:
        return unpack(row[1:] if not row[0] else packed_value(row))

    def encode_stamped(thing: Any, map_key: bytes | None) -> bytes:
        return element(to_bytes(value, thing[0], state), thing[1], thing[2], map_key)

    def decode_stamped(row: bytes) -> Any:
        last_access, ttl, _ = stamp(row)
        return unpack(packed_value(row)), last_access, ttl

    return (encode_stamped, decode_stamped) if is_stamped else (encode, decode)


class _Entries:
    """The part of one key's map that is known."""

    __slots__ = ("cells", "dirty", "is_cleared")

    def __init__(self) -> None:
        #: By map key: the value if its type is immutable, else its row value; None: there is no such entry.
        self.cells: dict[Any, Any] = {}
        self.dirty: set[Any] = set()
        #: Are the written rows to be removed first?
        self.is_cleared = False


class Present:
    """A value that is known to be there, since it may be None itself."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Maps:
    """The rows of one map state."""

    def __init__(
        self,
        store: Store,
        prefix_of: Callable[[Any], bytes],
        map_keys: MapKeys,
        codec: tuple[Callable[[Any, bytes | None], bytes], Callable[[bytes], Any]],
        room: Room,
        *,
        is_immutable: bool,
    ) -> None:
        self._store, self._prefix_of, self._map_keys, self._room = store, prefix_of, map_keys, room
        self._encode, self._decode = codec
        self._is_live = is_immutable
        self._entries: dict[Any, _Entries] = {}
        self._dirty: set[Any] = set()
        self._puts = 0

    def _of(self, key: Any) -> _Entries:
        entries = self._entries.get(key)
        if entries is None:
            entries = self._entries[key] = _Entries()
        return entries

    # --- one entry ------------------------------------------------------------------------------

    def find(self, key: Any, map_key: Any, default: Any) -> Any:
        entries = self._of(key)
        cell = entries.cells.get(map_key, MISS)
        if cell is MISS:
            cell = self._load(entries, key, map_key)
        if cell is None:
            return default
        return cell.value if self._is_live else self._decode(cell)

    def contains(self, key: Any, map_key: Any) -> bool:
        entries = self._of(key)
        cell = entries.cells.get(map_key, MISS)
        return (self._load(entries, key, map_key) if cell is MISS else cell) is not None

    def put(self, key: Any, map_key: Any, value: Any) -> None:
        entries = self._of(key)
        self._puts += 1
        # A value that is kept as it is is encoded only to weigh it, one for many.
        row = None if self._is_live and self._puts % WEIGHED else self._encode(value, self._map_keys.beside(map_key))
        is_new = map_key not in entries.cells
        entries.cells[map_key] = Present(value) if self._is_live else row
        entries.dirty.add(map_key)
        self._dirty.add(key)
        self._room.take(len(row or b"") * (WEIGHED if self._is_live else 1), int(is_new))

    def remove(self, key: Any, map_key: Any) -> None:
        entries = self._of(key)
        if entries.cells.get(map_key, MISS) is None and map_key not in entries.dirty:
            return
        entries.cells[map_key] = None
        entries.dirty.add(map_key)
        self._dirty.add(key)
        self._room.take(0)

    def _load(self, entries: _Entries, key: Any, map_key: Any) -> Any:
        row = None if entries.is_cleared else self._store.get(self._prefix_of(key) + self._map_keys.row(map_key))
        cell = Present(self._decode(row)) if row is not None and self._is_live else row
        entries.cells[map_key] = cell
        self._room.take(0 if row is None else len(row))
        return cell

    # --- all entries ----------------------------------------------------------------------------

    def clear(self, key: Any) -> None:
        entries = self._of(key)
        entries.cells.clear()
        entries.dirty.clear()
        entries.is_cleared = True
        self._dirty.add(key)

    def rows(self, key: Any) -> Iterator[tuple[bytes, bytes]]:
        """The endings and values of the rows, as they are now."""
        if key in self._dirty:
            batch = new_batch()
            self._write_key(batch, key)
            self._store.write(batch)
            self._dirty.discard(key)
        prefix = self._prefix_of(key)
        cut = len(prefix)
        rows = self._store.scan(prefix, after(prefix))
        return ((row[cut:], value) for row, value in rows)

    def keys(self, key: Any) -> Iterator[Any]:
        read = self._map_keys.read
        return (read(ending, value) for ending, value in self.rows(key))

    def values(self, key: Any) -> Iterator[Any]:
        decode = self._decode
        return (decode(value) for _, value in self.rows(key))

    def items(self, key: Any) -> Iterator[tuple[Any, Any]]:
        read, decode = self._map_keys.read, self._decode
        return ((read(ending, value), decode(value)) for ending, value in self.rows(key))

    def is_empty(self, key: Any) -> bool:
        entries = self._of(key)
        if any(cell is not None for cell in entries.cells.values()):
            return False
        return next(self.rows(key), None) is None

    # --- batches --------------------------------------------------------------------------------

    def _write_key(self, batch: rocksdict.WriteBatch, key: Any) -> None:
        prefix, entries = self._prefix_of(key), self._entries[key]
        if entries.is_cleared:
            entries.is_cleared = False
            remove_rows(self._store, batch, prefix)
        map_keys, cells = self._map_keys, entries.cells
        for map_key in entries.dirty:
            row, cell = prefix + map_keys.row(map_key), cells[map_key]
            if cell is None:
                batch.delete(row)
            else:
                batch[row] = self._encode(cell.value, map_keys.beside(map_key)) if self._is_live else cell
        entries.dirty.clear()

    def write_into(self, batch: rocksdict.WriteBatch) -> None:
        """Add what has changed to a batch of writes."""
        for key in self._dirty:
            self._write_key(batch, key)
        self._dirty.clear()

    def flushed(self) -> None:
        """The batch is over."""

    def shrink(self) -> None:
        """There is no room any more. Everything has been written."""
        self._entries.clear()

    forget = shrink


class RocksDbMapState(MapState[Any, Any]):
    """A map per key. What is iterated is the map as it is at the call; it may change meanwhile."""

    def __init__(self, descriptor: MapStateDescriptor, maps: Maps, current: CurrentKey) -> None:
        super().__init__(descriptor.key_type, descriptor.type, name=descriptor.name)
        self._maps, self._current = maps, current

    def get(self, key: Any, default: Any = None) -> Any:
        return self._maps.find(self._current.key, key, default)

    def put(self, key: Any, value: Any, *, ttl: Duration | None = None) -> None:
        if ttl is not None:
            refuse_ttl(self, ttl)
        self._maps.put(self._current.key, key, value)

    def put_all(self, entries: dict[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        for key, value in dict(entries).items():
            self.put(key, value)

    def contains(self, key: Any) -> bool:
        return self._maps.contains(self._current.key, key)

    def remove(self, key: Any) -> None:
        self._maps.remove(self._current.key, key)

    def keys(self) -> Iterator[Any]:
        return self._maps.keys(self._current.key)

    def values(self) -> Iterator[Any]:
        return self._maps.values(self._current.key)

    def items(self) -> Iterator[tuple[Any, Any]]:
        return self._maps.items(self._current.key)

    def is_empty(self) -> bool:
        return self._maps.is_empty(self._current.key)

    def __len__(self) -> int:
        return sum(1 for _ in self._maps.rows(self._current.key))

    def clear(self) -> None:
        self._maps.clear(self._current.key)
