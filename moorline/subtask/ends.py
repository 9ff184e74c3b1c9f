"""The two ends of a job: the operator around a source's reader, and the one around a sink's writer.

A source's state is the position of each split, as union state: after a rescale every reader is told all of them and
keeps its own. A sink's state is what it has staged for checkpoints that it has not seen confirmed.
"""

from __future__ import annotations

from typing import Any

from moorline.api.sinks import Sink, SinkContext, SinkWriter
from moorline.api.sources import Source, SourceContext, SourceReader
from moorline.errors import MoorlineError, SnapshotCorrupt
from moorline.model.graph import Operator
from moorline.subtask.operator import ChainedOperator, user_code_failed

#: What a reader is asked for at a time.
READ_RECORDS = 2048

Elements = list[tuple[str, str, list[Any]]]


def _pairs(uid: str, state: str, restored: dict[str, list[Any]]) -> list[tuple[Any, Any]]:
    """Restored elements that are pairs with a number or a name in front, if we have written them."""
    elements = restored.get(state, [])
    if not all(isinstance(e, list) and len(e) == 2 and isinstance(e[0], (int, str)) for e in elements):
        raise SnapshotCorrupt("the manifest", f"state {state!r} of operator {uid!r} is not what it should be")
    return [(first, second) for first, second in elements]


class SourceOperator(ChainedOperator):
    """Reads a source and passes its records on."""

    def __init__(self, operator: Operator, subtask: int, attempt: int, restored: dict[str, list[Any]]) -> None:
        super().__init__(operator, subtask)
        self._attempt, self._restored = attempt, restored
        self._reader: SourceReader | None = None
        #: The input has ended, or the job is stopping.
        self.has_ended = False

    def open(self) -> None:
        source: Source = self.operator.function
        positions = dict(_pairs(self.operator.uid, "positions", self._restored))
        context = SourceContext(self.operator.uid, self.subtask, self.operator.parallelism, self._attempt, positions)
        try:
            self._reader = source.open(context)
        except MoorlineError:
            raise
        except Exception as error:
            raise user_code_failed(self.operator, self.subtask, error) from error
        self._restored = {}

    def read(self) -> bool:
        """Read a batch and pass it on. False if there was nothing to read just now."""
        assert self._reader is not None
        try:
            records = self._reader.read(READ_RECORDS)
        except MoorlineError:
            raise
        except Exception as error:
            raise user_code_failed(self.operator, self.subtask, error, self.records_in) from error
        if records is None:
            self.has_ended = True
            return True
        self.records_in += len(records)
        self.emit(records)
        return bool(records)

    def elements(self) -> Elements:
        assert self._reader is not None
        return [("positions", "union", [list(item) for item in self._reader.positions().items()])]

    def confirmed(self, checkpoint: int) -> None:
        assert self._reader is not None
        self._reader.notify_checkpoint_complete(checkpoint)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


class SinkOperator(ChainedOperator):
    """Writes batches to a sink, stages at barriers, commits what is confirmed."""

    def __init__(
        self, operator: Operator, subtask: int, job: str, attempt: int, restored: dict[str, list[Any]]
    ) -> None:
        super().__init__(operator, subtask)
        self._job, self._attempt, self._restored = job, attempt, restored
        self._writer: SinkWriter | None = None
        #: By checkpoint: staged, not yet known to be committed.
        self._staged: dict[int, list[Any]] = {}

    def open(self) -> None:
        sink: Sink = self.operator.function
        # The checkpoint they come from is complete, and nobody knows whether they were committed.
        again = [committable for _, committable in _pairs(self.operator.uid, "committables", self._restored)]
        context = SinkContext(
            self._job,
            self.operator.uid,
            self.subtask,
            self.operator.parallelism,
            self._attempt,
            tuple(self._restored.get("writer", ())),
        )
        try:
            if again:
                sink.commit(again)
            self._writer = sink.open(context)
        except MoorlineError:
            raise
        except Exception as error:
            raise user_code_failed(self.operator, self.subtask, error) from error
        self._restored = {}

    def process(self, records: list[Any]) -> None:
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

    def elements(self) -> Elements:
        assert self._writer is not None
        staged = [[checkpoint, c] for checkpoint, cs in self._staged.items() for c in cs]
        return [("committables", "split", staged), ("writer", "split", self._writer.snapshot())]

    def confirmed(self, checkpoint: int) -> None:
        """Commit everything up to and including ``checkpoint``: an earlier confirmation may have got lost."""
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
