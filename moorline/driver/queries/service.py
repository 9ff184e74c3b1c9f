"""QueryService a job for the content of a key, from any thread of the driver.

    live         what the subtask has now, between two batches. Waits, up to a limit, for a subtask that is busy and
                 for a job that is restarting
    checkpoint   what the newest complete checkpoint has, read from storage: the running job is not touched

``spark/handle.py`` gives this to the user as ``handle.query``.
"""

from __future__ import annotations

import queue
import time
from typing import Any, Literal

from moorline.api.state.states import declared_states
from moorline.driver.loop import DriverLoop
from moorline.driver.queries.pending import LiveQuery, QueryRefused
from moorline.errors import (
    InvalidArgument,
    QueryFailed,
    QueryUnavailable,
    SnapshotCorrupt,
    SnapshotNotFound,
    StorageError,
)
from moorline.model.graph import Graph
from moorline.model.wire.messages import Answer
from moorline.snapshots import lookup
from moorline.snapshots.folders import newest
from moorline.snapshots.locate import LocatedSnapshot
from moorline.state import peeking
from moorline.state.peeking import Peeked
from moorline.storage.stores.open import open_store

Level = Literal["live", "checkpoint"]
#: How soon a job that is not at work is asked again, and how soon it is noticed that it has ended.
_AGAIN_SECONDS, _LOOK_SECONDS = 0.05, 0.2


class QueryService:
    """The queries of one job. ``url`` is its folder of checkpoints, if it has one."""

    def __init__(self, graph: Graph, loop: DriverLoop, url: str | None) -> None:
        self._graph, self._loop, self._url = graph, loop, url

    def query(self, uid: str, state: str, key: bytes, level: Level, timeout_ms: int) -> Any:
        """The value under an encoded key, or None. Raises :class:`QueryFailed`."""
        if level not in ("live", "checkpoint"):
            raise InvalidArgument("level", level, "Write 'live' or 'checkpoint'.")
        operator = self._graph.by_uid.get(uid)
        if operator is None or not operator.is_keyed:
            known = ", ".join(o.uid for o in self._graph.operators if o.is_keyed) or "none"
            raise QueryFailed(uid, state, f"the job has no such operator with a key; those with one are: {known}")
        if level == "checkpoint":
            return self._in_checkpoint(uid, state, key)
        return self._live(uid, state, key, timeout_ms)

    def _live(self, uid: str, state: str, key: bytes, timeout_ms: int) -> Any:
        deadline = time.monotonic() + timeout_ms / 1000
        why = "no subtask has been asked yet"
        while not self._loop.status.is_terminal:
            if time.monotonic() >= deadline:
                advice = "Ask again, give it more time (timeout=), or ask for level='checkpoint'"
                raise QueryUnavailable(uid, state, f"no answer within {timeout_ms:,} ms: {why}. {advice}")
            results: queue.SimpleQueue[Answer | QueryRefused] = queue.SimpleQueue()
            outcome = self._ask(LiveQuery(uid, state, key, results.put), results, deadline)
            match outcome:
                case Answer(error=""):
                    return _value(uid, state, outcome)
                case Answer(error=error):
                    raise QueryFailed(uid, state, error)
                case QueryRefused(why=why):
                    time.sleep(max(0.0, min(_AGAIN_SECONDS, deadline - time.monotonic())))
                case None:
                    why = "the subtask is busy with a batch, or held up by those after it"
        status = self._loop.status.value
        advice = "It keeps no live state" + (", but level='checkpoint' can be asked for" if self._url else "")
        raise QueryFailed(uid, state, f"the job is {status}. {advice}")

    def _ask(
        self, query: LiveQuery, results: queue.SimpleQueue[Answer | QueryRefused], deadline: float
    ) -> Answer | QueryRefused | None:
        """Ask once. None: no answer in time, or the job has ended."""
        self._loop.post(lambda supervision, now: supervision.query(query))
        while not self._loop.status.is_terminal:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            try:
                return results.get(timeout=min(left, _LOOK_SECONDS))
            except queue.Empty:
                continue
        query.is_given_up = True
        return None

    def _in_checkpoint(self, uid: str, state: str, key: bytes) -> Any:
        if self._url is None:
            raise QueryFailed(uid, state, "the job takes no checkpoints. Start it with checkpoints=")
        function = self._graph.by_uid[uid].function
        declared = frozenset(declaration.descriptor.name for declaration in declared_states(function).values())
        store = open_store(self._url)
        read: set[int] = set()
        while True:
            try:
                snapshot = LocatedSnapshot(store, newest(store), is_savepoint=False)
            except (SnapshotNotFound, StorageError) as error:
                raise QueryFailed(uid, state, str(error)) from error
            try:
                return lookup.look_up(snapshot, uid, state, key, declared)
            except SnapshotCorrupt:
                # It may have been removed while we read it, because a newer one is there.
                if snapshot.manifest.checkpoint in read:
                    raise
                read.add(snapshot.manifest.checkpoint)


def _value(uid: str, state: str, answer: Answer) -> Any:
    try:
        return peeking.value_of(Peeked(answer.kind, answer.stored_type, peeking.from_bytes(answer.rows)))
    except (ValueError, KeyError) as error:
        raise QueryFailed(uid, state, f"the answer cannot be read: {error}") from error
