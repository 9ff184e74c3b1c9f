"""Records in flight: from frames that wait at a gate to handles of a snapshot, and back.

A handle belongs to an input of an operator and not to a channel: after a restore there may be other channels. Time is
left out. Watermarks are not state; what comes back from a snapshot is processed before any of them.

Records are stored as plain data where they are, so that reading them runs no code. If one of them is not, they stay
the pickles that they travel as; such a snapshot is read only by a job that has asked for unaligned checkpoints.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from moorline.errors import InFlightPickled, InvalidKey, LoopRecordNotPlain, MoorlineError, SnapshotCorrupt
from moorline.model import keys
from moorline.model.graph import Input, Operator, Plan
from moorline.model.ids import SubtaskId
from moorline.model.wire import elements
from moorline.model.wire.deployment import Deployment, InFlightShare
from moorline.model.wire.elements import BATCH, HEAD
from moorline.state.types import plain
from moorline.storage import segments as snapshots
from moorline.storage.blobs import BlobStore
from moorline.subtask.operators.base import user_code_failed
from moorline.subtask.spill_queue import FrameCopy

_HEAD = HEAD.pack(BATCH, 0, 0, 0, 0, 0)


@dataclass(frozen=True)
class Origin:
    """An input of an operator: where records in flight have come from and where they go."""

    uid: str
    upstream: str
    tag: str | None
    side: int
    partitioning: str
    #: Must its records be plain data in a snapshot? So it is in a loop, unless the user says otherwise.
    is_plain: bool = False
    loop: bool = False

    @classmethod
    def of(cls, operator: Operator, edge: Input, is_plain: bool = False) -> Origin:
        partitioning = edge.partitioning.value
        return cls(operator.uid, edge.upstream, edge.tag, edge.side, partitioning, is_plain, edge.feedback)


#: Frames that are in flight, and the input that each of them is on its way to.
InFlightFrames = list[tuple[Origin, FrameCopy]]


def origins(plan: Plan, subtask: SubtaskId) -> list[Origin]:
    """The input behind each channel of a subtask."""
    root = plan.graph.by_uid[plan.vertices[subtask.vertex].operators[0]]
    return [Origin.of(root, root.inputs[plan.links[link].input]) for link, _ in plan.channels_into(subtask)]


def feedback_origins(plan: Plan, subtask: SubtaskId, unaligned: bool) -> list[Origin]:
    """The input behind each channel that leads back to a subtask."""
    root = plan.graph.by_uid[plan.vertices[subtask.vertex].operators[0]]
    edges = [root.inputs[plan.links[link].input] for link, _ in plan.feedback_into(subtask)]
    return [Origin.of(root, edge, is_plain=not (edge.pickled or unaligned)) for edge in edges]


# --- into a snapshot ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Waiting:
    """The frames that wait at one input, channel by channel, as they were when the snapshot was taken."""

    origin: Origin
    copies: list[FrameCopy]

    def encode(self) -> tuple[list[bytes], int, bool]:
        """The elements, how many records that is, and whether they are pickled. To be called off the thread."""
        parts = [p for copy in self.copies for f in copy if f[0] == BATCH for p in elements.record_parts(f)]
        unpacked = [elements.unpack_part(part, 0) for part in parts]
        count = sum(len(records) for _, records, _, _ in unpacked)
        try:
            # Columns are stored as the rows that they are, with their times as ints.
            encoded = [plain.encode([stamps and list(stamps), list(records)]) for _, records, stamps, _ in unpacked]
            return encoded, count, False
        except plain.NotPlain as error:
            if self.origin.is_plain:
                raise LoopRecordNotPlain(self.origin.uid, self.origin.upstream, str(error)) from None
            return (
                [elements.pack_records(list(records), stamps and list(stamps)) for _, records, stamps, _ in unpacked],
                count,
                True,
            )


def waiting(frames: InFlightFrames) -> list[Waiting]:
    """The copies of each input together."""
    by_origin: dict[Origin, list[FrameCopy]] = {}
    for origin, copy in frames:
        by_origin.setdefault(origin, []).append(copy)
    return [Waiting(origin, copies) for origin, copies in by_origin.items()]


# --- and back -----------------------------------------------------------------------------------


def restored(
    deployment: Deployment, subtask: SubtaskId, store: BlobStore | None
) -> Iterator[tuple[Origin, Iterator[bytes]]]:
    """The frames a subtask has to begin with, by input. What is nearest to the end of its chain comes first."""
    graph = deployment.plan.graph
    restores = deployment.restores.get(subtask, {})
    for uid in reversed(deployment.plan.vertices[subtask.vertex].operators):
        operator = graph.by_uid[uid]
        for share in restores[uid].in_flight if uid in restores else ():
            handle = share.handle
            if (
                handle.pickled
                and not deployment.state.unaligned
                and not operator.may_unpickle(handle.upstream, handle.tag)
            ):
                raise InFlightPickled(uid, f"checkpoint {deployment.restored}")
            origin = Origin(uid, handle.upstream, handle.tag, handle.side, handle.partitioning, loop=handle.loop)
            yield origin, _frames(share, operator, subtask.index, graph.max_parallelism, store)


def _frames(
    share: InFlightShare, operator: Operator, subtask: int, max_parallelism: int, store: BlobStore | None
) -> Iterator[bytes]:
    handle = share.handle
    where = handle.file.path if handle.file else "the manifest"
    encoded = handle.inline
    if handle.file is not None:
        assert store is not None
        encoded = snapshots.read_elements(store, handle.file)
    if len(encoded) != handle.count:
        raise SnapshotCorrupt(where, f"{len(encoded)} runs of records are in flight, and should be {handle.count}")
    for element in encoded[share.first :: share.step]:
        records, stamps = _decode(element, handle.pickled, where)
        if share.key_groups is not None:
            records, stamps = _of_keys(records, stamps, share, operator, subtask, max_parallelism)
        if records:
            yield _HEAD + elements.pack_records(records, stamps)


def _decode(element: bytes, pickled: bool, where: str) -> tuple[list[Any], list[int] | None]:
    try:
        if pickled:
            _, records, stamps, _ = elements.unpack_part(element, 0)
        else:
            stamps, records = plain.decode(element)
    except (ValueError, TypeError, pickle.UnpicklingError) as error:
        raise SnapshotCorrupt(where, f"records in flight cannot be read: {error}") from error
    stamps_fit = stamps is None or (isinstance(stamps, list) and set(map(type, stamps)) <= {int})
    if not isinstance(records, list) or not stamps_fit or (stamps is not None and len(stamps) != len(records)):
        raise SnapshotCorrupt(where, "records in flight are not what they should be")
    return records, stamps


def _of_keys(
    records: list[Any],
    stamps: list[int] | None,
    share: InFlightShare,
    operator: Operator,
    subtask: int,
    max_parallelism: int,
) -> tuple[list[Any], list[int] | None]:
    """Those whose key belongs to us."""
    key_of, key_groups = operator.key_selector(share.handle.side), share.key_groups
    assert key_groups is not None
    wanted = []
    for record in records:
        try:
            key = key_of(record)
            wanted.append(keys.key_group(key, max_parallelism) in key_groups)
        except (keys.NotAKey, TypeError) as error:
            raise InvalidKey(operator.uid, f"{key!r:.200}", f"{record!r:.500}", str(error)) from None
        except MoorlineError:
            raise
        except Exception as error:  # of the user's key selector
            raise user_code_failed(operator, subtask, error, -1, f"{record!r:.500}") from error
    kept = [r for r, w in zip(records, wanted) if w]
    return kept, None if stamps is None else [s for s, w in zip(stamps, wanted) if w]
