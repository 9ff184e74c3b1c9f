"""Where an attempt starts: claim the right to write, look at what storage has, decide, deal the state out.

The claim comes first. From then on nothing that an older attempt does can change what is found.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from moorline.api.sinks import Sink
from moorline.driver.preflight import check_types
from moorline.errors import InFlightPickled, MoorlineError, SnapshotCorrupt, StorageError
from moorline.model.config import RunConfig
from moorline.model.deployment import Deployment
from moorline.model.graph import Graph
from moorline.model.ids import Attempt, CheckpointId
from moorline.model.manifest import Claim, Manifest, next_checkpoint
from moorline.protocol.lowering import lower
from moorline.protocol.recovery import Found, RestoreFrom, StartEmpty, choose, lineage
from moorline.protocol.redistribution import DEALT_OUT_ANEW, key_groups_of, redistribute, stored_key_groups
from moorline.storage import snapshots
from moorline.storage.blobs import BlobStore
from moorline.storage.checkpoints import History
from moorline.storage.snapshot_folders import open_snapshot

log = logging.getLogger("moorline")


@dataclass(frozen=True)
class Start:
    """An attempt, ready to be launched."""

    deployment: Deployment
    next_checkpoint: int
    #: Checkpoints of this lineage that lie in storage.
    completed: list[int]
    #: Those among them that are never to be restored again.
    given_up: frozenset[int] = frozenset()
    #: The size of the snapshot that it starts from.
    snapshot_bytes: int = 0


def start_without_storage(graph: Graph, attempt: Attempt, config: RunConfig) -> Start:
    """An attempt of a job without checkpoints: empty, or from a savepoint."""
    if config.savepoint is not None:
        return _from_savepoint(graph, attempt, None, config, 1, [])
    return Start(Deployment(lower(graph), attempt, state=config.state), 1, [])


def _from_savepoint(
    graph: Graph, attempt: Attempt, url: str | None, config: RunConfig, next_number: int, completed: list[int]
) -> Start:
    """An attempt from a snapshot that somebody has named. Nothing is taken back: what came after it is not ours."""
    assert config.savepoint is not None
    manifest, store = open_snapshot(config.savepoint)
    damage = _missing_file(manifest, store)
    if damage is not None:
        raise SnapshotCorrupt(store.url, damage)
    check_types(manifest, graph)
    if not config.state.unaligned:
        _refuse_pickles(manifest, f"the snapshot {store.url}")
    graph = _with_key_groups(manifest, graph)
    plan = lower(graph)
    restores = redistribute(manifest, plan, f"the snapshot {store.url}", config.allow_non_restored_state)
    log.info("attempt %d: restore %s", attempt, store.url)
    deployment = Deployment(
        plan, attempt, CheckpointId(manifest.checkpoint), restores, url, store.url, state=config.state
    )
    return Start(deployment, max(next_number, manifest.checkpoint + 1), completed, snapshot_bytes=manifest.size)


def start_from_storage(
    graph: Graph,
    history: History,
    fresh: bool,
    refused: dict[int, str],
    now_ms: int,
    config: RunConfig,
    stopped_at: int = 0,
) -> Start:
    """Claim the next attempt and restore the newest whole checkpoint. ``refused``: see ``recovery.choose``.

    ``stopped_at``: the number of the savepoint that the job was stopped with, which is ``config.savepoint`` then. What
    is older does not count, for us and for whoever takes over.
    """
    attempt = history.claim(fresh, now_ms, config.savepoint or "", stopped_at)
    history.sweep(attempt)
    refused = dict(refused)
    while True:
        records = [Found(r.path, r.entry, r.damage) for r in history.read()]
        decision = choose(records, refused)
        if isinstance(decision, RestoreFrom):
            damage = _missing_file(decision.manifest, history.store)
            if damage is None and decision.passed_over:
                # Sinks are about to take output back: not before it is certain that this one can be restored.
                damage = _damaged_file(decision.manifest, history.store)
            if damage is not None:
                refused[decision.manifest.checkpoint] = damage
                continue
        break
    next_number = next_checkpoint([r.entry for r in records if r.entry is not None])
    completed = [r.entry.checkpoint for r in lineage(records) if isinstance(r.entry, Manifest)]
    given_up = {n for r in records if isinstance(r.entry, Claim) for n in r.entry.given_up}
    log.info("attempt %d: %s", attempt, decision)
    url = history.store.url
    if isinstance(decision, StartEmpty) and decision.savepoint:
        # Ours, or that of another driver that has begun or stopped with it and got no further.
        config = replace(config, restore=decision.savepoint)
        return _from_savepoint(graph, attempt, url, config, next_number, completed)
    if isinstance(decision, StartEmpty):
        return Start(Deployment(lower(graph), attempt, location=url, state=config.state), next_number, completed)
    for path, why in decision.passed_over:
        log.error("checkpoint %s/%s CANNOT BE USED: %s", url, path, why)
    if not isinstance(decision, RestoreFrom):
        path, why = decision.passed_over[0]
        raise SnapshotCorrupt(f"{url}/{path}", f"{why}; and no older checkpoint is whole")
    manifest = decision.manifest
    if decision.passed_over:
        log.error("going back to checkpoint %d; what was done after it is done again", manifest.checkpoint)
        # Before sinks take anything back: a later attempt must not find what was passed over readable after all.
        newer = [r.entry.checkpoint for r in records if isinstance(r.entry, Manifest)]
        passed = [n for n in newer if n > manifest.checkpoint]
        history.give_up(passed, now_ms)
        given_up |= set(passed)
    check_types(manifest, graph)
    if not config.state.unaligned:
        _refuse_pickles(manifest, f"checkpoint {manifest.checkpoint} in {url}")
    # Also if nothing is known to be damaged: an entry of the history that is gone altogether leaves no trace in it.
    _roll_back(graph, manifest.checkpoint)
    graph = _with_key_groups(manifest, graph)
    plan = lower(graph)
    snapshot = f"checkpoint {manifest.checkpoint} in {url}"
    restores = redistribute(manifest, plan, snapshot, config.allow_non_restored_state)
    restored = CheckpointId(manifest.checkpoint)
    deployment = Deployment(plan, attempt, restored, restores, url, state=config.state)
    return Start(deployment, next_number, completed, frozenset(given_up), manifest.size)


def _with_key_groups(manifest: Manifest, graph: Graph) -> Graph:
    """The graph with the number of key groups that it is to run with."""
    stored, wanted = stored_key_groups(manifest), key_groups_of(manifest, graph)
    if stored is not None and stored != wanted:
        log.warning("the snapshot has %d key groups and the job %d: %s", stored, wanted, DEALT_OUT_ANEW)
    return replace(graph, max_parallelism=wanted)


def _refuse_pickles(manifest: Manifest, snapshot: str) -> None:
    for operator in manifest.operators:
        if any(h.pickled for subtask in operator.subtasks for h in subtask.in_flight):
            raise InFlightPickled(operator.uid, snapshot)


def _roll_back(graph: Graph, checkpoint: int) -> None:
    for operator in graph.operators:
        if isinstance(operator.function, Sink):
            try:
                operator.function.roll_back(graph.job, operator.uid, checkpoint)
            except MoorlineError:
                raise
            except Exception as error:  # whatever a user's sink raises
                cause = f"{type(error).__name__}: {error}"
                raise StorageError(f"sink {operator.uid!r}", "roll back", cause) from error


def _missing_file(manifest: Manifest, store: BlobStore) -> str | None:
    """A cheap look before the start; checksums are verified by whoever reads a file."""
    # An increment has files in the folders of the checkpoints it builds on.
    folders = {"/".join(file.path.split("/")[:2]) + "/" for file in manifest.files()}
    sizes = {blob.path: blob.size for folder in folders for blob in store.list(folder)}
    for file in manifest.files():
        if file.path not in sizes:
            return f"its file {file.path} is missing"
        if sizes[file.path] != file.size:
            return f"its file {file.path} has {sizes[file.path]} bytes instead of {file.size}"
    return None


def _damaged_file(manifest: Manifest, store: BlobStore) -> str | None:
    """A look at every byte."""
    try:
        for file in manifest.files():
            snapshots.verify(store, file)
    except SnapshotCorrupt as error:
        return str(error)
    return None


def own_checkpoints(history: History) -> list[int]:
    """The complete checkpoints of the running lineage."""
    records = [Found(r.path, r.entry, r.damage) for r in history.read()]
    return [r.entry.checkpoint for r in lineage(records) if isinstance(r.entry, Manifest)]
