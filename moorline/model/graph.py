"""A job as data: the operators a user wrote, and the subtasks and channels they become.

The logical :class:`Graph` is built by ``api``; ``protocol/lowering.py`` turns it into a :class:`Plan`:

    operator   what the user wrote, found again by its uid
    vertex     operators that need no exchange between them, run as one subtask after another
    stage      all vertices on one level; stages form one chain, because Spark joins them so
    slot       a place in a stage: one Spark task, one subtask
    link       an edge between two vertices; it has a channel from every sender to every receiver
    loop       an operator that gets back some of what becomes of its output (its head), and all operators on the way
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from functools import cached_property
from typing import Any, TypeVar

from moorline.model.ids import SubtaskId
from moorline.model.keys.kinds import type_of_keys

T = TypeVar("T", bound=Hashable)


def between(edges: set[tuple[T, T]], first: T, last: set[T]) -> frozenset[T]:
    """Everything on a way from ``first`` to one of ``last``, both included; empty if there is none.

    >>> sorted(between({(1, 2), (2, 3), (2, 4), (5, 3)}, 1, {3}))
    [1, 2, 3]
    """

    def reached(start: set[T], steps: set[tuple[T, T]]) -> set[T]:
        seen, fresh = set(start), set(start)
        while fresh:
            fresh = {b for a, b in steps if a in fresh} - seen
            seen |= fresh
        return seen

    return frozenset(reached({first}, edges) & reached(last, {(b, a) for a, b in edges}))


class Partitioning(Enum):
    """The rule for which subtask downstream gets a record."""

    FORWARD = "forward"  # the one with the same index
    REBALANCE = "rebalance"  # all of them in turn
    HASH = "hash"  # the owner of the record's key group
    BROADCAST = "broadcast"  # every one of them


class OperatorKind(StrEnum):
    """Kinds of operators. Each is the text that uids are made of and people see."""

    SOURCE = "source"
    TIMESTAMPS = "timestamps"
    MAP = "map"
    FILTER = "filter"
    FLAT_MAP = "flat_map"
    PROCESS = "process"
    CO_PROCESS = "co_process"
    BROADCAST_PROCESS = "broadcast_process"
    WINDOW = "window"
    WITH_SCHEMA = "with_schema"
    MAP_BATCHES = "map_batches"
    FILTER_BATCHES = "filter_batches"
    SELECT = "select"
    WHERE = "where"
    AGGREGATE = "aggregate"
    PROCESS_BATCHES = "process_batches"
    DEDUPLICATE = "deduplicate"
    TOP = "top"
    SINK = "sink"


@dataclass(frozen=True)
class Input:
    """A source of an operator's records: the operator before and how records are partitioned."""

    upstream: str
    tag: str | None
    partitioning: Partitioning
    #: The key selector, for HASH.
    key: Any = None
    #: Which input of an operator that has two: 0 is the first.
    side: int = 0
    #: The declared type of the key, if any: so that keys of the user's own classes can be made again from a snapshot.
    key_type: Any = None
    #: What comes in here has been through the operator before: the edge closes a loop.
    feedback: bool = False
    #: For feedback: may a snapshot hold its records as pickles, if they are not plain data?
    pickled: bool = False

    def __str__(self) -> str:
        how = self.partitioning.value + (", feedback" if self.feedback else "")
        return f"{self.upstream}{'#' + self.tag if self.tag else ''} ({how})"


@dataclass(frozen=True)
class Operator:
    """One step of a job as the user wrote it."""

    uid: str
    name: str
    kind: OperatorKind
    parallelism: int
    #: The user's function, source or sink.
    function: Any
    inputs: tuple[Input, ...] = ()
    #: What else belongs to it: a watermark strategy, a change of keys, states that may be dropped.
    options: dict[str, Any] = field(default_factory=dict)
    #: The user gave it no uid, so it has one that we made.
    has_generated_uid: bool = False
    #: The user gave it a parallelism of its own, so that of the job does not apply to it.
    has_own_parallelism: bool = False

    @property
    def is_source(self) -> bool:
        return self.kind == OperatorKind.SOURCE

    @property
    def is_sink(self) -> bool:
        return self.kind == OperatorKind.SINK

    @property
    def is_keyed(self) -> bool:
        return any(i.partitioning is Partitioning.HASH for i in self.inputs)

    def key_selector(self, side: int) -> Any:
        """The function that makes the key of a record on one of its inputs."""
        return next((i.key for i in self.inputs if i.side == side), None)

    def may_unpickle(self, upstream: str, tag: str | None) -> bool:
        """Has the user said that a snapshot may hold what comes back on this input as pickles?"""
        return any(i.feedback and i.pickled and (i.upstream, i.tag) == (upstream, tag) for i in self.inputs)

    @property
    def key_type(self) -> Any:
        """The type of the keys, if ``key_by`` or the annotation of a selector says it."""
        said = (type_of_keys(i.key, i.key_type) for i in self.inputs if i.partitioning is Partitioning.HASH)
        return next((declared for declared in said if declared is not None), None)


