"""From a deployment to a chain of open operators with their state back."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from moorline.api.columns.aggregation import Aggregation
from moorline.api.functions.reduce import Reduction
from moorline.api.functions.source_function import SinkFunction, SourceFunction
from moorline.api.metrics import MetricRegistry
from moorline.api.state.external import ExternalStore
from moorline.errors import StateIncompatible
from moorline.failpoints import failpoint
from moorline.model.connector_states import CONNECTOR_STATES
from moorline.model.graph import Operator, OperatorKind
from moorline.model.ids import SubtaskId
from moorline.model.key_groups import KeyGroupRange, covering, owned
from moorline.model.wire.deployment import Deployment, OperatorRestore
from moorline.model.wire.messages import Noticed
from moorline.snapshots.rows import Scratch
from moorline.state.backend import KeyedBackend, OperatorClock, RestoredRows
from moorline.state.columns.backend import ColumnBackend
from moorline.state.composite import CompositeBackend
from moorline.state.external.backend import ExternalBackend
from moorline.state.heap.backend import HeapBackend
from moorline.state.heap.single_key import OneKeyBackend
from moorline.state.rocksdb.backend import RocksDbBackend
from moorline.storage.blobs import BlobStore
from moorline.storage.stores.counted import CountedStore
from moorline.storage.stores.open import open_store
from moorline.subtask.batch.key_groups import KeyGroupAggregates, KeyGroupWindows
from moorline.subtask.batch.reduce import BatchReduceOperator
from moorline.subtask.columns.aggregate import AggregateOperator
from moorline.subtask.columns.batch_process import BatchProcessOperator
from moorline.subtask.columns.eligible import keeps_columns, works_by_key_group
from moorline.subtask.columns.expressions import SelectOperator, WhereOperator
from moorline.subtask.columns.operators import BatchOperator, ToColumnsOperator
from moorline.subtask.columns.windows import ColumnWindowOperator
from moorline.subtask.environment import Environment
from moorline.subtask.operators.base import ChainedOperator, OperatorContext
from moorline.subtask.operators.function import MapOperator
from moorline.subtask.operators.operator_state import OperatorState
from moorline.subtask.operators.process import BroadcastOperator, ProcessOperator
from moorline.subtask.operators.runtime_context import RuntimeContext
from moorline.subtask.operators.sink import SinkOperator
from moorline.subtask.operators.sink_function import SinkFunctionOperator
from moorline.subtask.operators.source import SourceOperator
from moorline.subtask.operators.source_function import SourceFunctionOperator
from moorline.subtask.operators.timestamps import TimestampsOperator
from moorline.subtask.output import Linked
from moorline.subtask.restore.regroup import filter_to_key_groups
from moorline.subtask.restore.rekey import Rekeying
from moorline.subtask.restore.scratch_dir import make_local_folder
from moorline.subtask.restore.state import as_rows, as_stored, keyed_handles, plain_elements, read_elements, read_raw
from moorline.subtask.windows.operator import window_operator


def open_chain(
    deployment: Deployment, subtask: SubtaskId, environment: Environment, output: Linked
) -> list[ChainedOperator]:
    """The operators of a subtask's vertex, wired, restored and open, in chain order."""
    plan = deployment.plan
    vertex = plan.vertices[subtask.vertex]
    contexts = []
    chain: dict[str, ChainedOperator] = {}
    for uid in vertex.operators:
        operator = plan.graph.by_uid[uid]
        chain[uid], context = _make(operator, subtask, deployment, environment)
        contexts.append(context)
        if uid != vertex.operators[0]:
            edge = operator.inputs[0]
            _attach(chain[edge.upstream], edge.tag, chain[uid])
    if deployment.restored is not None:
        failpoint("restore.read")
    for link in plan.links:
        if link.source == vertex.id:
            _attach(chain[link.source_operator], link.tag, output.link_to(plan, link, subtask))
    operators = list(chain.values())
    opened: list[ChainedOperator] = []
    try:
        for chained, context in zip(reversed(operators), reversed(contexts), strict=True):
            chained.open()
            opened.insert(0, chained)
            _change_keys(chained, context, deployment, subtask, environment)
            _close_registration(chained, context)
    except BaseException:
        close_chain(operators, opened)
        raise
    return operators


def _change_keys(
    chained: ChainedOperator,
    context: RuntimeContext,
    deployment: Deployment,
    subtask: SubtaskId,
    environment: Environment,
) -> None:
    """Carry restored state over to other keys, where the user wants that."""
    operator, backend = chained.operator, chained.backend
    restore = deployment.restores.get(subtask, {}).get(operator.uid, OperatorRestore())
    if backend is None or not restore.changes_keys:
        return
    key_groups = deployment.plan.graph.max_parallelism
    stored = restore.key_groups or key_groups
    own_groups = owned(subtask.index, operator.parallelism, key_groups)
    handles, store = keyed_handles(restore), restore_store(deployment, environment)
    rekeying = Rekeying(
        operator.uid,
        operator.options["rekey"],
        backend,
        context.descriptors,
        context.live,
        key_groups,
        own_groups,
        operator.key_type,
        chained.moment,
        environment.wall_ms,
    )
    with Scratch() as scratch:

        def restored(piece: KeyGroupRange) -> Iterator[RestoredRows]:
            return as_rows([h for h in handles if piece & h.key_groups], piece, store, scratch)

        rekeying.run(handles, restored, stored)


