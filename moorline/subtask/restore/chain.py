"""From a deployment to a chain of open operators with their state back."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from moorline.api.functions.reduce import Reduction
from moorline.api.functions.source_function import SinkFunction, SourceFunction
from moorline.api.state.external import ExternalStore
from moorline.errors import SnapshotCorrupt, StateIncompatible
from moorline.failpoints import failpoint
from moorline.model.graph import Operator
from moorline.model.ids import SubtaskId
from moorline.model.key_groups import KeyGroupRange, covering, owned
from moorline.model.manifest import KeyedHandle
from moorline.model.wire.deployment import Deployment, OperatorRestore
from moorline.model.wire.messages import Noticed
from moorline.state.backend import KeyedBackend, Moment, Restored
from moorline.state.composite import CompositeBackend
from moorline.state.external.backend import ExternalBackend
from moorline.state.heap.backend import HeapBackend
from moorline.state.heap.single_key import OneKeyBackend
from moorline.state.rocksdb.backend import RocksDbBackend
from moorline.state.types import plain
from moorline.storage import segments as snapshots
from moorline.storage.blobs import BlobStore
from moorline.storage.stores.counted import CountedStore
from moorline.storage.stores.open import open_store
from moorline.subtask.batch.reduce import BatchReduceOperator
from moorline.subtask.environment import Environment
from moorline.subtask.operators.base import ChainedOperator, Place
from moorline.subtask.operators.function import MapOperator
from moorline.subtask.operators.operator_state import OF_THE_ENDS, OperatorState, RestoredElements
from moorline.subtask.operators.process import BroadcastOperator, ProcessOperator
from moorline.subtask.operators.runtime_context import RuntimeContext
from moorline.subtask.operators.sink import SinkOperator
from moorline.subtask.operators.sink_function import SinkFunctionOperator
from moorline.subtask.operators.source import SourceOperator
from moorline.subtask.operators.source_function import SourceFunctionOperator
from moorline.subtask.operators.timestamps import TimestampsOperator
from moorline.subtask.output import Linked
from moorline.subtask.restore.native_rows import Natives
from moorline.subtask.restore.regroup import dealt_out_anew
from moorline.subtask.restore.rekey import Rekeying
from moorline.subtask.scratch_dir import make_local_folder
from moorline.subtask.windows.operator import window_operator

_NATIVE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


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
    mine = owned(subtask.index, operator.parallelism, key_groups)
    handles = [h for h in restore.keyed if h.kind != "raw"]
    store = restore_store(deployment, environment)

    def restored(piece: KeyGroupRange) -> list[Restored]:
        return [restored_part(h, piece, store) for h in handles if piece & KeyGroupRange(h.first, h.end)]

    rekeying = Rekeying(
        operator.uid,
        operator.options["rekey"],
        backend,
        context.descriptors,
        context.live,
        key_groups,
        mine,
        operator.key_type,
        chained.moment,
        environment.wall_ms,
    )
    rekeying.run(restored, sum(h.rows for h in handles), stored)


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
        except Exception:
            traceback.print_exc()


def _attach(upstream: ChainedOperator, tag: str | None, target: Any) -> None:
    (upstream.targets if tag is None else upstream.side_targets.setdefault(tag, [])).append(target)


def _make(
    operator: Operator, subtask: SubtaskId, deployment: Deployment, environment: Environment
) -> tuple[ChainedOperator, RuntimeContext]:
    restore = deployment.restores.get(subtask, {}).get(operator.uid, OperatorRestore())
    graph, store = deployment.plan.graph, restore_store(deployment, environment)
    mine = owned(subtask.index, operator.parallelism, graph.max_parallelism)
    moment = Moment()
    backend: KeyedBackend | None = None
    if operator.is_keyed:
        backend = _backend(operator, subtask.index, deployment, moment, mine)
        backend.identities.expect(restore.key_kinds)
        if not restore.changes_keys:
            stored = restore.key_groups or graph.max_parallelism
            theirs = covering(mine, graph.max_parallelism, stored)
            restored = [restored_part(h, theirs, store) for h in restore.keyed if h.kind != "raw"]
            is_foreign = deployment.restore_location is not None or restore.key_groups is not None
            if is_foreign:
                # Its files are not ours: the first checkpoint of our own does not build on them.
                restored = [_foreign(one) for one in restored]
            if (is_foreign or deployment.state.rocksdb is None) and any(r.handle.kind == "native" for r in restored):
                with Natives() as natives:
                    restored = list(natives.as_rows(restored, theirs, stored))
            if restore.key_groups is not None:
                restored = [dealt_out_anew(one, mine, graph.max_parallelism) for one in restored]
            backend.restore(restored)
    checkpoint = None if deployment.restored is None else int(deployment.restored)
    elements = _read_elements(restore, store)
    is_end = _is_end(operator)
    own = {state: parts for state, parts in elements.items() if is_end and state in OF_THE_ENDS}
    ends = {state: _plain(state, parts) for state, parts in own.items()}
    users = {state: parts for state, parts in elements.items() if state not in own}
    state = OperatorState(operator.uid, users, _read_raw(restore, mine, store), checkpoint, mine, is_end)
    context = RuntimeContext(operator, subtask.index, deployment, backend, restore)

    def notice(kind: str, text: str) -> None:
        environment.report(Noticed(uid=operator.uid, kind=kind, text=text))

    reuse = deployment.state.object_reuse
    place = Place(operator, subtask.index, environment.wall_ms, moment, backend, state, notice, reuse)
    attempt = deployment.attempt
    match operator.kind:
        case "source" if isinstance(operator.function, SourceFunction):
            return SourceFunctionOperator(place, context), context
        case "source":
            return SourceOperator(place, attempt, ends), context
        case "sink" if isinstance(operator.function, SinkFunction):
            return SinkFunctionOperator(place, context), context
        case "sink":
            return SinkOperator(place, graph.job, attempt, ends), context
        case "timestamps":
            return TimestampsOperator(place), context
        case "process" if deployment.state.one_key and isinstance(operator.function, Reduction):
            return BatchReduceOperator(place, context), context
        case "process" | "co_process":
            return ProcessOperator(place, context), context
        case "broadcast_process":
            return BroadcastOperator(place, context), context
        case "window":
            return window_operator(place, context), context
        case _:
            return MapOperator(place, context), context


def _backend(
    operator: Operator, subtask: int, deployment: Deployment, moment: Moment, mine: KeyGroupRange
) -> KeyedBackend:
    """Where the keyed states of an operator live: on the heap or in RocksDB, and those with a store outside."""
    config, graph, uid = deployment.state, deployment.plan.graph, operator.uid
    dropped: frozenset[str] = operator.options.get("drop_states", frozenset())
    if config.one_key:
        return OneKeyBackend(uid, graph.max_parallelism, moment, key_type=operator.key_type)
    inner: KeyedBackend
    if config.rocksdb is None:
        inner = HeapBackend(
            uid,
            graph.max_parallelism,
            moment,
            incremental=config.incremental,
            key_type=operator.key_type,
            allow_dropped=dropped,
        )
    else:
        folder = make_local_folder(config.rocksdb.folder, graph.job, uid, subtask, deployment.attempt)
        inner = RocksDbBackend(
            uid,
            graph.max_parallelism,
            moment,
            key_groups=mine,
            folder=folder,
            incremental=config.incremental,
            memory_budget=config.rocksdb.memory_bytes,
            key_type=operator.key_type,
            allow_dropped=dropped,
        )

    def external(store: ExternalStore) -> ExternalBackend:
        return ExternalBackend(
            uid,
            graph.max_parallelism,
            moment,
            store=store,
            job=graph.job,
            key_groups=mine,
            attempt=int(deployment.attempt),
            restored=None if deployment.restored is None else int(deployment.restored),
            key_type=operator.key_type,
            allow_dropped=dropped,
        )

    return CompositeBackend(uid, inner, external, allow_dropped=dropped)


def restore_store(deployment: Deployment, environment: Environment) -> BlobStore | None:
    """Where the restored snapshot lies. What is read from it is counted."""
    store = open_store(deployment.restore_location) if deployment.restore_location else environment.store
    return None if store is None else CountedStore(store, environment.reads)


# --- reading ------------------------------------------------------------------------------------


def restored_part(handle: KeyedHandle, mine: KeyGroupRange, store: BlobStore | None) -> Restored:
    assert store is not None

    def tables() -> Iterator[pa.Table]:
        if handle.file is None:
            raise SnapshotCorrupt("the manifest", f"state {handle.state!r} has no file")
        return snapshots.iterate_rows(store, handle.file, KeyGroupRange(handle.first, handle.end) & mine)

    def fetch(folder: Path) -> None:
        for native in handle.files:
            if not _NATIVE_NAME.fullmatch(native.name):
                raise SnapshotCorrupt("the manifest", f"{native.name!r:.100} is no name for a file of a backend")
            snapshots.fetch_file(store, native.file, folder / native.name)

    return Restored(handle, tables, fetch)


def _foreign(one: Restored) -> Restored:
    handle = one.handle if one.handle.kind == "native" else msgspec.structs.replace(one.handle, file=None)
    return replace(one, handle=handle)


def _is_end(operator: Operator) -> bool:
    """Are its elements positions or committables, as its own operator wrote them?"""
    return operator.kind in ("source", "sink") and not isinstance(operator.function, (SourceFunction, SinkFunction))


def _read_elements(restore: OperatorRestore, store: BlobStore | None) -> RestoredElements:
    found: RestoredElements = {}
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
            found.setdefault(state, []).append((handle.type, encoded[part.start : part.stop]))
    return found


def _plain(state: str, parts: list[tuple[str, list[bytes]]]) -> list[Any]:
    try:
        return [plain.decode(e) for _, encoded in parts for e in encoded]
    except ValueError as error:
        where, cause = "the manifest", f"state {state!r} has an element that cannot be read: {error}"
        raise SnapshotCorrupt(where, cause) from error


def _read_raw(restore: OperatorRestore, mine: KeyGroupRange, store: BlobStore | None) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for handle in restore.keyed:
        if handle.kind == "raw":
            for table in restored_part(handle, mine, store).tables():
                found.update(zip(table["key_group"].to_pylist(), table["value"].to_pylist()))
    return found