@dataclass(frozen=True)
class Graph:
    """All operators of a job, each after those it reads from."""

    job: str
    operators: tuple[Operator, ...]
    max_parallelism: int
    #: Did the user choose the number of key groups? If not, a snapshot's number wins.
    max_parallelism_is_set: bool = False

    @cached_property
    def by_uid(self) -> dict[str, Operator]:
        return {o.uid: o for o in self.operators}

    @cached_property
    def loops(self) -> dict[str, frozenset[str]]:
        """By the uid of its head, the operators of each loop: those on a way from the head back to it."""
        return {
            o.uid: between(
                {(i.upstream, p.uid) for p in self.operators for i in p.inputs if not i.feedback},
                o.uid,
                {i.upstream for i in o.inputs if i.feedback},
            )
            for o in self.operators
            if any(i.feedback for i in o.inputs)
        }


@dataclass(frozen=True)
class Link:
    """An edge between vertices."""

    id: int
    #: The operator whose output it carries, and which output.
    source_operator: str
    tag: str | None
    source: int
    target: int
    partitioning: Partitioning
    #: Which of the target's inputs it feeds, by its place among them.
    input: int = 0
    #: It leads back, and so not through Spark's exchange.
    feedback: bool = False


@dataclass(frozen=True)
class Vertex:
    """Operators chained into one subtask."""

    id: int
    #: The first is the root: it reads the vertex's input. Each comes after the one that feeds it.
    operators: tuple[str, ...]
    parallelism: int
    stage: int
    #: Its subtasks take the slots from here on.
    first_slot: int


@dataclass(frozen=True)
class Plan:
    """The physical form of a graph: vertices in slots of stages, joined by links."""

    graph: Graph
    vertices: tuple[Vertex, ...]
    links: tuple[Link, ...]
    #: Number of slots in each stage.
    widths: tuple[int, ...]

    def subtasks(self) -> Iterator[SubtaskId]:
        for vertex in self.vertices:
            for index in range(vertex.parallelism):
                yield SubtaskId(vertex.id, index)

    def source_subtasks(self) -> Iterator[SubtaskId]:
        for vertex in self.vertices:
            if self.graph.by_uid[vertex.operators[0]].is_source:
                for index in range(vertex.parallelism):
                    yield SubtaskId(vertex.id, index)

    def at(self, stage: int, slot: int) -> SubtaskId:
        """The subtask in a slot."""
        for vertex in self.vertices:
            if vertex.stage == stage and 0 <= slot - vertex.first_slot < vertex.parallelism:
                return SubtaskId(vertex.id, slot - vertex.first_slot)
        raise LookupError(f"no subtask in slot {slot} of stage {stage}")

    def slot(self, subtask: SubtaskId) -> tuple[int, int]:
        """The stage and the slot of a subtask."""
        vertex = self.vertices[subtask.vertex]
        return vertex.stage, vertex.first_slot + subtask.index

    def channels_into(self, subtask: SubtaskId) -> list[tuple[int, int]]:
        """The channels of the exchange that end at ``subtask``: pairs of link and sending subtask's index."""
        return self._into(subtask, feedback=False)

    def feedback_into(self, subtask: SubtaskId) -> list[tuple[int, int]]:
        """The channels that lead back to ``subtask``."""
        return self._into(subtask, feedback=True)

    def _into(self, subtask: SubtaskId, *, feedback: bool) -> list[tuple[int, int]]:
        return [
            (link.id, sender)
            for link in self.links
            if link.target == subtask.vertex and link.feedback is feedback
            for sender in range(self.vertices[link.source].parallelism)
            if link.partitioning is not Partitioning.FORWARD or sender == subtask.index
        ]

    def heads(self) -> list[SubtaskId]:
        """The subtasks that something leads back to."""
        heads = {link.target for link in self.links if link.feedback}
        return [subtask for subtask in self.subtasks() if subtask.vertex in heads]

    @cached_property
    def loop_of(self) -> dict[int, frozenset[int]]:
        """For each vertex of a loop all vertices of that loop. None belongs to two of them."""
        edges = {(link.source, link.target) for link in self.links if not link.feedback}
        loops: dict[int, frozenset[int]] = {}
        for head in {link.target for link in self.links if link.feedback}:
            tails = {link.source for link in self.links if link.feedback and link.target == head}
            body = between(edges, head, tails)
            loops.update(dict.fromkeys(body, body))
        return loops
