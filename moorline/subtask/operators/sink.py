"""The sink at the end of a chain: the operator around a writer.

Its state is what it has staged for checkpoints that it has not seen confirmed. What the driver commits for all subtasks
is confirmed when that is done, so until then every snapshot has it.
"""

from __future__ import annotations

from typing import Any

from moorline.api.sinks import Sink, SinkContext, SinkWriter
from moorline.errors import MoorlineError, SnapshotCorrupt
from moorline.model.connector_states import COMMITTABLES, GLOBAL_COMMITTABLES, WRITER
from moorline.subtask.operators.base import ChainedOperator, OperatorContext, user_code_failed
from moorline.subtask.operators.source import PlainElements, restored_pairs


class SinkOperator(ChainedOperator):
    """Writes batches to a sink, stages at barriers, commits what is confirmed."""

    def __init__(
        self, place: OperatorContext, job: str, attempt: int, lineage: str, restored: dict[str, list[Any]]
    ) -> None:
        super().__init__(place)
        self._job, self._attempt, self._lineage, self._restored = job, attempt, lineage, restored
        self._writer: SinkWriter | None = None
        #: By checkpoint: staged, not yet known to be committed.
        self._staged: dict[int, list[Any]] = {}

    @property
    def _commits_on_driver(self) -> bool:
        return bool(self.operator.function.commits_on_driver)

    def open(self) -> None:
        sink: Sink = self.operator.function
        # The checkpoint they come from is complete, and it is not known whether they were committed.
        again = self._restored_committables()
        context = SinkContext(
            self._job,
            self.operator.uid,
            self.subtask,
            self.operator.parallelism,
            self._attempt,
            tuple(self._restored.get(WRITER, ())),
            self._lineage,
        )
        try:
            self.state.initialize(sink)
            if again:
                sink.commit(again)
            self._writer = sink.open(context)
        except MoorlineError:
            raise
        except Exception as error:
            raise user_code_failed(self.operator, self.subtask, error) from error
        self._restored = {}

    def _restored_committables(self) -> list[Any]:
        """Those to be committed here and now. The others, which the driver commits, are staged once more."""
        uid = self.operator.uid
        pairs = restored_pairs(uid, COMMITTABLES, self._restored)
        labelled = restored_pairs(uid, GLOBAL_COMMITTABLES, self._restored)
        if not all(isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for _, pair in labelled):
            raise SnapshotCorrupt("the manifest", f"what operator {uid!r} has staged has no lineage")
        if not self._commits_on_driver:
            return [committable for _, committable in pairs] + [committable for _, (_, committable) in labelled]
        for checkpoint, committable in [*((n, ["", c]) for n, c in pairs), *labelled]:
            self._staged.setdefault(checkpoint, []).append(committable)
        return []

    def process(self, records: list[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        assert self._writer is not None
        try:
            self._writer.write(records)
        except MoorlineError:
            raise
        except Exception as error:
            raise user_code_failed(self.operator, self.subtask, error, self.records_in) from error
        self.records_in += len(records)

    def prepare(self, checkpoint: int) -> None:
        """Stage what was written since the last barrier."""
        assert self._writer is not None
        staged = self._writer.prepare(checkpoint)
        if staged:
            self._staged[checkpoint] = [[self._lineage, c] for c in staged] if self._commits_on_driver else staged

    def staged(self) -> list[Any]:
        """The committables that were prepared and wait."""
        return [c for committables in self._staged.values() for c in committables]

    def elements(self) -> PlainElements:
        assert self._writer is not None
        staged = [[checkpoint, c] for checkpoint, cs in self._staged.items() for c in cs]
        state = GLOBAL_COMMITTABLES if self._commits_on_driver else COMMITTABLES
        return [(state, "split", staged), (WRITER, "split", self._writer.snapshot())]

    def confirmed(self, checkpoint: int) -> None:
        """Commit everything up to and including ``checkpoint``: an earlier confirmation may have got lost."""
        super().confirmed(checkpoint)
        covered = [n for n in self._staged if n <= checkpoint]
        if covered and not self._commits_on_driver:
            self.operator.function.commit([c for n in sorted(covered) for c in self._staged[n]])
        for n in covered:
            del self._staged[n]

    def results(self) -> tuple[str, list[Any]] | None:
        assert self._writer is not None
        return self._writer.results()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