def _close_registration(chained: ChainedOperator, context: RuntimeContext) -> None:
    """From now on no state can be asked for; and what was restored must have found its place."""
    context.is_open = True
    uid = chained.operator.uid
    dropped = chained.operator.options.get("drop_states", frozenset())
    for name in chained.state.close_registration():
        if dropped is not None and name not in dropped:
            raise StateIncompatible(uid, name, "operator state", "nothing: the operator has no such state")
    if chained.backend is not None:
        chained.backend.check_all_bound()


def close_chain(operators: list[ChainedOperator], opened: list[ChainedOperator] | None = None) -> None:
    """Close what was opened, from head to tail, then all state. One that fails does not keep the others from it."""
    functions = [operator.close for operator in (operators if opened is None else opened)]
    for close in functions + [o.backend.close for o in operators if o.backend is not None]:
        try:
            close()
        except Exception:  # the others are to be closed too
            traceback.print_exc()


def _attach(upstream: ChainedOperator, tag: str | None, target: Any) -> None:
    (upstream.targets if tag is None else upstream.side_targets.setdefault(tag, [])).append(target)


def _make(
    operator: Operator, subtask: SubtaskId, deployment: Deployment, environment: Environment
) -> tuple[ChainedOperator, RuntimeContext]:
    """One operator with its restored state, not open yet."""
    restore = deployment.restores.get(subtask, {}).get(operator.uid, OperatorRestore())
    graph, store = deployment.plan.graph, restore_store(deployment, environment)
    key_groups = owned(subtask.index, operator.parallelism, graph.max_parallelism)
    moment = OperatorClock()
    backend: KeyedBackend | None = None
    if operator.is_keyed:
        backend = _backend(operator, subtask.index, deployment, moment, key_groups)
        backend.identities.expect(restore.key_kinds)
        if not restore.changes_keys:
            _restore_keyed(backend, restore, deployment, key_groups, store)
    checkpoint = None if deployment.restored is None else int(deployment.restored)
    elements = read_elements(restore, store)
    is_end = _is_end(operator)
    own = {state: parts for state, parts in elements.items() if is_end and state in CONNECTOR_STATES}
    ends = {state: plain_elements(state, parts) for state, parts in own.items()}
    users = {state: parts for state, parts in elements.items() if state not in own}
    state = OperatorState(operator.uid, users, read_raw(restore, key_groups, store), checkpoint, key_groups, is_end)

    def notice(kind: str, text: str) -> None:
        environment.report(Noticed(uid=operator.uid, kind=kind, text=text))

    metrics = MetricRegistry(operator.uid, notice)
    context = RuntimeContext(operator, subtask.index, deployment, backend, restore, metrics)
    reuse = deployment.state.object_reuse
    place = OperatorContext(
        operator,
        subtask.index,
        environment.wall_ms,
        moment,
        backend,
        state,
        notice,
        reuse,
        environment.commits,
        environment.outages,
        metrics,
    )
    return _operator(place, context, deployment, ends), context


def _restore_keyed(
    backend: KeyedBackend,
    restore: OperatorRestore,
    deployment: Deployment,
    key_groups: KeyGroupRange,
    store: BlobStore | None,
) -> None:
    """Give a backend its part of the restored state back, as stored files or as rows."""
    most = deployment.plan.graph.max_parallelism
    stored_groups = covering(key_groups, most, restore.key_groups or most)
    handles = keyed_handles(restore)
    is_foreign = deployment.restore_location is not None or restore.key_groups is not None
    if not is_foreign and deployment.state.rocksdb is not None:
        backend.restore(list(as_stored(handles, stored_groups, store)))
        return
    rows = list(as_rows(handles, stored_groups, store, Scratch()))
    if is_foreign:
        # Its files are not ours: the first checkpoint of our own does not build on them.
        rows = [replace(part, handle=msgspec.structs.replace(part.handle, file=None)) for part in rows]
    if restore.key_groups is not None:
        rows = [filter_to_key_groups(part, key_groups, most) for part in rows]
    backend.restore(rows)


