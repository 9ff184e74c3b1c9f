"""The parts of a checkpoint: handles to files, and the manifest that names them all.

The byte layout is a document of its own, ``docs/reference/storage-format.md``; :data:`FORMAT` is its version.
A handle is made by the subtask that wrote the file, travels in its acknowledgement, and ends up in the manifest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, NamedTuple, Self

import msgspec

from moorline.model.key_groups import KeyGroupRange
from moorline.model.type_tree.tree import PLAIN, StateType, Type

#: The version of the storage format. A reader refuses what is newer. 2: increments, native files, timers.
#: 3: records in flight. 4: types as trees.
FORMAT = 4


class StoredState(NamedTuple):
    """A state of which there is something in a file."""

    name: str
    #: One of :data:`FILE_KINDS`.
    kind: str
    type: StateType


class Segment(msgspec.Struct, frozen=True):
    """A byte range of a file that can be read and verified alone: the rows of ``[first,end)`` key groups.

    The last segment of a file is its footer and has an empty range.
    """

    first: int
    end: int
    offset: int
    size: int
    xxh3: str
    #: The most bytes that its rows take in memory, as ``storage/parquet_bounds.py`` counts; 0: it was not counted.
    decoded: int = 0


class SnapshotFile(msgspec.Struct, frozen=True):
    """One immutable file, by its path below the job's folder. The segments cover it without a gap."""

    path: str
    size: int
    segments: list[Segment]


class NativeFile(msgspec.Struct, frozen=True):
    """One file of a backend's own kind, by the name that the backend knows it by."""

    name: str
    file: SnapshotFile


#: The kinds of keyed state that are kept in rows, one or several for each key.
ROW_KINDS = ("value", "list", "map", "reducing", "aggregating", "timers")


class RowsHandle(msgspec.Struct, frozen=True, tag="rows", tag_field="shape"):
    """Rows of one keyed state of one subtask, in a Parquet file.

    The handles of a state form a chain, oldest first: a base, then increments. A key that occurs in an increment
    replaces all that was there under it before.
    """

    state: str
    #: One of :data:`ROW_KINDS`.
    kind: str
    #: The stored type, as ``state/types/annotations.py`` has it.
    type: StateType
    #: The key groups ``[first,end)`` of it that count. The file may hold others too.
    first: int
    end: int
    rows: int
    #: None if the rows are not in a file that a checkpoint may build on.
    file: SnapshotFile | None = None
    increment: bool = False

    @property
    def key_groups(self) -> KeyGroupRange:
        return KeyGroupRange(self.first, self.end)

    @property
    def states(self) -> list[StoredState]:
        """The one state in it."""
        return [StoredState(self.state, self.kind, self.type)]

    def cut(self, first: int, end: int) -> RowsHandle:
        """The same, with only these of its key groups counting."""
        return msgspec.structs.replace(self, first=first, end=end)

    def all_files(self) -> list[SnapshotFile]:
        return [self.file] if self.file is not None else []


class _KeyGroupRows(msgspec.Struct, frozen=True):
    """Rows that belong to key groups and not to keys, in a Parquet file. There are no increments of them."""

    kind: ClassVar[str]
    increment: ClassVar[bool] = False

    state: str
    type: StateType
    first: int
    end: int
    rows: int
    file: SnapshotFile | None = None

    @property
    def key_groups(self) -> KeyGroupRange:
        return KeyGroupRange(self.first, self.end)

    @property
    def states(self) -> list[StoredState]:
        """The one state in it."""
        return [StoredState(self.state, self.kind, self.type)]

    def cut(self, first: int, end: int) -> Self:
        """The same, with only these of its key groups counting."""
        return msgspec.structs.replace(self, first=first, end=end)

    def all_files(self) -> list[SnapshotFile]:
        return [self.file] if self.file is not None else []


class RawHandle(_KeyGroupRows, frozen=True, tag="raw", tag_field="shape"):
    """Bytes that a function wrote for key groups by itself."""

    kind: ClassVar[str] = "raw"


class StoreHandle(_KeyGroupRows, frozen=True, tag="store", tag_field="shape"):
    """The progress of an outside store, for each key group; see ``state/external/progress.py``."""

    kind: ClassVar[str] = "store"


class NativeHandle(msgspec.Struct, frozen=True, tag="native", tag_field="shape"):
    """All keyed states of one subtask, in files of a backend's own kind. They cannot be cut."""

    first: int
    end: int
    #: Which backend wrote it.
    backend: str = ""
    files: list[NativeFile] = []
    states: list[StoredState] = []

    @property
    def key_groups(self) -> KeyGroupRange:
        return KeyGroupRange(self.first, self.end)

    def all_files(self) -> list[SnapshotFile]:
        return [f.file for f in self.files]


#: Rows of one state, in one Parquet file.
FileHandle = RowsHandle | RawHandle | StoreHandle
#: A part of the keyed state of one subtask.
KeyedHandle = FileHandle | NativeHandle

_OF_KEY_GROUPS: dict[str, type[RawHandle] | type[StoreHandle]] = {h.kind: h for h in (RawHandle, StoreHandle)}
#: All kinds of rows.
FILE_KINDS = (*ROW_KINDS, *_OF_KEY_GROUPS)


def file_handle(
    state: str,
    kind: str,
    stored_type: StateType,
    key_groups: KeyGroupRange,
    rows: int,
    file: SnapshotFile | None = None,
    increment: bool = False,
) -> FileHandle:
    """The handle of a file with rows of one of :data:`FILE_KINDS`."""
    if kind in _OF_KEY_GROUPS:
        assert not increment, f"there are no increments of {kind} state"
        return _OF_KEY_GROUPS[kind](state, stored_type, key_groups.first, key_groups.end, rows, file)
    return RowsHandle(state, kind, stored_type, key_groups.first, key_groups.end, rows, file, increment)


