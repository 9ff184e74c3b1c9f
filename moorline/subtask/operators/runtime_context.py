"""The place of a function in its job, and its states, as ``open`` gets them."""

from __future__ import annotations

from typing import Any

from moorline.api.metrics import MetricGroup, MetricRegistry
from moorline.api.state import descriptors
from moorline.api.state.descriptors import StateDescriptor
from moorline.api.state.states import State, declared_states
from moorline.errors import KeyedStateWithoutKey, MoorlineError, SnapshotCorrupt, StateMisused, StateRegisteredLate
from moorline.model.graph import Operator
from moorline.model.manifest import RowsHandle
from moorline.model.wire.deployment import Deployment, OperatorRestore
from moorline.state.backend import KeyedBackend
from moorline.state.guards import guard_writes, guarded
from moorline.subtask.restore.rekey import mergeable


class RuntimeContext:
    """The place of a function in its job, and its states, as ``open`` gets them."""

    def __init__(
        self,
        operator: Operator,
        subtask: int,
        deployment: Deployment,
        backend: KeyedBackend | None,
        restore: OperatorRestore,
        metrics: MetricRegistry,
    ) -> None:
        self.metrics_group = MetricGroup(metrics)
        self.operator_uid, self.subtask = operator.uid, subtask
        self.parallelism, self.max_parallelism = operator.parallelism, deployment.plan.graph.max_parallelism
        self.attempt = int(deployment.attempt)
        self.job = deployment.plan.graph.job
        self._backend, self._restore = backend, restore
        #: Every keyed state that was asked for, by name.
        self.descriptors: dict[str, StateDescriptor] = {}
        self.live: dict[str, State] = {}
        #: Those that are declared on the function's class, by attribute.
        self._declared: dict[str, State] = {}
        self.is_open = False

    def get_metrics_group(self) -> MetricGroup:
        return self.metrics_group

    def get_index_of_this_subtask(self) -> int:
        return self.subtask

    def get_number_of_parallel_subtasks(self) -> int:
        return self.parallelism

    def bind_declared(self, function: object) -> None:
        """Give the states declared on the function's class their life."""
        for attribute, declared in declared_states(function).items():
            self._declared[attribute] = self.bind(declared.descriptor)
            setattr(function, attribute, self._declared[attribute])

    def check_declared(self, function: object) -> None:
        """Raises :class:`StateMisused` if something else stands in the place of a state: no snapshot would see it.

        Most assignments are found in the code (``api/state/declarations.py``), but not those of a helper function.
        """
        for attribute, live in self._declared.items():
            found = getattr(function, attribute, None)
            if found is not live:
                cause = f"was overwritten: self.{attribute} is now {found!r:.100}"
                advice = "Change what is in it with the state's own methods."
                raise StateMisused(f"operator {self.operator_uid!r}", attribute, cause, advice)

    def bind(self, descriptor: StateDescriptor) -> Any:
        """The live state of a descriptor."""
        if self._backend is None:
            raise KeyedStateWithoutKey(self.operator_uid, (descriptor.name,))
        if self.is_open:
            raise StateRegisteredLate(descriptor.name)
        self.descriptors[descriptor.name] = descriptor
        current, guard = self._backend.current, None
        if descriptor.name not in self.live:  # asked for twice, it has its guard
            default = getattr(descriptor, "default", None)
            descriptor, guard = guarded(descriptor, self.operator_uid, current)
            if default is not None:
                guard.look(default)
        if self._restore.changes_keys:
            descriptor = mergeable(descriptor)
        try:
            live: State = self._backend.bind(descriptor)
        except MoorlineError:
            raise
        except Exception as error:  # of the user's types, or of files that do not fit them
            stored = [h for h in self._restore.keyed if isinstance(h, RowsHandle) and h.state == descriptor.name]
            files = [file.path for handle in stored for file in handle.all_files()]
            if not files:
                raise
            # Checksums fit, so no version of ours has written these rows.
            cause = f"the rows of state {descriptor.name!r} cannot be read: {type(error).__name__}: {error}"
            raise SnapshotCorrupt(files[0], cause) from error
        if guard is not None:
            guard_writes(live, descriptor, guard, self.operator_uid, current)
        self.live[descriptor.name] = live
        return live

    def get_state(self, descriptor: descriptors.ValueStateDescriptor) -> Any:
        return self.bind(descriptor)

    def get_list_state(self, descriptor: descriptors.ListStateDescriptor) -> Any:
        return self.bind(descriptor)

    def get_map_state(self, descriptor: descriptors.MapStateDescriptor) -> Any:
        return self.bind(descriptor)

    def get_reducing_state(self, descriptor: descriptors.ReducingStateDescriptor) -> Any:
        return self.bind(descriptor)

    def get_aggregating_state(self, descriptor: descriptors.AggregatingStateDescriptor) -> Any:
        return self.bind(descriptor)