def _operator(
    place: OperatorContext, context: RuntimeContext, deployment: Deployment, ends: dict[str, list[Any]]
) -> ChainedOperator:
    """The operator by its kind. ``ends``: restored positions of a source, committables of a sink."""
    operator, attempt = place.operator, deployment.attempt
    match operator.kind:
        case OperatorKind.SOURCE if isinstance(operator.function, SourceFunction):
            return SourceFunctionOperator(place, context)
        case OperatorKind.SOURCE:
            return SourceOperator(place, attempt, ends)
        case OperatorKind.SINK if isinstance(operator.function, SinkFunction):
            return SinkFunctionOperator(place, context)
        case OperatorKind.SINK:
            return SinkOperator(place, deployment.plan.graph.job, attempt, deployment.lineage, ends)
        case OperatorKind.TIMESTAMPS:
            return TimestampsOperator(place)
        case OperatorKind.AGGREGATE if deployment.state.one_key and isinstance(place.backend, ColumnBackend):
            return KeyGroupAggregates(place)
        case OperatorKind.WINDOW if deployment.state.one_key and isinstance(place.backend, ColumnBackend):
            return KeyGroupWindows(place)
        case OperatorKind.PROCESS | OperatorKind.AGGREGATE if deployment.state.one_key and isinstance(
            operator.function, (Reduction, Aggregation)
        ):
            return BatchReduceOperator(place, context)
        case OperatorKind.AGGREGATE if isinstance(place.backend, (ColumnBackend, RocksDbBackend)):
            return AggregateOperator(place)
        case OperatorKind.PROCESS | OperatorKind.CO_PROCESS | OperatorKind.AGGREGATE:
            return ProcessOperator(place, context)
        case OperatorKind.BROADCAST_PROCESS:
            return BroadcastOperator(place, context)
        case OperatorKind.WINDOW if isinstance(place.backend, (ColumnBackend, RocksDbBackend)):
            return ColumnWindowOperator(place)
        case OperatorKind.WINDOW:
            return window_operator(place, context)
        case OperatorKind.WITH_SCHEMA:
            return ToColumnsOperator(place)
        case OperatorKind.MAP_BATCHES | OperatorKind.FILTER_BATCHES:
            return BatchOperator(place)
        case OperatorKind.PROCESS_BATCHES | OperatorKind.DEDUPLICATE | OperatorKind.TOP:
            return BatchProcessOperator(place, context, deployment.state.one_key)
        case OperatorKind.SELECT:
            return SelectOperator(place)
        case OperatorKind.WHERE:
            return WhereOperator(place)
        case _:
            return MapOperator(place, context)


def _backend(
    operator: Operator, subtask: int, deployment: Deployment, moment: OperatorClock, own_groups: KeyGroupRange
) -> KeyedBackend:
    """The backend of the keyed states of an operator: on the heap or in RocksDB, and those with a store outside."""
    config, graph, uid = deployment.state, deployment.plan.graph, operator.uid
    dropped: frozenset[str] = operator.options.get("drop_states", frozenset())
    if config.one_key and works_by_key_group(operator):
        return ColumnBackend(uid, graph.max_parallelism, moment, key_type=operator.key_type)
    if config.one_key:
        return OneKeyBackend(uid, graph.max_parallelism, moment, key_type=operator.key_type)
    inner: KeyedBackend
    if config.rocksdb is None:
        kind = ColumnBackend if keeps_columns(operator) else HeapBackend
        inner = kind(
            uid,
            graph.max_parallelism,
            moment,
            incremental=config.incremental,
            key_type=operator.key_type,
            allow_dropped=dropped,
            folding=config.folding,
        )
        if isinstance(inner, ColumnBackend):
            return inner
    else:
        folder = make_local_folder(config.rocksdb.folder, graph.job, uid, subtask, deployment.attempt)
        rocksdb = RocksDbBackend(
            uid,
            graph.max_parallelism,
            moment,
            key_groups=own_groups,
            folder=folder,
            incremental=config.incremental,
            memory_budget=config.rocksdb.memory_bytes,
            key_type=operator.key_type,
            allow_dropped=dropped,
        )
        if keeps_columns(operator):
            return rocksdb
        inner = rocksdb

    def external(store: ExternalStore) -> ExternalBackend:
        return ExternalBackend(
            uid,
            graph.max_parallelism,
            moment,
            store=store,
            job=graph.job,
            key_groups=own_groups,
            attempt=int(deployment.attempt),
            restored=None if deployment.restored is None else int(deployment.restored),
            key_type=operator.key_type,
            allow_dropped=dropped,
        )

    return CompositeBackend(uid, inner, external, allow_dropped=dropped)


def restore_store(deployment: Deployment, environment: Environment) -> BlobStore | None:
    """The store of the restored snapshot. What is read from it is counted."""
    store = open_store(deployment.restore_location) if deployment.restore_location else environment.store
    return None if store is None else CountedStore(store, environment.reads)


def _is_end(operator: Operator) -> bool:
    """Are its elements positions or committables, as its own operator wrote them?"""
    return operator.kind in (OperatorKind.SOURCE, OperatorKind.SINK) and not isinstance(
        operator.function, (SourceFunction, SinkFunction)
    )