class ElementsHandle(msgspec.Struct, frozen=True):
    """The elements of one operator state of one subtask: inline when they are few bytes, else in a file."""

    state: str
    #: split: shared out evenly after a rescale; union: everyone gets everything; broadcast: a copy each
    mode: str
    count: int
    #: msgpack, one item per element
    inline: list[bytes] = []
    file: SnapshotFile | None = None
    #: The stored type of the elements; of broadcast state they are pairs of key and value.
    type: Type = PLAIN


class InFlightHandle(msgspec.Struct, frozen=True):
    """Records that had come in at one input of an operator, in one subtask, and were not processed yet.

    Also those that went round a loop: they had not come back yet when the head took its snapshot.
    """

    #: Which input: the operator that sent them, by which of its outputs, and the side they came in on.
    upstream: str
    tag: str | None
    side: int
    #: How the job's graph shares this input out: forward, rebalance, hash or broadcast.
    partitioning: str
    #: For hash: the key groups ``[first,end)`` of the subtask, and so of the records.
    first: int
    end: int
    records: int
    #: The number of elements. Each is a run of records and their timestamps, in the order in which they came in.
    count: int
    #: Elements are plain data; if some record is not, all of them are pickles.
    pickled: bool = False
    inline: list[bytes] = []
    file: SnapshotFile | None = None
    #: They were on their way round a loop.
    loop: bool = False


class OperatorHandles(msgspec.Struct, frozen=True):
    """The handles of one operator in one subtask's part of a checkpoint."""

    uid: str
    keyed: list[KeyedHandle] = []
    elements: list[ElementsHandle] = []
    in_flight: list[InFlightHandle] = []
    #: The kinds of keys that its state has, see ``model/keys/kinds.py``. Empty: not known, or it has no key.
    keys: list[str] = []

    def files(self) -> list[SnapshotFile]:
        single = [e.file for e in self.elements] + [h.file for h in self.in_flight]
        return [f for k in self.keyed for f in k.all_files()] + [f for f in single if f is not None]


class OperatorEntry(msgspec.Struct, frozen=True):
    """One operator in a manifest; ``subtasks[i]`` is what subtask i handed in."""

    uid: str
    name: str
    parallelism: int
    max_parallelism: int
    subtasks: list[OperatorHandles]
    #: The last change of keys that its state has been through, see ``mo.Rekey``.
    rekeyed: str = ""

    @property
    def keys(self) -> list[str]:
        """The kinds of keys in all subtasks."""
        return sorted({kind for subtask in self.subtasks for kind in subtask.keys})


class Manifest(msgspec.Struct, frozen=True, tag="checkpoint", tag_field="kind"):
    """A complete checkpoint. It exists when this is published, and is published last."""

    job: str
    attempt: int
    checkpoint: int
    created_ms: int
    operators: list[OperatorEntry]
    format: int = FORMAT
    #: A word for the line of checkpoints that it belongs to: see :attr:`moorline.CommitterContext.lineage`.
    lineage: str = ""

    def files(self) -> list[SnapshotFile]:
        return [f for o in self.operators for s in o.subtasks for f in s.files()]

    @property
    def size(self) -> int:
        return sum(f.size for f in self.files())

    @property
    def in_flight(self) -> int:
        """The number of records that barriers have overtaken. Those that go round a loop do not count."""
        return sum(h.records for o in self.operators for s in o.subtasks for h in s.in_flight if not h.loop)


class Claim(msgspec.Struct, frozen=True, tag="claim", tag_field="kind"):
    """An attempt has taken the right to write. What older attempts publish later is refused."""

    job: str
    attempt: int
    created_ms: int
    #: The attempt starts with no state, so checkpoints before this entry are not its own.
    fresh: bool
    #: No checkpoint so far has had this number or a higher one, also none that has been deleted since.
    next_checkpoint: int = 1
    #: Checkpoints that could not be read. The job went back past them and took their output back, so they are not to
    #: be restored any more, even if they could be read the next time.
    given_up: list[int] = []
    format: int = FORMAT
    #: The snapshot that it starts from, if that is not a checkpoint of this history. Needed by a driver that takes over
    #: before the next checkpoint.
    savepoint: str = ""
    #: The number of that snapshot, if it is the savepoint that the job was stopped with: its output is committed, so
    #: checkpoints before it do not count any more. With :attr:`ended`: the run ended with it, and a driver that cannot
    #: use its final checkpoint goes on from there.
    stopped_at: int = 0
    #: With several drivers standing ready: what one of them began and its successors go on with.
    run: str = ""
    #: Of the leader that made it, see ``protocol/supervision/leadership.py``; 0 without one.
    term: int = 0
    #: Entries by number that are never to be used again: unreadable or missing ones, which the job went back past or an
    #: operator has given up.
    given_up_entries: list[int] = []
    #: All checkpoints of the lineage are removed on purpose: that there are none is no loss.
    emptied: bool = False
    #: How the run ended that this is the last entry of; empty while it runs, and if its driver died.
    ended: str = ""
    #: The process that wrote it, see ``driver/processes.py``; empty if unknown.
    process: str = ""


Entry = Manifest | Claim


def next_checkpoint(entries: Iterable[Entry]) -> int:
    """The first checkpoint number that none of these has used."""
    return max((e.checkpoint + 1 if isinstance(e, Manifest) else e.next_checkpoint for e in entries), default=1)
