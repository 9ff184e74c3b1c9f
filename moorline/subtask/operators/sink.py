"""The sink at the end of a chain: the operator around a writer.

Its state is what it has staged for checkpoints that it has not seen confirmed. What the driver commits for all subtasks
is confirmed when that is done, so until then every snapshot has it; likewise what a thread beside the subtask commits
(``background_commits.py``).
"""

from __future__ import annotations

from typing import Any

from moorline.api.sinks import Sink, SinkCommitter, SinkContext, SinkWriter
from moorline.errors import MoorlineError, SnapshotCorrupt
from moorline.model.columns import ColumnBatch
from moorline.model.connector_states import COMMITTABLES, GLOBAL_COMMITTABLES, ORDERED_COMMITTABLES, WRITER
from moorline.subtask.operators.background_commits import BackgroundCommits
from moorline.subtask.operators.base import ChainedOperator, OperatorContext, user_code_failed
from moorline.subtask.operators.source import PlainElements, restored_pairs


class SinkOperator(ChainedOperator):
    """Writes batches to a sink, stages at barriers, commits what is confirmed."""

    def __init__(
        self, place: OperatorContext, job: str, attempt: int, lineage: str, restored: dict[str, list[Any]]
    ) -> None:
        super().__init__(place)
        self._job, self._attempt, self._lineage, self._restored = job, attempt, lineage, restored
        self._background = place.commits
        self._writer: SinkWriter | None = None
        self._committer: SinkCommitter | None = None
        self._commits: BackgroundCommits | None = None
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
            self.counters,
            self.notice,
            self.report_outage,
        )
        try:
            self.state.initialize(sink)
            if not sink.commits_on_driver:
                self._open_committer(sink.open_subtask_committer(context), again)
            self._writer = sink.open(context)
        except MoorlineError:
            raise
        except Exception as error:  # the user's code
            raise user_code_failed(self.operator, self.subtask, error) from error
        self._restored = {}

    def _open_committer(self, committer: SinkCommitter, again: list[tuple[int, Any]]) -> None:
        """Commit what was restored before anything new can be: no checkpoint begins until all subtasks are open."""
        self._committer = committer
        if self.operator.function.commits_in_background:
            self._commits = BackgroundCommits(committer, self._background, self._commit_failed)
        if again:
            committer.commit([committable for _, committable in again])

    def _commit_failed(self, error: BaseException) -> BaseException:
        if isinstance(error, MoorlineError) or not isinstance(error, Exception):
            return error
        return user_code_failed(self.operator, self.subtask, error)

    def _restored_committables(self) -> list[tuple[int, Any]]:
        """Those to be committed here and now. The others, which the driver commits, are staged once more."""
        uid = self.operator.uid
        lists = self._restored.get(ORDERED_COMMITTABLES, [])
        if not all(isinstance(element, list) for element in lists):
            raise SnapshotCorrupt("the manifest", f"what operator {uid!r} has staged is not in a list")
        together = {COMMITTABLES: [*self._restored.get(COMMITTABLES, []), *(pair for pairs in lists for pair in pairs)]}
        pairs = restored_pairs(uid, COMMITTABLES, together)
        labelled = restored_pairs(uid, GLOBAL_COMMITTABLES, self._restored)
        if not all(isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) for _, pair in labelled):
            raise SnapshotCorrupt("the manifest", f"what operator {uid!r} has staged has no lineage")
        if not self._commits_on_driver:
            return pairs + [(checkpoint, committable) for checkpoint, (_, committable) in labelled]
        for checkpoint, committable in [*((n, ["", c]) for n, c in pairs), *labelled]:
            self._staged.setdefault(checkpoint, []).append(committable)
        return []

    def process(self, records: list[Any], timestamps: list[int] | None = None, side: int = 0) -> None:
        assert self._writer is not None
        if isinstance(records, ColumnBatch) and not self.operator.function.takes_columns:
            records = records.rows()
        try:
            self._writer.write(records)
        except MoorlineError:
            raise
        except Exception as error:  # the user's code
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
        due = [] if self._commits is None else self._commits.due
        staged = [*([n, c] for n, c in due), *([n, c] for n, cs in self._staged.items() for c in cs)]
        writer = (WRITER, "split", self._writer.snapshot())
        if self._commits is not None:
            # Marks of a subtask go forward only, so another one must get all of this or nothing.
            return [(ORDERED_COMMITTABLES, "split", [staged] if staged else []), writer]
        return [(GLOBAL_COMMITTABLES if self._commits_on_driver else COMMITTABLES, "split", staged), writer]

    def confirmed(self, checkpoint: int) -> None:
        """Commit everything up to and including ``checkpoint``: an earlier confirmation may have got lost."""
        super().confirmed(checkpoint)
        covered = sorted(n for n in self._staged if n <= checkpoint)
        committables = [(n, c) for n in covered for c in self._staged[n]]
        if self._commits is not None:
            self._commits.add(committables)
        elif self._committer is not None and committables:
            self._committer.commit([c for _, c in committables])
        for n in covered:
            del self._staged[n]

    @property
    def is_committing(self) -> bool:
        """Is something confirmed and not committed yet?"""
        return self._commits is not None and bool(self._commits.due)

    def results(self) -> tuple[str, list[Any]] | None:
        assert self._writer is not None
        return self._writer.results()

    def close(self) -> None:
        if self._committer is not None:
            self._committer.close()
        if self._writer is not None:
            self._writer.close()
