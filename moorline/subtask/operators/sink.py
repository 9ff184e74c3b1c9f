"""The sink at the end of a chain: the operator around a writer.

Its state is what it has staged for checkpoints that it has not seen confirmed.
"""

from __future__ import annotations

from typing import Any

from moorline.api.sinks import Sink, SinkContext, SinkWriter
from moorline.errors import MoorlineError
from moorline.subtask.operators.base import ChainedOperator, OperatorContext, user_code_failed
from moorline.subtask.operators.source import PlainElements, restored_pairs


class SinkOperator(ChainedOperator):
    """Writes batches to a sink, stages at barriers, commits what is confirmed."""

    def __init__(self, place: OperatorContext, job: str, attempt: int, restored: dict[str, list[Any]]) -> None:
        super().__init__(place)
        self._job, self._attempt, self._restored = job, attempt, restored
        self._writer: SinkWriter | None = None
        #: By checkpoint: staged, not yet known to be committed.
        self._staged: dict[int, list[Any]] = {}

    def open(self) -> None:
        sink: Sink = self.operator.function
        # The checkpoint they come from is complete, and it is not known whether they were committed.
        again = [committable for _, committable in restored_pairs(self.operator.uid, "committables", self._restored)]
        context = SinkContext(
            self._job,
            self.operator.uid,
            self.subtask,
            self.operator.parallelism,
            self._attempt,
            tuple(self._restored.get("writer", ())),
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
            self._staged[checkpoint] = staged

    def staged(self) -> list[Any]:
        """The committables that were prepared and wait."""
        return [c for committables in self._staged.values() for c in committables]

    def elements(self) -> PlainElements:
        assert self._writer is not None
        staged = [[checkpoint, c] for checkpoint, cs in self._staged.items() for c in cs]
        return [("committables", "split", staged), ("writer", "split", self._writer.snapshot())]

    def confirmed(self, checkpoint: int) -> None:
        """Commit everything up to and including ``checkpoint``: an earlier confirmation may have got lost."""
        super().confirmed(checkpoint)
        covered = [n for n in self._staged if n <= checkpoint]
        if covered:
            self.operator.function.commit([c for n in sorted(covered) for c in self._staged[n]])
            for n in covered:
                del self._staged[n]

    def results(self) -> tuple[str, list[Any]] | None:
        assert self._writer is not None
        return self._writer.results()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
