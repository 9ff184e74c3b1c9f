"""Loops: a stream whose records may come back.

``stream.iterate(step)`` hands ``step`` a stream that carries the records of ``stream`` and those that are sent back.
The step that reads it is the *head* of the loop. When ``step`` has returned, the head gets one more input: the
feedback, by the head's own key. So a loop costs no operator of its own, and is closed by the time it exists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from moorline.api.type_parameters import U
from moorline.errors import InvalidLoop
from moorline.model.graph import Graph, Input, Operator, Partitioning

if TYPE_CHECKING:
    from moorline.api.job import Job
    from moorline.api.streams import Stream

S = TypeVar("S", bound="Stream[Any]")

ADVICE = "return two streams of the job from it: what goes back, and what comes out of the loop"


def iterate(stream: S, step: Callable[[S], tuple[Stream[Any], Stream[U]]], pickled: bool) -> Stream[U]:
    """See :meth:`Stream.iterate <moorline.api.streams.Stream.iterate>`."""
    job = stream._job
    # Stands for the loop's stream until it is known who reads it. No uid can be this.
    entrance = f"\0loop {len(job._operators)}"
    job._uids.alias(entrance, stream._origins)
    inside = type(stream)(job, ((entrance, None),), stream._partitioning, stream._key, stream._key_type)
    answer = step(inside)
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise InvalidLoop("", f"the step has returned {answer!r:.200}", ADVICE)
    feedback, output = answer
    for given in (feedback, output):
        if getattr(given, "_job", None) is not job or not hasattr(given, "_origins"):
            raise InvalidLoop("", f"the step has returned {given!r:.200}", ADVICE)
    head = _head(job, entrance)
    if feedback._partitioning is not Partitioning.FORWARD:
        how = "give back the stream as it is: it is shared out as the head's input is, by key if that is keyed"
        raise InvalidLoop(head.uid, f"its feedback is partitioned ({feedback._partitioning.value})", how)
    if any(uid == entrance for uid, _ in (*feedback._origins, *output._origins)):
        raise InvalidLoop(head.uid, "what goes in goes straight back or out", "put a step between, such as a map")
    job._operators[head.uid] = _closed(head, entrance, stream, feedback, pickled)
    _check(job, head.uid)
    return output


def _head(job: Job, entrance: str) -> Operator:
    readers = [o for o in job._operators.values() if any(i.upstream == entrance for i in o.inputs)]
    if len(readers) != 1:
        names = " and ".join(o.uid for o in readers) or "nobody"
        how = "begin the loop with one step, such as loop.map(...), and let the others read that"
        raise InvalidLoop(names, f"its stream is read by {names}", how)
    (head,) = readers
    edges = [i for i in head.inputs if i.upstream == entrance]
    if any(i.tag is not None for i in edges):
        raise InvalidLoop(head.uid, "its stream has no side outputs", "take them from a step inside the loop")
    if len(edges) > 1 or edges[0].partitioning is Partitioning.BROADCAST:
        how = "key the stream, or leave it as it is"
        raise InvalidLoop(head.uid, "its head would get every record that comes back more than once", how)
    return head


def _closed(head: Operator, entrance: str, stream: Stream[Any], feedback: Stream[Any], pickled: bool) -> Operator:
    """The head with its real inputs."""
    (edge,) = [i for i in head.inputs if i.upstream == entrance]
    inputs: list[Input] = []
    for input in head.inputs:
        entering = stream._origins if input is edge else ((input.upstream, input.tag),)
        inputs += [replace(input, upstream=upstream, tag=tag) for upstream, tag in entering]
    # With no key it does not matter who gets what comes back, so everybody has his share.
    back = Partitioning.HASH if edge.partitioning is Partitioning.HASH else Partitioning.REBALANCE
    inputs += [
        replace(edge, upstream=upstream, tag=tag, partitioning=back, feedback=True, pickled=pickled)
        for upstream, tag in feedback._origins
    ]
    return replace(head, inputs=tuple(inputs))


def _check(job: Job, head: str) -> None:
    graph = Graph(job.name, tuple(job._operators.values()), 1)
    body = graph.loops[head]
    tails = {i.upstream for i in graph.by_uid[head].inputs if i.feedback}
    if not tails <= body:
        strange = ", ".join(sorted(tails - body))
        how = "give back what has become of the stream that the step was given"
        raise InvalidLoop(head, f"its feedback comes from {strange}, which the loop does not lead to", how)
    for other, other_body in graph.loops.items():
        if other != head and other_body & body:
            shared = ", ".join(sorted(other_body & body))
            how = "loops cannot be nested: send records of both kinds round one loop, or put one loop after the other"
            raise InvalidLoop(head, f"it shares {shared} with the loop of {other}", how)
