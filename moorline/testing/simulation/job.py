"""A user's job in the simulator's world: its sources read in small steps, its sinks keep books.

The functions, the state, the checkpoints and the driver are the real ones. Nothing is written outside: a sink other
than ``mo.collect`` is exchanged for a ledger that books what is committed, as an exactly-once sink would.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from moorline.api.functions.source_function import SourceFunction
from moorline.api.job import Job
from moorline.api.state.descriptors import StateDescriptor
from moorline.api.state.states import declared_states
from moorline.connectors.collect import Collect
from moorline.connectors.memory_state import MemoryState
from moorline.errors import InvalidArgument
from moorline.model.config.checkpoints import Checkpoints
from moorline.model.graph import Graph, Operator
from moorline.model.wire.messages import Failed
from moorline.testing.simulation.audit.ending import audit_ending
from moorline.testing.simulation.audit.ledger import Ledger, LedgerSink
from moorline.testing.simulation.faults import Faults
from moorline.testing.simulation.jobs.counting import SimulatedJob
from moorline.testing.simulation.jobs.modes import consistency
from moorline.testing.simulation.pace import PacedSource, SimulatedPace
from moorline.testing.simulation.results import Results
from moorline.testing.simulation.simulator import Simulation

#: What ``simulate`` is given: called for every driver, so that none shares anything with another.
JobBuilder = Callable[[], Job]


class FunctionFailed(Exception):
    """A function of the job has raised."""


def built(builder: JobBuilder) -> Job:
    """The job that ``builder`` makes, if it can be simulated."""
    job = builder()
    if not isinstance(job, Job):
        raise InvalidArgument("job_builder", job, "Give a function without arguments that returns a new mo.Job.")
    for operator in job.graph().operators:
        _check(operator)
    return job


def _check(operator: Operator) -> None:
    function = operator.function
    if operator.is_source and getattr(function, "is_bounded", None) is False:
        raise InvalidArgument(
            f"source {operator.uid!r}",
            function,
            "It never ends, and a simulated run has to: give the builder one that does, such as "
            "mo.generate(..., count=500).",
        )
    if isinstance(function, SourceFunction) and not inspect.isgeneratorfunction(type(function).run):
        raise InvalidArgument(
            f"source {operator.uid!r}",
            function,
            "It runs on a thread of its own, which no seed decides about: make run() a generator that yields.",
        )
    for descriptor in _descriptors(operator):
        if descriptor.store is not None and not isinstance(descriptor.store, MemoryState):
            raise InvalidArgument(
                f"store of state {descriptor.name!r} of {operator.uid!r}",
                descriptor.store,
                "Hundreds of simulated runs would write to it: give the builder mo.memory_state(...) instead.",
            )


def _descriptors(operator: Operator) -> list[StateDescriptor]:
    return [state.descriptor for state in declared_states(operator.function).values()]


@dataclass(frozen=True)
class _Prepared(SimulatedJob):
    """A user's job, with its ends exchanged."""

    pace: SimulatedPace = field(default_factory=lambda: SimulatedPace(0))
    parallelism: int | None = None

    def graph(self) -> Graph:
        graph = self.job.graph(self.parallelism)
        return replace(graph, operators=tuple(map(self._prepared, graph.operators)))

    def _prepared(self, operator: Operator) -> Operator:
        if operator.is_source and not isinstance(operator.function, SourceFunction):
            return replace(operator, function=PacedSource(operator.function, self.pace))
        if operator.is_sink and not isinstance(operator.function, Collect):
            return replace(operator, function=LedgerSink(ledger_of(self.job.name, operator.uid)))
        return operator


def ledger_of(job: str, uid: str) -> str:
    """The name of the ledger that stands in for a sink."""
    return f"simulated {job} {uid}"


class JobSimulation(Simulation):
    """One run of a user's job. Afterwards ``results`` has what its sinks got."""

    def __init__(
        self,
        seed: int,
        builder: JobBuilder,
        pace: SimulatedPace,
        *,
        faults: Faults,
        fault_steps: int,
        interval_ms: int,
        rescale: bool,
        rocksdb: float,
    ) -> None:
        job = built(builder)
        graph = job.graph()
        self._builder, self.pace, self._interval_ms = builder, pace, interval_ms
        self._rescales = rescale
        self._widest = min(4, graph.max_parallelism)
        self._key_groups = graph.max_parallelism
        self._sinks = {
            ledger_of(job.name, o.uid): o.uid
            for o in graph.operators
            if o.is_sink and not isinstance(o.function, Collect)
        }
        self._stores = {d.store for o in graph.operators for d in _descriptors(o) if d.store is not None}
        self.results: Results = {}
        self.records_read = 0
        for store in self._stores:
            store.forget(job.name)
        super().__init__(seed, faults=faults, fault_steps=fault_steps, rocksdb=rocksdb)
        self.job_name = job.name

    def simulated(self, parallelism: int, version: int) -> SimulatedJob:
        job = built(self._builder)
        ledgers: dict[str, Any] = {ledger: lambda records: None for ledger in self._sinks}
        return _Prepared(job, {}, ledgers, pace=self.pace, parallelism=parallelism if self._rescales else None)

    def with_key_groups(self, graph: Graph) -> Graph:
        return replace(graph, max_parallelism=self._key_groups, max_parallelism_is_set=True)

    @property
    def has_outside_state(self) -> bool:
        return bool(self._stores)

    def checkpoints_wanted(self) -> Checkpoints:
        settings = self.setup.settings
        return Checkpoints(
            "memory://",
            interval=self._interval_ms / 1000,
            timeout=4.0,
            tolerable_failures=3,
            retained=settings.choice([1, 2, 3]),
            incremental=settings.random() < 0.5,
            grace=0.1,
            **consistency(settings),
        )

    def _parallelism(self) -> int:
        return self.chance.randint(1, self._widest)

    def _check_failure(self, failure: Failed, error: Exception) -> None:
        # What can pass are the errors of the world. What a function raises should never happen here.
        if not failure.can_pass and not failure.corrupt:
            where = f"operator {failure.uid!r}: " if failure.uid else ""
            raise FunctionFailed(f"{where}{failure.error}\n{failure.traceback}".strip()) from error

    def _audit(self) -> None:
        audit_ending(self)
        self.results = dict(self.driver.supervision.results)
        self.results |= {uid: Ledger.of(ledger).records() for ledger, uid in self._sinks.items()}
        last = self.attempts[-1]
        self.records_read = sum(last.workers[s].subtask.progress().records_in for s in last.plan.source_subtasks())
