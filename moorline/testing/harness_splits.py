"""Splits in a harness: an enumerator looks for them whenever the harness reads, as soon as its interval is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from moorline.driver.connectors.enumerating import AttemptEnumerators, enumerated_sources, splits_in
from moorline.model.ids import SubtaskId
from moorline.model.manifest import Manifest, OperatorHandles
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.messages import Order
from moorline.storage.blobs import BlobStore


class HarnessSplits:
    """The splits of the source in a harness, if the driver would find them; else nothing."""

    def __init__(
        self,
        deployment: Deployment,
        snapshot: tuple[Manifest, BlobStore] | None,
        send: Callable[[SubtaskId, Order], None],
    ) -> None:
        uids = enumerated_sources(deployment.plan.graph)
        restored = {}
        if snapshot is not None:
            manifest, store = snapshot
            restored = splits_in([s for o in manifest.operators for s in o.subtasks], uids, store)
        self._error: BaseException | None = None
        self._vertex = next((v.id for v in deployment.plan.vertices if set(v.operators) & set(uids)), None)
        self._enumerators = AttemptEnumerators(deployment, restored, send, self._at_once)

    def look(self, now_ms: int) -> None:
        """Look for splits, if it is time to. Raises what the enumerator raises."""
        self._enumerators.time_passed(now_ms)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def reported(self, subtask: int, report: bytes) -> None:
        """A reader has something to say to its enumerator, which looks once more."""
        assert self._vertex is not None
        self._enumerators.reported(SubtaskId(self._vertex, subtask), report)

    def with_states(self, handles: list[OperatorHandles]) -> list[OperatorHandles]:
        """The handles of a snapshot, with what the enumerator knows among them."""
        for uid, handle in self._enumerators.states().items():
            first = next(n for n, operator in enumerate(handles) if operator.uid == uid)
            elements = [*handles[first].elements, handle]
            handles = [*handles]
            handles[first] = msgspec.structs.replace(handles[first], elements=elements)
        return handles

    def close(self) -> None:
        """Close the enumerator."""
        self._enumerators.close()

    def _at_once(self, line: str, work: Callable[[], Any], done: Callable[[BaseException | None], None], /) -> None:
        try:
            work()
        except Exception as error:  # for the harness to raise, in the test's own thread
            self._error = error
            done(error)
        else:
            done(None)
