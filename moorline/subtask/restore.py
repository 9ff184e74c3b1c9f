"""From a deployment to a chain of open operators with their state back."""

from __future__ import annotations

import traceback
from typing import Any

from moorline.api import states
from moorline.api.states import State, StateDescriptor, declared_states
from moorline.errors import KeyedStateWithoutKey, MoorlineError, SnapshotCorrupt, StateRegisteredLate
from moorline.failpoints import failpoint
from moorline.model.deployment import Deployment, OperatorRestore
from moorline.model.graph import Operator
from moorline.model.ids import SubtaskId
from moorline.model.key_groups import KeyGroupRange, owned
from moorline.state import plain
from moorline.state.backend import KeyedBackend
from moorline.state.heap import HeapBackend
from moorline.storage import snapshots
from moorline.storage.blobs import BlobStore
from moorline.subtask.ends import SinkOperator, SourceOperator
from moorline.subtask.operator import ChainedOperator, MapOperator, ProcessOperator
from moorline.subtask.output import Output, link_output


class RuntimeContext:
    """What a function can learn, and ask for, in ``open``."""

    def __init__(
        self,
        operator: Operator,
        subtask: int,
        deployment: Deployment,
        backend: KeyedBackend | None,
        restore: OperatorRestore,
    ) -> None:
        self.operator_uid, self.subtask = operator.uid, subtask
        self.parallelism, self.max_parallelism = operator.parallelism, deployment.plan.graph.max_parallelism
        self.attempt = int(deployment.attempt)
        self._backend, self._restore = backend, restore
        self.is_open = False

    def get_index_of_this_subtask(self) -> int:
        return self.subtask

    def get_number_of_parallel_subtasks(self) -> int:
        return self.parallelism

    def bind_declared(self, function: object) -> None:
        """Give the states declared on the function's class their life."""
        for attribute, declared in declared_states(function).items():
            setattr(function, attribute, self._bind(declared.descriptor))

    def _bind(self, descriptor: StateDescriptor) -> State:
        if self._backend is None:
            raise KeyedStateWithoutKey(self.operator_uid, (descriptor.name,))
        if self.is_open:
            raise StateRegisteredLate(descriptor.name)
        try:
            return self._backend.bind(descriptor)
        except MoorlineError:
            raise
        except Exception as error:
            files = [handle.file.path for handle in self._restore.keyed if handle.state == descriptor.name]
            if not files:
                raise
            # Checksums fit, so no version of ours has written these rows.
            cause = f"the rows of state {descriptor.name!r} cannot be read: {type(error).__name__}: {error}"
            raise SnapshotCorrupt(files[0], cause) from error

    def get_state(self, descriptor: states.ValueStateDescriptor) -> Any:
        return self._bind(descriptor)

    def get_list_state(self, descriptor: states.ListStateDescriptor) -> Any:
        return self._bind(descriptor)

    def get_map_state(self, descriptor: states.MapStateDescriptor) -> Any:
        return self._bind(descriptor)

    def get_reducing_state(self, descriptor: states.ReducingStateDescriptor) -> Any:
        return self._bind(descriptor)

    def get_aggregating_state(self, descriptor: states.AggregatingStateDescriptor) -> Any:
        return self._bind(descriptor)


def open_chain(
    deployment: Deployment, subtask: SubtaskId, store: BlobStore | None, output: Output
) -> list[ChainedOperator]:
    """The operators of a subtask's vertex, wired, restored and open, in chain order."""
    plan = deployment.plan
    vertex = plan.vertices[subtask.vertex]
    restores = deployment.restores.get(subtask, {})
    contexts = []
    chain: dict[str, ChainedOperator] = {}
    for uid in vertex.operators:
        operator = plan.graph.by_uid[uid]
        restore = restores.get(uid, OperatorRestore())
        backend: KeyedBackend | None = None
        if operator.is_keyed:
            backend = HeapBackend(uid, plan.graph.max_parallelism)
            mine = owned(subtask.index, operator.parallelism, plan.graph.max_parallelism)
            _read_keyed(restore, mine, backend, store)
        context = RuntimeContext(operator, subtask.index, deployment, backend, restore)
        contexts.append(context)
        chain[uid] = _make(operator, subtask, deployment, context, _read_elements(restore, store))
        chain[uid].backend = backend
        if uid != vertex.operators[0]:
            edge = operator.inputs[0]
            _attach(chain[edge.upstream], edge.tag, chain[uid])
    if deployment.restored is not None:
        failpoint("restore.read")
    for link in plan.links:
        if link.source == vertex.id:
            sender = link_output(plan, link, subtask, output, deployment.attempt)
            _attach(chain[link.source_operator], link.tag, sender)
    operators = list(chain.values())
    opened: list[ChainedOperator] = []
    try:
        for chained, context in zip(reversed(operators), reversed(contexts), strict=True):
            chained.open()
            opened.insert(0, chained)
            context.is_open = True
            if chained.backend is not None:
                chained.backend.check_all_bound()
    except BaseException:
        close_chain(opened)
        raise
    return operators


def close_chain(operators: list[ChainedOperator]) -> None:
    """Close what was opened, from head to tail. One that fails does not keep the others from closing."""
    for operator in operators:
        try:
            operator.close()
        except Exception:
            traceback.print_exc()


def _attach(upstream: ChainedOperator, tag: str | None, target: Any) -> None:
    (upstream.targets if tag is None else upstream.side_targets.setdefault(tag, [])).append(target)


def _make(
    operator: Operator,
    subtask: SubtaskId,
    deployment: Deployment,
    context: RuntimeContext,
    elements: dict[str, list[Any]],
) -> ChainedOperator:
    match operator.kind:
        case "source":
            return SourceOperator(operator, subtask.index, deployment.attempt, elements)
        case "sink":
            return SinkOperator(operator, subtask.index, deployment.plan.graph.job, deployment.attempt, elements)
        case "process":
            return ProcessOperator(operator, subtask.index, context)
        case _:
            return MapOperator(operator, subtask.index, context)


def _read_keyed(restore: OperatorRestore, mine: KeyGroupRange, backend: KeyedBackend, store: BlobStore | None) -> None:
    for handle in restore.keyed:
        assert store is not None
        rows = snapshots.read_rows(store, handle.file, mine)
        backend.restore(handle.state, handle.kind, handle.type, rows)


def _read_elements(restore: OperatorRestore, store: BlobStore | None) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for state, slices in restore.elements.items():
        for part in slices:
            handle = part.handle
            encoded = handle.inline
            if handle.file is not None:
                assert store is not None
                encoded = snapshots.read_elements(store, handle.file)
            if len(encoded) != handle.count:
                raise SnapshotCorrupt(
                    handle.file.path if handle.file else "the manifest",
                    f"state {state!r} should have {handle.count} elements and has {len(encoded)}",
                )
            try:
                found.setdefault(state, []).extend(plain.decode(e) for e in encoded[part.start : part.stop])
            except ValueError as error:
                where = handle.file.path if handle.file else "the manifest"
                raise SnapshotCorrupt(where, f"state {state!r} has an element that cannot be read: {error}") from error
    return found
