"""The graph of one operator that a harness runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moorline.api.functions.base import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
)
from moorline.api.job import Job
from moorline.api.streams import Stream
from moorline.connectors.items import from_items
from moorline.connectors.printing import discard
from moorline.errors import InvalidArgument
from moorline.model.graph import Graph

_KINDS: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("map", (MapFunction,)),
    ("filter", (FilterFunction,)),
    ("flat_map", (FlatMapFunction,)),
    ("process", (ProcessFunction, KeyedProcessFunction)),
    ("reduce", (ReduceFunction,)),
)


def kind_of(function: Any) -> str:
    for kind, classes in _KINDS:
        if isinstance(function, classes):
            return kind
    raise InvalidArgument(
        "function", function, f"Say what it is: kind= one of {', '.join(repr(k) for k, _ in _KINDS)}."
    )


def step_of(function: Any, key: Callable[[Any], Any] | None, kind: str, uid: str) -> Callable[[Stream], Stream]:
    if kind not in dict(_KINDS):
        raise InvalidArgument("kind", kind, f"It is one of {', '.join(repr(k) for k, _ in _KINDS)}.")
    if kind == "reduce" and key is None:
        raise InvalidArgument("kind", kind, "A reduction needs a key: give the harness key=.")

    def build(stream: Stream) -> Stream:
        made: Stream = getattr(stream if key is None else stream.key_by(key), kind)(function, uid=uid)
        return made

    return build


def graph_of(
    build: Callable[..., Stream | None], inputs: int, parallelism: int, max_parallelism: int | None
) -> tuple[Graph, str]:
    """A job of sources, the step and a sink, with all the checks of a real one; and the step's uid."""
    job = Job("harness", parallelism=parallelism, max_parallelism=max_parallelism)
    # Never chained to the source: the harness takes its place.
    streams = [job.source(from_items([]), uid=f"harness-source-{n}", parallelism=1).rebalance() for n in range(inputs)]
    made = build(*streams) if inputs else build(job)
    steps = list(job._operators)[inputs:]
    if len(steps) != 1:
        raise InvalidArgument("build", steps, "A harness runs exactly one step.")
    if made is None and job._operators[steps[0]].is_sink:
        if not inputs:
            raise InvalidArgument("build", steps, "A sink has an input.")
    elif made is None:
        raise InvalidArgument("build", made, "Return the stream that comes out of the step.")
    else:
        made.sink(discard(), uid="harness-sink")
    return job.graph(), steps[0]
