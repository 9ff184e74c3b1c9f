"""One value per key in RocksDB, behind a write-back cache: value, reducing and aggregating state.

An access works on the cache, a dict like that of the heap backend. What a batch has changed is written when it has
been processed, in one write (``flush``); what it will need is read before it, in one read (``prefetch``). After that
values stay in the cache while there is room: reading a row costs some microseconds, a dict a tenth of one.

    read ahead   rows of the keys of this batch, as bytes. Decoded when it is asked for, forgotten with the batch.
                 In the order of their keys, as they are written: RocksDB then goes on where it is
    cache        what has been asked for or changed. A value of an immutable type as it is; any other as the bytes of
                 its row, so that no user code can change it in place: what was read is a copy until it is written back
    old          what was in the cache before it was last full. What is asked for again goes back into the cache

Room is taken for an entry when it comes into the cache, and again only for what it grows by: a key that is written in
every batch takes no more than one that is read once.

Reading ahead pays only if the values are asked for. A state of which less than a quarter was is left out for a while,
or until it turns out that it was wanted after all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import rocksdict

from moorline.state.backend import CurrentKey
from moorline.state.rocksdb.layout import (
    element,
    int_places,
    number_bytes,
    packed_value,
    place,
    stamp,
    str_places,
    window_bytes,
)
from moorline.state.rocksdb.store import Store
from moorline.state.types.annotations import StoredType, to_bytes

MISS: Any = object()
#: The memory of an entry of a cache beside the bytes of its row, and how many times larger those are as objects.
ENTRY_BYTES, GROWTH = 200, 3
#: Rows up to this size count as this large. The sizes of larger ones are known for each.
SMALL = 32
#: Batches for which a state is not read ahead after it was of no use.
LEFT_OUT = 100
#: Room is taken for so many small entries at once, and one in so many changed values is weighed for all of them:
#: encoding each just for its size would cost too much.
WEIGHED = 32
#: Rows that are read ahead at first, while nothing is known of their size.
FIRST_ROWS = 64

Codec = tuple[Callable[[Any], bytes], Callable[[bytes], Any]]


class Places(dict[Any, bytes]):
    """Key group and encoded key of each key, remembered for a while: each state of a key needs it, twice."""

    def __init__(self, max_parallelism: int) -> None:
        super().__init__()
        self.max_parallelism = max_parallelism

    def prepare(self, prefetched: Iterable[Any]) -> None:
        """Have the places of many keys ready. Those of ints and texts are made in one go."""
        new = [key for key in prefetched if key not in self]
        kinds = set(map(type, new))
        with suppress(OverflowError, UnicodeEncodeError):  # then one by one, which says what is wrong
            if kinds == {int}:
                self.update(zip(new, int_places(new, self.max_parallelism)))
            elif kinds == {str}:
                self.update(zip(new, str_places(new, self.max_parallelism)))

    def __missing__(self, key: Any) -> bytes:
        made = self[key] = place(key, self.max_parallelism)
        return made


class Room:
    """The budget of one backend's caches, in bytes, as an estimate.

    At the end of a batch they are emptied if there is more than :attr:`limit`; in a batch, at twice as much. What is
    read ahead for a batch comes on top, and is not more than :attr:`limit` either.
    """

    def __init__(self, limit: int, relieve: Callable[[], None]) -> None:
        self.limit, self.taken, self.relieve = limit, 0, relieve

    def take(self, row_bytes: int, entries: int = 1) -> None:
        """Entries are kept from now on, with rows of so many bytes. Call this last: it may empty the caches."""
        self.taken += ENTRY_BYTES * entries + GROWTH * row_bytes
        if self.taken > 2 * self.limit:
            self.relieve()


def row_prefix(number: int, places: Places, is_windowed: bool) -> Callable[[Any], bytes]:
    """A function from the current key to the beginning of its rows."""
    start = number_bytes(number)
    if is_windowed:
        return lambda key: start + places[key[0]] + window_bytes(key[1])
    return lambda key: start + places[key]


def row_prefixes(number: int, places: Places, is_windowed: bool) -> Callable[[Iterable[Any]], list[bytes]]:
    """The same for many keys."""
    start = number_bytes(number)
    if is_windowed:
        return lambda keys: [start + places[key] + window_bytes(window) for key, window in keys]
    return lambda keys: [start + places[key] for key in keys]


def codec_of(value: StoredType, state: str, is_stamped: bool) -> Codec:
    """To a row value and back. Elements of a state with a time to live are (value, last access, own length)."""
    pack, unpack = value.pack, value.unpack

    def encode(thing: Any) -> bytes:
        try:
            return b"\0" + pack(thing)
        except Exception:
            to_bytes(value, thing, state)  # says what does not fit
            raise

    def decode(row: bytes) -> Any:
        return unpack(row[1:] if not row[0] else packed_value(row))

    def encode_stamped(thing: Any) -> bytes:
        return element(to_bytes(value, thing[0], state), thing[1], thing[2])

    def decode_stamped(row: bytes) -> Any:
        last_access, ttl, _ = stamp(row)
        return unpack(packed_value(row)), last_access, ttl

    return (encode_stamped, decode_stamped) if is_stamped else (encode, decode)


class ReadAhead:
    """The rows of one state that are read before they are asked for, and whether it pays to read them."""

    def __init__(self, store: Store, rows_of: Callable[[Iterable[Any]], list[bytes]]) -> None:
        self._store, self._rows_of = store, rows_of
        #: Those of this batch that were not asked for yet; None: there is no such row.
        self.rows: dict[Any, bytes | None] = {}
        self._read = 0
        #: How many of those that were read have been asked for.
        self.used = 0
        #: How many rows of this batch were not here, and were read singly.
        self.missed = 0
        #: For so many batches nothing is read ahead.
        self.left_out = 0
        #: The size of a row, as last read.
        self.row_bytes = 0

    def is_off(self) -> bool:
        """Say whether nothing is to be read for the batch that begins. Asked once for each batch."""
        if not self.left_out:
            return False
        self.left_out -= 1
        return True

    def read(self, keys: list[Any]) -> int:
        """Read the rows of keys that will be asked for. Returns how many bytes they have."""
        names = self._rows_of(keys)
        order = in_order(names)
        rows = self._store.multi_get([names[n] for n in order])
        self.rows.update(zip([keys[n] for n in order], rows))
        self._read += len(keys)
        sizes = [len(row) for row in rows if row is not None]
        size = sum(sizes)
        if sizes:
            self.row_bytes = size // len(sizes)
        return size

    def end_batch(self) -> None:
        """Forget the rows, and judge from time to time whether they were of use."""
        self.rows.clear()
        if self.left_out and self.missed >= 100:
            self.left_out = 0  # it would have been of use
        if self._read >= 1000:
            if self.used * 4 < self._read:
                self.left_out = LEFT_OUT
            self._read = self.used = 0
        self.missed = 0


def in_order(rows: list[bytes]) -> list[int]:
    """The places of some row keys in the order in which RocksDB has them."""
    return sorted(range(len(rows)), key=rows.__getitem__)


class Cells:
    """The rows of one state with one value per key. ``rows_of`` gives the row keys of some keys."""

    def __init__(
        self,
        store: Store,
        rows_of: Callable[[Iterable[Any]], list[bytes]],
        codec: Codec,
        room: Room,
        *,
        is_immutable: bool,
    ) -> None:
        self._store, self._rows_of, self._room = store, rows_of, room
        self._encode, self._decode = codec
        self._is_live = is_immutable
        #: None: there is no value.
        self.cache: dict[Any, Any] = {}
        self.dirty: set[Any] = set()
        self._old: dict[Any, Any] = {}
        #: For how many entries of the cache room was taken, and the sizes of the rows that are not small; and old ones.
        self._counted = 0
        self._large: dict[Any, int] = {}
        self._old_large: dict[Any, int] = {}
        self.ahead = ReadAhead(store, rows_of)
        #: With one more changed value than this, one is weighed; and the bytes that those not written have grown by.
        self.weigh_at, self._weighed = WEIGHED, 0
        #: The size of a row, as last written.
        self._written_bytes = 0

    # --- access ---------------------------------------------------------------------------------

    def read(self, key: Any) -> Any:
        """The value, or None: the very object if it is immutable, else a copy."""
        cached = self.cache.get(key, MISS)
        if cached is MISS:
            cached = self._load(key)
        if cached is None or self._is_live:
            return cached
        return self._decode(cached)

    def write(self, key: Any, value: Any) -> None:
        """Replace the value; None removes it."""
        if value is None:
            # Windows clear what they never had: no row, and no mark of a removed one, comes of it.
            if self.cache.get(key, MISS) is None and key not in self.dirty:
                return
        elif not self._is_live:
            value = self._encode(value)
        self.cache[key] = value
        self.dirty.add(key)
        if len(self.dirty) > self.weigh_at:
            self.weigh(key, value)

    def weigh(self, key: Any, value: Any) -> None:
        """Many values have changed since this was last called: take room for them, each grown as much as ``value``.

        Call this last, as :meth:`Room.take`.
        """
        self.weigh_at = len(self.dirty) + WEIGHED
        row = self._encode(value) if self._is_live and value is not None else value
        grown = WEIGHED * max(0, len(row or b"") - self._large.get(key, SMALL))
        self._weighed += grown
        self._take(grown)

    def _grown(self, key: Any, row_bytes: int) -> int:
        """The bytes that a row has grown by, since it was last read or written. It may have shrunk."""
        before = self._large.get(key, SMALL)
        if row_bytes > SMALL:
            self._large[key] = row_bytes
        else:
            self._large.pop(key, None)
        return max(row_bytes, SMALL) - before

    def _take(self, grown: int) -> None:
        """Take room for the entries that are new in the cache, and what others have grown by. Call this last."""
        new, self._counted = len(self.cache) - self._counted, len(self.cache)
        self._room.take(SMALL * new + grown, new)

    def _load(self, key: Any) -> Any:
        """The content of the cache for a key that is not in it yet."""
        if key in self._old:
            cached, row_bytes = self._old.pop(key), self._old_large.pop(key, 0)
        else:
            row = self._row(key)
            cached, row_bytes = row if row is None or not self._is_live else self._decode(row), len(row or b"")
        self.cache[key] = cached
        if row_bytes > SMALL:
            self._take(self._grown(key, row_bytes))
        elif len(self.cache) - self._counted >= WEIGHED:
            self._take(0)
        return cached

    def _row(self, key: Any) -> bytes | None:
        ahead = self.ahead
        row: bytes | None = ahead.rows.pop(key, MISS)
        if row is not MISS:
            ahead.used += 1
            return row
        ahead.missed += 1
        return self._store.get(self._rows_of((key,))[0])

    # --- batches --------------------------------------------------------------------------------

    def wanted(self, prefetched: Iterable[Any]) -> list[Any]:
        """The keys whose rows are to be read ahead."""
        if self.ahead.is_off():
            return []
        cache, old, ahead = self.cache, self._old, self.ahead.rows
        return [k for k in prefetched if k not in cache and k not in old and k not in ahead]

    def fitting(self, row_bytes: int) -> int:
        """The number of rows to read ahead at once if they are to have about so many bytes: one at least."""
        each = max(self.ahead.row_bytes, self._written_bytes)
        return max(1, row_bytes // each) if each else FIRST_ROWS

    def write_into(self, batch: rocksdict.WriteBatch) -> None:
        """Add what has changed to a batch of writes."""
        keys, cache, encode, size, grown = list(self.dirty), self.cache, self._encode, 0, 0
        rows = self._rows_of(keys)
        for n in in_order(rows):
            value = cache[keys[n]]
            if value is None:
                row = b""
                batch.delete(rows[n])
            else:
                row = encode(value) if self._is_live else value
                batch[rows[n]] = row
            size += len(row)
            if len(row) > SMALL or self._large:
                grown += self._grown(keys[n], len(row))
        if keys:
            self._written_bytes = size // len(keys)
        # Not by _take: this runs when there is no room, too.
        new, self._counted = len(cache) - self._counted, len(cache)
        self._room.taken += (ENTRY_BYTES + GROWTH * SMALL) * new + GROWTH * (grown - self._weighed)
        self.weigh_at, self._weighed = WEIGHED, 0
        self.dirty.clear()

    def flushed(self) -> None:
        """The batch is over."""
        self.ahead.end_batch()

    def shrink(self) -> None:
        """There is no room any more. Everything has been written."""
        self._old, self._old_large = self.cache.copy(), self._large
        self.cache.clear()  # not a new one: states hold on to it
        self._counted, self._large = 0, {}
        self.ahead.rows.clear()  # read before the last writes

    def forget(self) -> None:
        """The rows have been changed by others. Everything has been written."""
        self.shrink()
        self._old, self._old_large = {}, {}


def value_accessors(cells: Cells, current: CurrentKey) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """Functions that read and write the current key's value."""
    read, write = cells.read, cells.write
    cache, dirty, load = cells.cache, cells.dirty, cells._load

    def get_live() -> Any:
        cached = cache.get(current.key, MISS)
        return load(current.key) if cached is MISS else cached

    def put_live(value: Any) -> None:
        key = current.key
        if value is None:
            return write(key, None)
        cache[key] = value
        dirty.add(key)
        if len(dirty) > cells.weigh_at:
            cells.weigh(key, value)

    def get() -> Any:
        return read(current.key)

    def put(value: Any) -> None:
        write(current.key, value)

    return (get_live, put_live) if cells._is_live else (get, put)
