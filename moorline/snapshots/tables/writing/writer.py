"""A savepoint made by hand: from tables, from another snapshot, or from one with changes.

Orders are collected first and carried out by :meth:`SnapshotWriter.write`: files first, the manifest last, so a writer
that dies leaves a folder that is not taken for a savepoint. A failed one removes its files.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from moorline.api.state.descriptors import MapStateDescriptor, StateDescriptor
from moorline.api.state.states import State
from moorline.errors import InvalidArgument, MoorlineError, StorageError
from moorline.model.key_groups import MAX_KEY_GROUPS
from moorline.model.manifest import ElementsHandle, FileHandle, Manifest, OperatorEntry, OperatorHandles
from moorline.model.options import checks_options
from moorline.model.type_tree.tree import INT, StateType, Type
from moorline.snapshots.folders import has_savepoint, write_savepoint
from moorline.snapshots.rows import Scratch
from moorline.snapshots.tables.catalog import states_of
from moorline.snapshots.tables.reader import TIMERS, SnapshotReader
from moorline.snapshots.tables.writing.copying import copied
from moorline.snapshots.tables.writing.dataframes import TableData, is_dataframe, write_dataframe
from moorline.snapshots.tables.writing.edits import encode_elements, transformed
from moorline.snapshots.tables.writing.rows import Layout, Target, check_unique, cut, make_rows
from moorline.state.forms import form_of
from moorline.storage import segments as snapshots
from moorline.storage.layout import DATA
from moorline.storage.stores.open import open_store

#: Operator states up to this size need no file (as in ``subtask/snapshot/writer.py``).
INLINE_BYTES = 16 << 10

#: What writes the files of a state when its time has come.
Order = Callable[[], list[FileHandle]]


@dataclass
class _Draft:
    """An operator of the savepoint to be."""

    name: str
    parallelism: int = 1
    rekeyed: str = ""
    #: Where kept states come from.
    origin: tuple[SnapshotReader, OperatorEntry] | None = None
    #: States that are taken over as they are.
    keyed: set[str] = field(default_factory=set)
    elements: set[str] = field(default_factory=set)
    #: States that are made.
    made: dict[str, Order] = field(default_factory=dict)
    made_elements: dict[str, tuple[str, Type, list[bytes]]] = field(default_factory=dict)


@checks_options()
class SnapshotWriter:
    """A builder of a savepoint, which a job can be started from.

    >>> import moorline as mo
    >>> balances = [{"account": "a", "cents": 120}, {"account": "b", "cents": 7}]
    >>> writer = mo.SnapshotWriter("memory://opening", job="accounts")
    >>> descriptor = mo.ValueStateDescriptor("balance", int)
    >>> _ = writer.keyed("accounts", descriptor, balances, key="account", value="cents").write()
    >>> mo.read_snapshot("memory://opening").keyed("accounts", "balance").select(["key", "value"]).to_pylist()
    [{'key': 'b', 'value': 7}, {'key': 'a', 'value': 120}]

    Tables are Spark's DataFrames, Arrow tables, pandas' DataFrames or lists of dicts. A DataFrame of Spark is written
    by its tasks and never collected.
    """

    def __init__(self, path: str, *, job: str | None = None, max_parallelism: int | None = None) -> None:
        if max_parallelism is not None and not 1 <= max_parallelism <= MAX_KEY_GROUPS:
            raise InvalidArgument("max_parallelism", max_parallelism, f"It is between 1 and {MAX_KEY_GROUPS}.")
        self._store = open_store(path)
        self._job, self._key_groups = job, max_parallelism
        self._checkpoint = 1
        self._drafts: dict[str, _Draft] = {}
        # Unnamed files that begin so are ours to remove.
        self._run = uuid.uuid4().hex[:12]

    # --- what is to be in it ----------------------------------------------------------------------

    def from_snapshot(self, path: str, checkpoint: int | None = None) -> SnapshotWriter:
        """Begin with everything that another snapshot has: a savepoint, or a job's checkpoint."""
        return self.from_reader(SnapshotReader.open(path, checkpoint))

    def from_reader(self, reader: SnapshotReader) -> SnapshotWriter:
        """The same for a snapshot that is open already."""
        if self._drafts:
            raise InvalidArgument("from_snapshot", reader.manifest.job, "Begin with it, before any other order.")
        if reader.manifest.in_flight:
            advice = f"It is unaligned and has {reader.manifest.in_flight:,} records in flight. Take a savepoint of it."
            raise InvalidArgument("from_snapshot", reader.manifest.job, advice)
        self._job = self._job or reader.manifest.job
        self._checkpoint = max(1, reader.manifest.checkpoint)
        numbers = {reader.operator(o.uid).max_parallelism for o in reader.manifest.operators}
        if self._key_groups is not None and numbers - {self._key_groups}:
            advice = f"The snapshot has {numbers}, and its rows stay in their key groups. Leave it out."
            raise InvalidArgument("max_parallelism", self._key_groups, advice)
        self._key_groups = max(numbers, default=self._key_groups)
        for entry in reader.manifest.operators:
            draft = _Draft(entry.name, max(1, entry.parallelism), entry.rekeyed, (reader, entry))
            draft.elements = {e.state for s in entry.subtasks for e in s.elements}
            self._drafts[entry.uid] = draft
        for info in states_of(reader.manifest):
            if info.first_key_group is not None and info.table != "files":
                self._drafts[info.uid].keyed.add(info.state)
        return self

    @checks_options()
    def keyed(
        self,
        uid: str,
        state: State | StateDescriptor,
        data: TableData,
        *,
        key: str | list[str] | tuple[str, ...],
        value: str | dict[str, str] = "value",
        map_key: str | None = None,
        window: tuple[str, str] | None = None,
        last_access: str | None = None,
        order: str | None = None,
        partitions: int | None = None,
    ) -> SnapshotWriter:
        """A keyed state: one row per value, per element of a list, per entry of a map. Replaces what was there.

        ``state`` is its declaration (``Count.seen``) or descriptor. ``key`` is a column; several make keys that are
        tuples. ``value`` is a column, or for a type with fields, a column for each of them. ``map_key`` goes with a
        map state. ``window`` (columns of start and end in ms) goes with a state of windows. ``last_access`` (ms) goes
        with a time to live; without it, the time starts when the job does. ``order`` sorts the elements of a list.
        """
        descriptor = _descriptor(state)
        if (map_key is not None) != isinstance(descriptor, MapStateDescriptor):
            raise InvalidArgument("map_key", map_key, f"State {descriptor.name!r} is a {descriptor.kind} state.")
        where = f"state {descriptor.name!r} of operator {uid!r}"
        form = form_of(descriptor, where, is_windowed=window is not None)
        keys = (key,) if isinstance(key, str) else tuple(key)
        made = Layout(uid, form.state, form.kind, form.type, self._groups, keys, value, map_key, window, last_access)
        return self._make(made, data, order, partitions)

    @checks_options()
    def timers(
        self,
        uid: str,
        data: TableData,
        *,
        key: str | list[str] | tuple[str, ...],
        time: str = "time",
        time_domain: str = "event",
        window: tuple[str, str] | None = None,
        partitions: int | None = None,
    ) -> SnapshotWriter:
        """Timers, by the column of their times in milliseconds. ``time_domain`` is ``event`` or ``processing``."""
        if time_domain not in ("event", "processing"):
            raise InvalidArgument("time_domain", time_domain, "It is 'event' or 'processing'.")
        keys = (key,) if isinstance(key, str) else tuple(key)
        name = TIMERS + time_domain
        return self._make(
            Layout(uid, name, "timers", INT, self._groups, keys, time, window=window), data, None, partitions
        )

    @checks_options()
    def operator_state(
        self, uid: str, state: State | StateDescriptor, data: TableData, *, value: str = "value", mode: str = "split"
    ) -> SnapshotWriter:
        """A list state without a key, in the order of the table. ``mode`` is ``split`` or ``union``."""
        if mode not in ("split", "union"):
            raise InvalidArgument("mode", mode, "It is 'split' or 'union'.")
        return self._make_elements(uid, _descriptor(state), data, [value], mode)

    @checks_options()
    def broadcast_state(
        self,
        uid: str,
        state: State | StateDescriptor,
        data: TableData,
        *,
        map_key: str = "map_key",
        value: str = "value",
    ) -> SnapshotWriter:
        """A broadcast map, one row per entry."""
        descriptor = _descriptor(state)
        if not isinstance(descriptor, MapStateDescriptor):
            raise InvalidArgument("state", descriptor.name, "Broadcast state is a map: give a MapStateDescriptor.")
        return self._make_elements(uid, descriptor, data, [map_key, value], "broadcast")

    def transform(self, uid: str, state: str, function: Callable[[pa.Table], pa.Table]) -> SnapshotWriter:
        """Have a function change the rows of a keyed state, table by table.

        It is given the columns of :func:`read_snapshot` and returns the same ones: rows may be changed or left out.
        Keys stay as they are: to change them or the type, read the state, and write what you made of it by
        :meth:`keyed`.
        """
        draft = self._draft_of(uid)
        if draft.origin is None or state not in draft.keyed:
            raise self._no_state(uid, state, draft.keyed)
        reader, entry = draft.origin

        def order() -> list[FileHandle]:
            chain = reader.chain(entry.uid, state)
            target = self._target(uid, state, chain.kind, chain.type, 0)
            tables = transformed(reader.keyed(entry.uid, state), function, chain)
            return [target.write(self._store, table) for table in tables]

        draft.keyed.discard(state)
        draft.made[state] = order
        return self

    def drop(self, uid: str, state: str | None = None) -> SnapshotWriter:
        """Leave out a state, or an operator with all its states."""
        draft = self._draft_of(uid)
        if state is None:
            del self._drafts[uid]
            return self
        known = draft.keyed | draft.elements | draft.made.keys() | draft.made_elements.keys()
        if state not in known:
            raise self._no_state(uid, state, known)
        self._forget(draft, state)
        return self

    def rename(self, uid: str, new_uid: str) -> SnapshotWriter:
        """Give an operator's state to an operator of another uid."""
        draft = self._draft_of(uid)
        if new_uid in self._drafts:
            raise InvalidArgument("new uid", new_uid, "There is an operator of that uid. Drop it first.")
        if draft.made:
            raise InvalidArgument("uid", uid, "Rename it before its states are made.")
        self._drafts = {new_uid if u == uid else u: d for u, d in self._drafts.items()}
        return self

    # --- carrying it out --------------------------------------------------------------------------

    def write(self) -> str:
        """Write the savepoint; its URL. The folder must not have one already."""
        if self._job is None:
            raise InvalidArgument("job", None, "Say whose savepoint it is: job=.")
        url = self._store.url
        if has_savepoint(self._store):
            raise StorageError(url, "write a savepoint to", "there is one already. Name a folder that is new")
        try:
            operators = [self._entry(uid, draft) for uid, draft in self._drafts.items()]
            now = int(time.time() * 1000)
            manifest = Manifest(self._job, 1, self._checkpoint, now, operators)
            self._remove({file.path for file in manifest.files()})
            write_savepoint(self._store, manifest)
        except BaseException:
            self._clean_up()
            raise
        return url

    def _entry(self, uid: str, draft: _Draft) -> OperatorEntry:
        parts = [OperatorHandles(uid) for _ in range(draft.parallelism)]
        if draft.origin is not None:
            reader, entry = draft.origin

            def target(state: str, kind: str, stored_type: StateType, index: int) -> Target:
                return self._target(uid, state, kind, stored_type, index)

            keyed, elements = frozenset(draft.keyed), frozenset(draft.elements)
            parts = copied(entry, reader.store, Scratch(), self._store, target, keyed, elements)
        made = [handle for order in draft.made.values() for handle in order()]
        renamed = {d.origin[1].uid: new for new, d in self._drafts.items() if d.origin is not None}
        handles = []
        for index, part in enumerate(parts):
            added = [self._elements(uid, s, made, index, len(parts)) for s, made in draft.made_elements.items()]
            own = [*part.elements, *(e for e in added if e is not None)]
            # Those that went round a loop: nothing else is in flight in a savepoint.
            round_it = [
                msgspec.structs.replace(h, upstream=renamed.get(h.upstream, h.upstream)) for h in part.in_flight
            ]
            keyed_handles = [*part.keyed, *(made if index == 0 else [])]
            handles.append(OperatorHandles(uid, keyed_handles, own, round_it))
        return OperatorEntry(uid, draft.name, len(handles), self._groups, handles, draft.rekeyed)

    def _elements(
        self, uid: str, state: str, made: tuple[str, Type, list[bytes]], index: int, count: int
    ) -> ElementsHandle | None:
        """The share of one subtask."""
        mode, element_type, encoded = made
        if mode != "broadcast":
            encoded = encoded[len(encoded) * index // count : len(encoded) * (index + 1) // count]
        if not encoded:
            return None
        if sum(map(len, encoded)) <= INLINE_BYTES:
            return ElementsHandle(state, mode, len(encoded), inline=encoded, type=element_type)
        path = self._target(uid, state, "elements", element_type, index).path()
        file = snapshots.write_elements(self._store, path, encoded)
        return ElementsHandle(state, mode, len(encoded), file=file, type=element_type)

    def _make(self, made: Layout, data: TableData, order: str | None, partitions: int | None) -> SnapshotWriter:
        target = self._target(made.uid, made.state, made.kind, made.type, 0)

        def write() -> list[FileHandle]:
            if is_dataframe(data):
                return write_dataframe(data, made, target, self._store.url, partitions, order)
            table = _table(data)
            rows = make_rows(made, table.sort_by(order) if order is not None else table)
            check_unique(made.kind, rows, made.state)
            return [target.write(self._store, piece) for piece in cut(rows)]

        made.check(list(data.columns) if is_dataframe(data) else _table(data).column_names)
        draft = self._drafts.setdefault(made.uid, _Draft(made.uid))
        self._forget(draft, made.state)
        draft.made[made.state] = write
        return self

    def _make_elements(
        self, uid: str, descriptor: StateDescriptor, data: TableData, columns: list[str], mode: str
    ) -> SnapshotWriter:
        # Operator state lives in the memory of each subtask, so it fits into that of the driver.
        table = data.toArrow() if is_dataframe(data) else _table(data)
        made = encode_elements(uid, descriptor, table, columns, mode)
        draft = self._drafts.setdefault(uid, _Draft(uid))
        self._forget(draft, descriptor.name)
        draft.made_elements[descriptor.name] = made
        return self

    def _target(self, uid: str, state: str, kind: str, stored_type: StateType, subtask: int) -> Target:
        return Target(self._checkpoint, uid, state, kind, stored_type, subtask, self._run)

    @property
    def _groups(self) -> int:
        self._key_groups = self._key_groups or 128
        return self._key_groups

    @staticmethod
    def _forget(draft: _Draft, state: str) -> None:
        draft.keyed.discard(state)
        draft.elements.discard(state)
        draft.made.pop(state, None)
        draft.made_elements.pop(state, None)

    def _draft_of(self, uid: str) -> _Draft:
        if uid not in self._drafts:
            have = ", ".join(map(repr, self._drafts)) or "none"
            raise InvalidArgument("uid", uid, f"The savepoint has operators {have} so far.")
        return self._drafts[uid]

    def _no_state(self, uid: str, state: str, known: Iterable[str]) -> InvalidArgument:
        have = ", ".join(map(repr, sorted(known))) or "none"
        return InvalidArgument("state", state, f"Of this kind, operator {uid!r} has {have} so far.")

    def _remove(self, named: set[str]) -> None:
        """Remove files of ours that no handle names: of tasks that Spark ran twice."""
        ours = (blob.path for blob in self._store.list(DATA) if f"-{self._run}" in blob.path)
        self._store.delete(path for path in list(ours) if path not in named)

    def _clean_up(self) -> None:
        try:
            # If the manifest is there after all, its files are not ours to remove any more.
            if not has_savepoint(self._store):
                self._remove(set())
        except MoorlineError:
            pass  # the failure that brought us here is the one to tell


def _descriptor(state: State | StateDescriptor) -> StateDescriptor:
    if isinstance(state, State):
        return state.descriptor
    if isinstance(state, StateDescriptor):
        return state
    raise InvalidArgument("state", state, "Give its declaration (Count.seen) or its descriptor.")


def _table(data: TableData) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, list):
        return pa.Table.from_pylist(data)
    if hasattr(data, "to_numpy"):
        return pa.Table.from_pandas(data, preserve_index=False)
    raise InvalidArgument("data", type(data).__name__, "Give a DataFrame of Spark or pandas, an Arrow table or dicts.")
