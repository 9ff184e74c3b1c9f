"""Any table of a snapshot, by name: what ``mo.read_snapshot`` and Spark's data source both ask.

    table       columns
    metadata    one row per state: see ``snapshots/tables/catalog.py``
    keyed       key_group  key  [namespace]  [map_key]  value  [last_access  ttl]
    windows     key_group  key  window_start  window_end  [map_key]  value  [last_access  ttl]
    timers      time_domain  key_group  key  window_start  window_end  time
    operator    subtask  position  value
    broadcast   map_key  value
    raw         key_group  subtask  value

Files are verified before a byte of them is interpreted, and nothing is ever unpickled. Memory is bounded by the size
of a file, whatever the size of the state.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from operator import or_

import pyarrow as pa
import pyarrow.compute as pc

from moorline.errors import InvalidArgument
from moorline.model.key_groups import KeyGroupRange
from moorline.model.manifest import KeyedHandle, Manifest, OperatorEntry
from moorline.snapshots.folders import open_snapshot
from moorline.snapshots.rows import Scratch
from moorline.snapshots.tables import elements, in_flight
from moorline.snapshots.tables.catalog import (
    METADATA,
    RAW_ELEMENTS,
    StateInfo,
    key_groups_of,
    metadata_table,
    states_of,
)
from moorline.snapshots.tables.chains import Chain, Shape, chain_rows, columns_of, shape_of
from moorline.storage.blobs import BlobStore

TABLES = ("metadata", "keyed", "windows", "timers", "operator", "broadcast", "raw", "in_flight")
#: Those whose rows belong to key groups.
BY_KEY_GROUP = ("keyed", "windows", "timers", "raw")
#: How the states of timers begin.
TIMERS = "timers:"

_WINDOW = [("window_start", pa.int64()), ("window_end", pa.int64())]
_RAW = pa.schema([("key_group", pa.int32()), ("subtask", pa.int32()), ("value", pa.large_binary())])


class SnapshotReader:
    """The tables of one snapshot.

    >>> import moorline as mo
    >>> from moorline.testing import OperatorHarness
    >>> class Count(mo.KeyedProcessFunction):
    ...     seen = mo.ValueState(int, default=0)
    ...     def process_element(self, value, ctx):
    ...         self.seen.update(self.seen.value() + 1)
    >>> harness = OperatorHarness(Count(), key=lambda word: word, uid="count")
    >>> _ = harness.process_all(["a", "b", "a"])
    >>> snapshot = harness.snapshot()
    >>> reader = SnapshotReader(snapshot.manifest, snapshot.store)
    >>> [table.select(["key", "value"]).to_pylist() for table in reader.keyed("count", "seen")]
    [[{'key': 'b', 'value': 1}, {'key': 'a', 'value': 2}]]
    """

    def __init__(self, manifest: Manifest, store: BlobStore) -> None:
        self.manifest, self.store = manifest, store
        self._scratch = Scratch()
        self._shapes: dict[tuple[str, str], Shape] = {}

    @classmethod
    def open(cls, url: str, checkpoint: int | None = None) -> SnapshotReader:
        """The snapshot at a URL: a savepoint, or a job's newest checkpoint or the one that is named."""
        return cls(*open_snapshot(url, checkpoint))

    # --- which tables there are -----------------------------------------------------------------

    @property
    def states(self) -> list[StateInfo]:
        """Every state, from the manifest alone."""
        return states_of(self.manifest)

    def operator(self, uid: str) -> OperatorEntry:
        """An operator's part of the manifest. Raises if there is none of that uid."""
        operator = next((o for o in self.manifest.operators if o.uid == uid), None)
        if operator is None:
            have = ", ".join(repr(o.uid) for o in self.manifest.operators) or "none"
            raise InvalidArgument("uid", uid, f"The snapshot has operators {have}.")
        key_groups_of(operator)
        return operator

    def chain(self, uid: str, state: str) -> Chain:
        """The handles of a keyed state, of timers or of raw keyed state."""
        operator = self.operator(uid)
        handles = [h for subtask in operator.subtasks for h in subtask.keyed if _has(h, state)]
        if not handles:
            raise self._no_state(uid, state, ("keyed", "timers", "raw"))
        return Chain(state, tuple(handles), operator.max_parallelism)

    def timer_states(self, uid: str) -> list[str]:
        """The states that hold timers of an operator."""
        self.operator(uid)
        return [i.state for i in self.states if i.uid == uid and i.table == "timers"]

    def _no_state(self, uid: str, state: str, tables: tuple[str, ...]) -> InvalidArgument:
        have = ", ".join(repr(i.state) for i in self.states if i.uid == uid and i.table in tables) or "none"
        return InvalidArgument("state", state, f"Of this kind ({', '.join(tables)}), operator {uid!r} has {have}.")

    # --- any of them ----------------------------------------------------------------------------

    def columns(self, table: str, uid: str = "", state: str = "") -> pa.Schema:
        """The columns of a table, as :meth:`read` gives them."""
        match table:
            case "metadata":
                return METADATA
            case "keyed":
                return self._columns(uid, state)
            case "windows":
                return pa.schema([f for field in self._columns(uid, state, True) for f in _unfolded(field)])
            case "timers":
                shape = self._timer_shape(uid)
                head = [("time_domain", pa.string()), ("key_group", pa.int32()), ("key", shape.key)]
                return pa.schema([*head, *_WINDOW, ("time", pa.int64())])
            case "operator":
                return elements.element_columns(*self._elements(uid, state, table))
            case "broadcast":
                return elements.broadcast_columns(*self._elements(uid, state, table))
            case "raw":
                self.operator(uid)
                return _RAW
            case "in_flight":
                self.operator(uid)
                return in_flight.COLUMNS
        raise InvalidArgument("table", table, f"It is one of {', '.join(TABLES)}.")

    def read(
        self, table: str, uid: str = "", state: str = "", key_groups: KeyGroupRange | None = None
    ) -> Iterator[pa.Table]:
        """The rows of a table, in tables of bounded size; those of some key groups, where rows belong to one."""
        match table:
            case "metadata":
                yield metadata_table(self.manifest)
            case "keyed":
                yield from self.keyed(uid, state, key_groups)
            case "windows":
                yield from self.windows(uid, state, key_groups)
            case "timers":
                yield from self.timers(uid, key_groups)
            case "operator":
                yield from elements.element_rows(*self._elements(uid, state, table), self.store)
            case "broadcast":
                yield from elements.broadcast_rows(*self._elements(uid, state, table), self.store)
            case "raw":
                yield from self.raw(uid, key_groups)
            case "in_flight":
                yield from in_flight.in_flight_rows(self.operator(uid), self.store)
            case _:
                raise InvalidArgument("table", table, f"It is one of {', '.join(TABLES)}.")

    # --- one by one -----------------------------------------------------------------------------

    def metadata(self) -> pa.Table:
        """One row per state."""
        return metadata_table(self.manifest)

    def keyed(self, uid: str, state: str, key_groups: KeyGroupRange | None = None) -> Iterator[pa.Table]:
        """The rows of a keyed state: what is left of its chain, in every backend's files."""
        chain = self.chain(uid, state)
        return chain_rows(chain, self._columns(uid, state), self.store, self._scratch, key_groups)

    def windows(
        self, uid: str, state: str = "window-contents", key_groups: KeyGroupRange | None = None
    ) -> Iterator[pa.Table]:
        """The rows of a state that is kept for each window, with the window's bounds as columns."""
        self._columns(uid, state, is_of_windows=True)
        for table in self.keyed(uid, state, key_groups):
            yield _with_bounds(table)

    def timers(self, uid: str, key_groups: KeyGroupRange | None = None) -> Iterator[pa.Table]:
        """All timers of an operator."""
        columns, shape = self.columns("timers", uid), self._timer_shape(uid)
        for state in self.timer_states(uid):
            chain = self.chain(uid, state)
            for table in chain_rows(chain, columns_of(chain, shape), self.store, self._scratch, key_groups):
                bounds = _with_bounds(table).rename_columns({"value": "time"})
                domain = pa.array([state.removeprefix(TIMERS)] * len(table), pa.string())
                yield bounds.append_column("time_domain", domain).select(columns.names).cast(columns)

    def operator_state(self, uid: str, state: str) -> Iterator[pa.Table]:
        """The elements of a list state that belongs to no key."""
        return self.read("operator", uid, state)

    def broadcast_state(self, uid: str, state: str) -> Iterator[pa.Table]:
        """The entries of a broadcast map."""
        return self.read("broadcast", uid, state)

    def raw(self, uid: str, key_groups: KeyGroupRange | None = None) -> Iterator[pa.Table]:
        """The bytes that a function wrote by itself: for key groups, or for subtasks."""
        operator = self.operator(uid)
        names = {i.state for i in self.states if i.uid == uid and i.table == "raw" and i.state != RAW_ELEMENTS}
        for state in sorted(names):
            for table in self.keyed(uid, state, key_groups):
                subtask = pa.nulls(len(table), pa.int32())
                yield pa.table([table["key_group"], subtask, table["value"].cast(pa.large_binary())], schema=_RAW)
        is_everything = key_groups is None or key_groups.first == 0
        if is_everything and any(h.state == RAW_ELEMENTS for s in operator.subtasks for h in s.elements):
            for table in elements.element_rows(operator, RAW_ELEMENTS, self.store):
                group = pa.nulls(len(table), pa.int32())
                yield pa.table([group, table["subtask"], table["value"].cast(pa.large_binary())], schema=_RAW)

    def _columns(self, uid: str, state: str, is_of_windows: bool = False) -> pa.Schema:
        columns = columns_of(self.chain(uid, state), self._shape(uid, state))
        if is_of_windows and "namespace" not in columns.names:
            raise InvalidArgument("state", state, "It is not kept for each window: it is in the table keyed.")
        return columns

    def _shape(self, uid: str, state: str) -> Shape:
        if (uid, state) not in self._shapes:
            self._shapes[uid, state] = shape_of(self.chain(uid, state), self.store, self._scratch)
        return self._shapes[uid, state]

    def _timer_shape(self, uid: str) -> Shape:
        """Timers always have a namespace; which keys, all their states together say."""
        none = Shape(frozenset(), frozenset({"namespace"}))
        return functools.reduce(or_, (self._shape(uid, name) for name in self.timer_states(uid)), none)

    def _elements(self, uid: str, state: str, table: str) -> tuple[OperatorEntry, str]:
        operator = self.operator(uid)
        if not any(i.state == state and i.table == table for i in self.states if i.uid == uid):
            raise self._no_state(uid, state, (table,))
        return operator, state


def _has(handle: KeyedHandle, state: str) -> bool:
    return any(name == state for name, _, _ in handle.states)


def _unfolded(field: pa.Field) -> list[pa.Field]:
    return [pa.field(*bound) for bound in _WINDOW] if field.name == "namespace" else [field]


def _with_bounds(table: pa.Table) -> pa.Table:
    """The table with a window's bounds instead of its namespace."""
    at = table.schema.get_field_index("namespace")
    if at < 0:
        return table
    space = table["namespace"].combine_chunks()
    table = table.remove_column(at)
    for n, (name, _) in enumerate(_WINDOW):
        table = table.add_column(at + n, name, pc.struct_field(space, n))
    return table
