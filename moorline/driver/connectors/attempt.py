"""The ends of one attempt that need the driver: enumerators of its sources, and committers of its sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from moorline.driver.cluster import Background
from moorline.driver.connectors.committing import AttemptCommits, Committables, committables_in
from moorline.driver.connectors.enumerating import AttemptEnumerators, RestoredSplits
from moorline.errors import MoorlineError
from moorline.model.ids import SubtaskId
from moorline.model.manifest import OperatorHandles
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.messages import Order
from moorline.storage.blobs import BlobStore


class AttemptConnectors:
    """Both of them, as checkpoints see them. Runs on the driver's one thread."""

    def __init__(
        self,
        deployment: Deployment,
        splits: Mapping[str, RestoredSplits],
        send: Callable[[SubtaskId, Order], None],
        background: Background,
    ) -> None:
        self.commits = AttemptCommits(deployment, send, background)
        self.enumerators = AttemptEnumerators(deployment, splits, send, background)
        #: By checkpoint: what it has staged for the driver to commit.
        self._staged: dict[int, Committables] = {}
        self._failure: str | None = None

    def time_passed(self, now_ms: int) -> None:
        """Look for splits where that is due; have people know of a commit that takes long."""
        self.commits.time_passed(now_ms)
        self.enumerators.time_passed(now_ms)

    def staged(
        self, checkpoint: int, handles: Iterable[OperatorHandles], store: Callable[[], BlobStore | None]
    ) -> bool:
        """Read what a checkpoint that is there has staged. Could it be read?

        If not, nothing of it is confirmed: the attempt fails, and the next one commits. ``store``: where it lies.
        """
        if not self.commits.uids:
            return True
        try:
            self._staged[checkpoint] = committables_in(handles, self.commits.uids, store())
        except MoorlineError as error:
            self._failure = f"what checkpoint {checkpoint} has staged cannot be read: {error}"
            return False
        return True

    def published(self, checkpoint: int, final: bool) -> None:
        """Commit what a checkpoint that is complete has staged, and confirm it then."""
        self.commits.published(checkpoint, final, self._staged.pop(checkpoint, {}))

    def pop_failure(self) -> str | None:
        """The new reason why the attempt cannot go on."""
        failure, self._failure = self._failure, None
        return failure or self.commits.pop_failure() or self.enumerators.pop_failure()

    def close(self) -> None:
        """The attempt is over: committers and enumerators go."""
        self.commits.close()
        self.enumerators.close()
