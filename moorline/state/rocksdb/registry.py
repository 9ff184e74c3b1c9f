"""The registry of a database: its states and their numbers, its key groups, how far lists have counted.

It lies in the meta rows (number 0, ``state/rocksdb/layout.py``), so it travels with the files of a checkpoint, and
says what is in them.
"""

from __future__ import annotations

import msgspec

from moorline.errors import InvalidArgument, SnapshotCorrupt
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import StoredState
from moorline.model.type_tree.stored import Stored, state_type
from moorline.model.type_tree.tree import StateType
from moorline.state.forms import TIMERS_KIND, described
from moorline.state.rocksdb.layout import LAYOUT, MAX_NUMBER, number_bytes
from moorline.state.rocksdb.store import Store, new_batch

_META = number_bytes(0)
_STATE, _ABOUT = _META + b"s", _META + b"a"


class Entry(msgspec.Struct, frozen=True):
    """One state. The timers of a kind take the next number as well, for their rows under the time."""

    number: int
    #: value, list, map, reducing, aggregating or timers
    kind: str
    type: StateType
    is_windowed: bool = False
    #: Has it a time to live?
    is_stamped: bool = False
    #: Has it ever had one, so that rows may be stamped? They say so for themselves.
    has_stamps: bool = False

    @property
    def is_timers(self) -> bool:
        return self.kind == TIMERS_KIND

    @property
    def numbers(self) -> range:
        return range(self.number, self.number + (2 if self.is_timers else 1))

    def is_like(self, other: Entry) -> bool:
        """Are the rows of both alike?"""
        mine, others = (self.kind, self.type, self.is_windowed), (other.kind, other.type, other.is_windowed)
        return mine == others

    def __str__(self) -> str:
        return described(self.kind, self.type, self.is_windowed)


class _StoredEntry(Entry, frozen=True):
    """As it stands in a row: those of storage formats 2 and 3 have the type as text."""

    type: Stored  # type: ignore[assignment]


class About(msgspec.Struct, frozen=True):
    """The database as a whole."""

    layout: int
    #: The key groups ``[first,end)`` of which there can be rows.
    first: int
    end: int
    #: The last sequence number that an element of a list has.
    sequence: int = 0


class Registry:
    """The states of one open database."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.entries: dict[str, Entry] = {}
        self.about: About | None = None
        try:
            for row, value in store.scan(_META, number_bytes(1)):
                if row.startswith(_STATE):
                    self.entries[row[len(_STATE) :].decode()] = _decoded(value)
                elif row == _ABOUT:
                    self.about = msgspec.msgpack.decode(value, type=About)
        except (ValueError, RecursionError) as error:  # msgspec's and Unicode's errors are values'
            raise SnapshotCorrupt(str(store.folder), f"its meta rows cannot be read: {error}") from error

    def check(self) -> About:
        """Of a database that was restored. Raises :class:`SnapshotCorrupt` if it is not one of ours."""
        about = self.about
        if about is None or about.layout != LAYOUT:
            layout = "none" if about is None else about.layout
            cause = f"its layout is {layout}, and this version reads layout {LAYOUT}"
            raise SnapshotCorrupt(str(self._store.folder), cause)
        taken = [n for entry in self.entries.values() for n in entry.numbers]
        if len(set(taken)) < len(taken) or any(not 0 < n <= MAX_NUMBER for n in taken):
            raise SnapshotCorrupt(str(self._store.folder), "the numbers of its states are in disorder")
        return about

    def add(self, name: str, kind: str, stored_type: StateType, is_windowed: bool) -> Entry:
        """A new state, with the next free number."""
        number = max((e.numbers.stop for e in self.entries.values()), default=1)
        if number + 1 > MAX_NUMBER:
            raise InvalidArgument(f"state {name!r}", f"number {number}", "An operator has 65,000 states at most.")
        entry = Entry(number, kind, stored_type, is_windowed)
        self.put(name, entry)
        return entry

    def put(self, name: str, entry: Entry) -> None:
        batch = new_batch()
        batch[_STATE + name.encode()] = msgspec.msgpack.encode(entry)
        self._store.write(batch)
        self.entries[name] = entry

    def drop(self, name: str) -> None:
        """Remove a state with all its rows."""
        entry = self.entries.pop(name)
        batch = new_batch()
        batch.delete(_STATE + name.encode())
        for number in entry.numbers:
            batch.delete_range(number_bytes(number), number_bytes(number + 1))
        self._store.write(batch)

    def describe(self, key_groups: KeyGroupRange, sequence: int) -> None:
        about = About(LAYOUT, key_groups.first, key_groups.end, sequence)
        if about != self.about:
            batch = new_batch()
            batch[_ABOUT] = msgspec.msgpack.encode(about)
            self._store.write(batch)
            self.about = about

    def states(self) -> tuple[StoredState, ...]:
        """Name, kind and type of every state."""
        return tuple(StoredState(name, e.kind, e.type) for name, e in self.entries.items())


def _decoded(data: bytes) -> Entry:
    stored = msgspec.msgpack.decode(data, type=_StoredEntry)
    return Entry(**msgspec.structs.asdict(stored) | {"type": state_type(stored.kind, stored.type)})
