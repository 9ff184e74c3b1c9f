"""What a checkpoint consists of: handles to files, and the manifest that names them all.

The byte layout is a document of its own, ``docs/reference/storage-format.md``; :data:`FORMAT` is its version.
A handle is made by the subtask that wrote the file, travels in its acknowledgement, and ends up in the manifest.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

#: The version of the storage format. A reader refuses what is newer.
FORMAT = 1


class Segment(msgspec.Struct, frozen=True):
    """A byte range of a file that can be read and verified alone: the rows of ``[first,end)`` key groups.

    The last segment of a file is its footer and has an empty range.
    """

    first: int
    end: int
    offset: int
    size: int
    xxh3: str


class SnapshotFile(msgspec.Struct, frozen=True):
    """One immutable file, by its path below the job's folder. The segments cover it without a gap."""

    path: str
    size: int
    segments: list[Segment]


class KeyedHandle(msgspec.Struct, frozen=True):
    """The rows of one keyed state of one subtask."""

    state: str
    #: value, list, map, reducing or aggregating
    kind: str
    #: The stored type, as ``state/types.py`` spells it.
    type: str
    #: Key groups ``[first,end)`` of the subtask that wrote it.
    first: int
    end: int
    rows: int
    file: SnapshotFile


class ElementsHandle(msgspec.Struct, frozen=True):
    """The elements of one operator state of one subtask: inline when they are few bytes, else in a file."""

    state: str
    #: split: shared out evenly after a rescale; union: everyone gets everything
    mode: str
    count: int
    #: msgpack, one item per element
    inline: list[bytes] = []
    file: SnapshotFile | None = None


class OperatorHandles(msgspec.Struct, frozen=True):
    """What one operator has in one subtask's part of a checkpoint."""

    uid: str
    keyed: list[KeyedHandle] = []
    elements: list[ElementsHandle] = []

    def files(self) -> list[SnapshotFile]:
        return [k.file for k in self.keyed] + [e.file for e in self.elements if e.file is not None]


class OperatorEntry(msgspec.Struct, frozen=True):
    """One operator in a manifest; ``subtasks[i]`` is what subtask i handed in."""

    uid: str
    name: str
    parallelism: int
    max_parallelism: int
    subtasks: list[OperatorHandles]


class Manifest(msgspec.Struct, frozen=True, tag="checkpoint", tag_field="kind"):
    """A complete checkpoint. It exists when this is published, and is published last."""

    job: str
    attempt: int
    checkpoint: int
    created_ms: int
    operators: list[OperatorEntry]
    format: int = FORMAT

    def files(self) -> list[SnapshotFile]:
        return [f for o in self.operators for s in o.subtasks for f in s.files()]

    @property
    def size(self) -> int:
        return sum(f.size for f in self.files())


class Claim(msgspec.Struct, frozen=True, tag="claim", tag_field="kind"):
    """An attempt has taken the right to write. What older attempts publish later is refused."""

    job: str
    attempt: int
    created_ms: int
    #: The attempt starts with no state, so checkpoints before this entry are not its own.
    fresh: bool
    #: No checkpoint so far has had this number or a higher one, also none that has been deleted since.
    next_checkpoint: int = 1
    format: int = FORMAT


Entry = Manifest | Claim


def next_checkpoint(entries: Iterable[Entry]) -> int:
    """The first checkpoint number that none of these has used."""
    return max((e.checkpoint + 1 if isinstance(e, Manifest) else e.next_checkpoint for e in entries), default=1)
