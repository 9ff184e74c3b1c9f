"""The start of an attempt: claim the right to write, look at what storage has, decide, deal the state out.

The claim comes first. From then on nothing that an older attempt does can change what is found.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from moorline.api.sinks import Sink
from moorline.driver.connectors.committing import Committables, committables_in, global_sinks
from moorline.driver.connectors.enumerating import RestoredSplits, enumerated_sources, splits_in
from moorline.driver.processes import is_alive
from moorline.errors import (
    HistoryBroken,
    InFlightPickled,
    JobNotEnded,
    MoorlineError,
    OutputCannotBeUndone,
    SnapshotCorrupt,
    SnapshotNotFound,
    StorageError,
)
from moorline.model.config.run import RunConfig
from moorline.model.facts import HistoryRecord
from moorline.model.graph import Graph
from moorline.model.ids import Attempt, CheckpointId
from moorline.model.manifest import Claim, Manifest, next_checkpoint
from moorline.model.wire.deployment import Deployment
from moorline.protocol.lowering import lower
from moorline.protocol.recovery import (
    Decision,
    Refuse,
    RestoreFrom,
    StartEmpty,
    choose,
    line,
    lineage,
    own_lineages,
    unneeded_damage,
)
from moorline.protocol.redistribution import DEALT_OUT_ANEW, key_groups_of, redistribute, stored_key_groups
from moorline.snapshots.compatibility import check_keys, check_types, with_key_kinds
from moorline.snapshots.folders import open_snapshot
from moorline.storage import segments as snapshots
from moorline.storage.blobs import BlobStore
from moorline.storage.chain import Record
from moorline.storage.history import History

log = logging.getLogger("moorline")


@dataclass(frozen=True)
class AttemptStart:
    """An attempt, ready to be launched."""

    deployment: Deployment
    next_checkpoint: int
    #: Checkpoints of this lineage that lie in storage.
    completed: list[int]
    #: Those among them that are never to be restored again.
    given_up: frozenset[int] = frozenset()
    #: The size of the snapshot that it starts from.
    snapshot_bytes: int = 0
    #: What that snapshot has staged for the driver to commit.
    committables: Committables = field(default_factory=dict)
    #: What that snapshot has about the splits of sources whose splits the driver finds.
    splits: dict[str, RestoredSplits] = field(default_factory=dict)


def start_without_storage(graph: Graph, attempt: Attempt, config: RunConfig) -> AttemptStart:
    """An attempt of a job without checkpoints: empty, or from a savepoint."""
    if config.savepoint is not None:
        return _from_savepoint(graph, attempt, None, config, 1, [])
    return AttemptStart(Deployment(lower(graph), attempt, state=config.state, lineage=_new_lineage()), 1, [])


def _from_savepoint(
    graph: Graph,
    attempt: Attempt,
    url: str | None,
    config: RunConfig,
    next_number: int,
    completed: list[int],
    back_to: int | None = None,
    records: Sequence[HistoryRecord] = (),
) -> AttemptStart:
    """An attempt from a snapshot that was named.

    What came after it is taken back only if it is our own: if the job was stopped with it, or has lost all that it had
    completed since.
    """
    assert config.savepoint is not None
    manifest, store = open_snapshot(config.savepoint)
    damage = _missing_file(manifest, store)
    if damage is not None:
        raise SnapshotCorrupt(store.url, damage)
    check_types(manifest, graph)
    manifest = with_key_kinds(manifest, graph, store)
    check_keys(manifest, graph)
    if not config.state.unaligned:
        _refuse_pickles(manifest, graph, f"the snapshot {store.url}")
    if back_to is not None:
        _roll_back(graph, max(back_to, manifest.checkpoint), records)
    graph = _with_key_groups(manifest, graph)
    plan = lower(graph)
    restores = redistribute(manifest, plan, f"the snapshot {store.url}", config.allow_non_restored_state)
    log.debug("attempt %d: restore %s", attempt, store.url)
    deployment = Deployment(
        plan,
        attempt,
        CheckpointId(manifest.checkpoint),
        restores,
        url,
        store.url,
        state=config.state,
        lineage=_new_lineage(line(records)),
    )
    return AttemptStart(
        deployment,
        max(next_number, manifest.checkpoint + 1),
        completed,
        snapshot_bytes=manifest.size,
        committables=_staged_in(manifest, graph, store),
        splits=_splits_in(manifest, graph, store),
    )


def start_from_storage(
    graph: Graph,
    history: History,
    fresh: bool,
    refused: dict[int, str],
    now_ms: int,
    config: RunConfig,
    stopped_at: int = 0,
) -> AttemptStart:
    """Claim the next attempt and restore the newest whole checkpoint. ``refused``: see ``recovery.choose``.

    ``stopped_at``: the number of the savepoint that the job was stopped with, which is ``config.savepoint`` then. What
    is older does not count, for us and for a driver that takes over.
    Nothing is deleted before it is certain where the attempt starts.
    """

    def admit(records: list[Record]) -> None:
        if not config.take_over:
            refuse_beside_another(records, history, graph.job)

    attempt = history.claim(fresh, now_ms, config.savepoint or "", stopped_at, admit)
    records, decision = _decide(history, refused)
    log.debug("attempt %d: %s", attempt, decision)
    lost_end = _look_for_unknown_attempts(history, records, decision)
    start = _start(graph, history, attempt, records, decision, now_ms, config, lost_end)
    history.sweep(attempt)
    return start


def _decide(history: History, refused: dict[int, str]) -> tuple[list[HistoryRecord], Decision]:
    refused = dict(refused)
    while True:
        records = [r.fact for r in history.read()]
        decision = choose(records, refused)
        if isinstance(decision, StartEmpty) and decision.stopped_at and decision.stopped_at not in refused:
            damage = _unusable_savepoint(decision)
            if damage is None:
                return records, decision
            refused[decision.stopped_at] = damage
            continue
        if not isinstance(decision, RestoreFrom):
            return records, decision
        damage = _missing_file(decision.manifest, history.store)
        if damage is None and decision.passed_over:
            # Sinks are about to take output back: not before it is certain that this one can be restored.
            damage = _damaged_file(decision.manifest, history.store)
        if damage is None:
            return records, decision
        refused[decision.manifest.checkpoint] = damage


def _full(url: str, path: str) -> str:
    """An entry of the history at ``url``; a savepoint has a URL of its own."""
    return path if "://" in path else f"{url}/{path}"


def _look_for_unknown_attempts(history: History, records: list[HistoryRecord], decision: Decision) -> str:
    """Data of attempts that no entry knows of: the end of the history is lost, or an old copy has taken its place.

    Says so, if it is.
    """
    ours = history.attempt
    unknown = [checkpoint for checkpoint, attempt in history.written() if attempt >= ours]
    if not unknown:
        return ""
    cause = f"there are files of checkpoint {max(unknown)} by an attempt that the history does not know"
    newest = records[-1].entry
    is_fresh = isinstance(newest, Claim) and newest.fresh
    if isinstance(decision, StartEmpty) and not decision.savepoint and not is_fresh:
        raise HistoryBroken(f"{history.store.url}/history", cause)
    log.error("%s: %s; what came after that point is done again", history.store.url, cause)
    return cause


def _start(
    graph: Graph,
    history: History,
    attempt: Attempt,
    records: list[HistoryRecord],
    decision: Decision,
    now_ms: int,
    config: RunConfig,
    lost_end: str,
) -> AttemptStart:
    next_number = next_checkpoint([r.entry for r in records if r.entry is not None])
    completed = [r.entry.checkpoint for r in lineage(records) if isinstance(r.entry, Manifest)]
    given_up = {n for r in records if isinstance(r.entry, Claim) for n in r.entry.given_up}
    url = history.store.url
    for path, why in decision.passed_over:
        log.error("%s CANNOT BE USED: %s", _full(url, path), why)
    for record in unneeded_damage(records, decision):
        log.warning(
            "%s: %s. What is restored does not need it; `moorline fsck %s` says more", record.path, record.damage, url
        )
    if isinstance(decision, Refuse):
        path, why = decision.passed_over[0]
        raise HistoryBroken(_full(url, path), f"{why}; and no older checkpoint is whole")
    if decision.passed_over:
        given_up |= _give_up_newer(graph, history, records, decision, completed, now_ms)
        # What was lost may have had any number that has files.
        next_number = max([next_number, *(checkpoint + 1 for checkpoint, _ in history.written())])
    if isinstance(decision, StartEmpty) and decision.savepoint:
        # Ours, or that of another driver that has begun or stopped with it and got no further.
        config = replace(config, restore=decision.savepoint)
        return _from_savepoint(graph, attempt, url, config, next_number, completed, decision.back_to, records)
    if isinstance(decision, StartEmpty):
        if decision.back_to is not None:
            _roll_back(graph, decision.back_to, records)
        begun = _new_lineage(line(records))
        deployment = Deployment(lower(graph), attempt, location=url, state=config.state, lineage=begun)
        return AttemptStart(deployment, next_number, completed)
    manifest = decision.manifest
    check_types(manifest, graph)
    manifest = with_key_kinds(manifest, graph, history.store)
    check_keys(manifest, graph)
    if not config.state.unaligned:
        _refuse_pickles(manifest, graph, f"checkpoint {manifest.checkpoint} in {url}")
    if lost_end:
        _refuse_to_repeat(graph, manifest.checkpoint, f"{url}/history", lost_end)
    if decision.passed_over or lost_end or _was_gone_back_past(records, manifest.checkpoint):
        _roll_back(graph, manifest.checkpoint, records)
    graph = _with_key_groups(manifest, graph)
    plan = lower(graph)
    snapshot = f"checkpoint {manifest.checkpoint} in {url}"
    restores = redistribute(manifest, plan, snapshot, config.allow_non_restored_state)
    restored = CheckpointId(manifest.checkpoint)
    going_on = manifest.lineage or _new_lineage(line(records))
    deployment = Deployment(plan, attempt, restored, restores, url, state=config.state, lineage=going_on)
    staged = _staged_in(manifest, graph, history.store)
    splits = _splits_in(manifest, graph, history.store)
    return AttemptStart(deployment, next_number, completed, frozenset(given_up), manifest.size, staged, splits)


def _give_up_newer(
    graph: Graph,
    history: History,
    records: list[HistoryRecord],
    decision: RestoreFrom | StartEmpty,
    completed: list[int],
    now_ms: int,
) -> set[int]:
    """Give up for good what is newer than the snapshot that is gone back to. Returns the numbers of checkpoints."""
    newest_kept = decision.manifest.checkpoint if isinstance(decision, RestoreFrom) else decision.back_to or 0
    _refuse_to_repeat(graph, newest_kept, *decision.passed_over[0])
    target = decision.savepoint if isinstance(decision, StartEmpty) else f"checkpoint {newest_kept}"
    log.error("going back to %s; what was done after it is done again", target)
    # Before sinks take anything back: a later attempt must not find what was passed over readable after all.
    passed = [n for n in completed if n > newest_kept]
    lost = {path for path, _ in decision.passed_over}
    history.give_up(passed, now_ms, [r.seq for r in records if r.damage is not None and r.path in lost])
    return set(passed)


def refuse_beside_another(records: list[Record], history: History, job: str) -> None:
    """Raise JobNotEnded if the newest driver of a history is not ours and may still run.

    Claims of earlier versions do not name their process, and nothing is kept from beginning anew after them.
    """
    newest = next((r for r in reversed(records) if isinstance(r.entry, Claim)), None)
    if newest is None or not isinstance(newest.entry, Claim) or newest.writer == history.writer:
        return
    claim = newest.entry
    lives = is_alive(claim.process, newest.writer) if claim.process else False
    if not claim.ended and lives is not False:
        raise JobNotEnded(job, history.store.url, bool(lives), claim.attempt)


def _new_lineage(begins: str = "") -> str:
    return (begins + uuid.uuid4().hex)[:32]


def _staged_in(manifest: Manifest, graph: Graph, store: BlobStore) -> Committables:
    handles = [subtask for operator in manifest.operators for subtask in operator.subtasks]
    return committables_in(handles, global_sinks(graph).keys(), store)


def _splits_in(manifest: Manifest, graph: Graph, store: BlobStore) -> dict[str, RestoredSplits]:
    handles = [subtask for operator in manifest.operators for subtask in operator.subtasks]
    return splits_in(handles, enumerated_sources(graph), store)


def _with_key_groups(manifest: Manifest, graph: Graph) -> Graph:
    """The graph with the number of key groups that it is to run with."""
    stored, wanted = stored_key_groups(manifest), key_groups_of(manifest, graph)
    if stored is not None and stored != wanted:
        log.warning("the snapshot has %d key groups and the job %d: %s", stored, wanted, DEALT_OUT_ANEW)
    return replace(graph, max_parallelism=wanted)


def _refuse_pickles(manifest: Manifest, graph: Graph, snapshot: str) -> None:
    for entry in manifest.operators:
        operator = graph.by_uid.get(entry.uid)
        for handle in (h for subtask in entry.subtasks for h in subtask.in_flight if h.pickled):
            if operator is None or not operator.may_unpickle(handle.upstream, handle.tag):
                raise InFlightPickled(entry.uid, snapshot)


def _was_gone_back_past(records: list[HistoryRecord], checkpoint: int) -> bool:
    """Has a driver given up something newer than ``checkpoint``, and maybe died before sinks had taken it back?"""
    restored = max(
        (r.seq for r in records if isinstance(r.entry, Manifest) and r.entry.checkpoint == checkpoint), default=0
    )
    claims = [r.entry for r in records if isinstance(r.entry, Claim)]
    return any(
        any(number > checkpoint for number in claim.given_up) or any(seq > restored for seq in claim.given_up_entries)
        for claim in claims
    )


def _refuse_to_repeat(graph: Graph, checkpoint: int, path: str, why: str) -> None:
    """Raise OutputCannotBeUndone if a sink keeps what was written after ``checkpoint``. Nothing has changed yet."""
    for operator in graph.operators:
        if isinstance(operator.function, Sink) and operator.function.on_roll_back == "fail":
            raise OutputCannotBeUndone(operator.uid, checkpoint, f"{path}: {why}")


def _roll_back(graph: Graph, checkpoint: int, records: Sequence[HistoryRecord]) -> None:
    lineages = own_lineages(records)
    for operator in graph.operators:
        if isinstance(operator.function, Sink):
            try:
                operator.function.roll_back(graph.job, operator.uid, checkpoint, lineages)
            except MoorlineError:
                raise
            except Exception as error:  # whatever a user's sink raises
                cause = f"{type(error).__name__}: {error}"
                raise StorageError(f"sink {operator.uid!r}", "roll back", cause) from error


def _missing_file(manifest: Manifest, store: BlobStore) -> str | None:
    """A cheap look before the start; checksums are verified when a file is read."""
    # An increment has files in the folders of the checkpoints it builds on.
    folders = {"/".join(file.path.split("/")[:2]) + "/" for file in manifest.files()}
    sizes = {blob.path: blob.size for folder in folders for blob in store.list(folder)}
    for file in manifest.files():
        if file.path not in sizes:
            return f"its file {file.path} is missing"
        if sizes[file.path] != file.size:
            return f"its file {file.path} has {sizes[file.path]} bytes instead of {file.size}"
    return None


def _unusable_savepoint(start: StartEmpty) -> str | None:
    """The flaw of a stop's savepoint, if it cannot be restored. Reads every byte if sinks take output back for it."""
    try:
        manifest, store = open_snapshot(start.savepoint)
    except (SnapshotNotFound, SnapshotCorrupt) as error:
        return str(error)
    if manifest.checkpoint != start.stopped_at:
        return f"the job was stopped with snapshot {start.stopped_at}, and snapshot {manifest.checkpoint} is there"
    return _missing_file(manifest, store) or (_damaged_file(manifest, store) if start.passed_over else None)


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
    records = [r.fact for r in history.read()]
    return [r.entry.checkpoint for r in lineage(records) if isinstance(r.entry, Manifest)]
