"""The explanation of a snapshot's state: figures per operator, state, key group and key.

``bytes`` are those of keys and values unpacked, as columns: what a state has to say. ``stored`` are those of its files,
packed, and with what increments have replaced. Neither is what Python's objects take in the memory of a worker on the
heap, which is several times as much.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from moorline.model.options import checks_options


@checks_options()
@dataclass(frozen=True)
class KeySize:
    """One key of a state, and the size of its values, in all of its windows.

    >>> KeySize("ada", b"sada", key_group=3, rows=2, bytes=48).rows
    2
    """

    #: The key; its encoding, if only the job knows its class.
    key: Any
    encoded: bytes
    key_group: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class GroupSize:
    """One key group of a state."""

    key_group: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class Expired:
    """The part of a state that a time to live would remove now."""

    rows: int
    bytes: int
    #: Rows without a stamp or a length: how long they live is not known from here.
    undated: int
    #: The time that was taken for now, in milliseconds.
    now_ms: int


@checks_options()
@dataclass(frozen=True)
class Growth:
    """The difference to the checkpoint before; negative if a state has shrunk."""

    rows: int
    keys: int
    bytes: int


@checks_options()
@dataclass(frozen=True)
class StateSize:
    """One state of one operator, over all of its subtasks."""

    uid: str
    state: str
    #: keyed, timers, raw, operator, broadcast, in_flight: as in ``snapshots/tables/catalog.py``.
    table: str
    kind: str
    type: str
    #: Values, elements, entries or timers; what increments have replaced is not counted.
    rows: int
    bytes: int
    #: The number of keys; 0 for a state without a key.
    keys: int = 0
    #: The bytes of its files; None if the files are shared with other states, as those of RocksDB are.
    stored: int | None = None
    #: Of these, what was written for this checkpoint and not for an earlier one.
    written: int | None = None
    #: Rows in files that increments have replaced or removed.
    replaced: int = 0
    #: Those that have something, by their number.
    key_groups: tuple[GroupSize, ...] = field(default=(), repr=False)
    #: The largest first.
    largest: tuple[KeySize, ...] = ()
    expired: Expired | None = None
    #: Since the earlier snapshot, if there is one to compare with.
    growth: Growth | None = None


@checks_options()
@dataclass(frozen=True)
class KeyRate:
    """One of the keys that get the most records of an operator now, as a sample shows.

    >>> KeyRate("ada", b"sada", share=0.25, records_per_second=500.0).key
    'ada'
    """

    #: The key; what stands for it, if only the job knows its class.
    key: Any
    encoded: bytes
    #: Of all records with a key that the operator gets.
    share: float
    records_per_second: float


@checks_options()
@dataclass(frozen=True)
class OperatorSize:
    """One operator: all of its states together.

    >>> OperatorSize("count", "Count", 2, rows=3, bytes=40, stored=900).bytes
    40
    """

    uid: str
    name: str
    parallelism: int
    rows: int
    bytes: int
    #: The bytes of all its files.
    stored: int
    #: The keys that get the most records, of a job that runs; a snapshot does not know them.
    hottest: tuple[KeyRate, ...] = ()


@checks_options()
@dataclass(frozen=True)
class Explanation:
    """The answer to: why is the state so large? From ``handle.explain()`` or :func:`moorline.explain_snapshot`.

    >>> Explanation("orders", 7, "file:///chk/orders", 0, 900, (), ()).checkpoint
    7
    """

    job: str
    checkpoint: int
    url: str
    created_ms: int
    #: The bytes of all files that the snapshot names.
    stored: int
    operators: tuple[OperatorSize, ...]
    #: The largest first.
    states: tuple[StateSize, ...]
    #: The checkpoint that growth is counted from; None if there is none any more.
    since: int | None = None
    since_ms: int | None = None
    #: The bytes of all files of that one.
    since_stored: int | None = None

    def state(self, uid: str, state: str) -> StateSize:
        """One of the states. Raises ``KeyError`` if there is nothing in it."""
        for found in self.states:
            if (found.uid, found.state) == (uid, state):
                return found
        raise KeyError(f"{uid} {state}")

    def __str__(self) -> str:
        lines = [f"checkpoint {self.checkpoint} of job {self.job}: {self.stored:,} bytes stored"]
        for s in self.states:
            line = f"  {s.uid} {s.state}: {s.bytes:,} bytes in {s.rows:,} rows"
            line += f" of {s.keys:,} keys" if s.keys else ""
            line += f", {s.growth.bytes:+,} bytes since checkpoint {self.since}" if s.growth else ""
            line += f", a time to live would remove {s.expired.bytes:,}" if s.expired else ""
            line += f"; the largest key {s.largest[0].key!r:.60} has {s.largest[0].bytes:,}" if s.largest else ""
            lines.append(line)
        return "\n".join(lines)
