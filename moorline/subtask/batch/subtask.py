"""One subtask of a batch job: it works off sorted rows, one key after the other, and then it is done.

    rows to be passed on     to the next stage, as they are
    broadcast records        all of them, before any other
    records without a key    in the order of their senders
    keyed records            for each key: its records by time and sender, then its timers; then its state is dropped
    columns with a key       the same for each key group, where a step has all of its keys in columns
    the end                  of time and of the input: finish() along the chain, sinks stage what they have written

There is no checkpoint and no restore. When Spark loses a task it runs it again from its rows; what a lost one has
staged is never committed, because only the rows of the one that counts tell the driver about it.

``spark/batch/program.py`` drives :meth:`BatchSubtask.steps` and carries the rows away between two steps.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from moorline.model.ids import SubtaskId
from moorline.model.times import MAX_TIME, MIN_TIME
from moorline.model.wire.deployment import Deployment
from moorline.model.wire.messages import AddSplits
from moorline.state.columns.backend import ColumnBackend
from moorline.state.heap.single_key import OneKeyBackend
from moorline.subtask.batch import column_link
from moorline.subtask.batch import rows as batch_rows
from moorline.subtask.batch.output import BatchOutput
from moorline.subtask.columns.eligible import works_by_key_group
from moorline.subtask.environment import Environment
from moorline.subtask.operators.base import ChainedOperator
from moorline.subtask.operators.sink import SinkOperator
from moorline.subtask.operators.source import ReadingOperator, SourceOperator
from moorline.subtask.restore.chain import close_chain, open_chain

#: Sinks stage once, at the end; this is the number it gets.
CHECKPOINT = 1
#: Records of one key that are worked off at a time.
RUN_RECORDS = 4096
#: Results go to the driver in pieces of so many records.
RESULT_RECORDS = 4096
#: How soon a source that had nothing is asked again.
IDLE_SECONDS = 0.001


class BatchSubtask:
    """One subtask in one Spark task attempt. ``rows`` are for the next stage."""

    def __init__(self, deployment: Deployment, subtask: SubtaskId, environment: Environment) -> None:
        plan = deployment.plan
        vertex = plan.vertices[subtask.vertex]
        self.plan = plan
        self._deployment, self._id, self._env = deployment, subtask, environment
        root = plan.graph.by_uid[vertex.operators[0]]
        #: By link: which of the root's inputs it feeds.
        self._sides = {n.id: root.inputs[n.input].side for n in plan.links if n.target == vertex.id}
        #: Does a row hold columns of a key group, instead of records of one key?
        self._is_by_key_group = works_by_key_group(root)
        self._output = BatchOutput(plan, subtask)
        self.rows = self._output.rows
        self._operators: list[ChainedOperator] = []
        self._key = b""

    def steps(self, batches: Iterable[pa.RecordBatch]) -> Iterator[None]:
        """Work everything off. At each step the caller may take what has come out."""
        try:
            self._operators = open_chain(self._deployment, self._id, self._env, self._output)
            for batch in batches:
                yield from self._rows_in(batch)
            self._end_key()
            yield
            root = self._operators[0]
            if isinstance(root, ReadingOperator):
                yield from self._read(root)
            else:
                root.watermark(MAX_TIME)
            self._output.flush()
            yield
            yield from self._stage_sinks()
        finally:
            close_chain(self._operators)

    def pass_on(self, batches: Iterable[pa.RecordBatch]) -> Iterator[None]:
        """Only what goes to later stages: a slot whose work is done elsewhere."""
        for batch in batches:
            self._passed_on(batch)
            yield

    # --- input -----------------------------------------------------------------------------------

    def _read(self, source: ReadingOperator) -> Iterator[None]:
        if isinstance(source, SourceOperator) and source.operator.function.enumerates:
            source.add_splits(AddSplits(splits=[], no_more=True))  # the driver has found them all before
        while not source.has_ended:
            if not source.read():
                time.sleep(IDLE_SECONDS)
            if self.rows.is_waiting:
                yield
        yield

    def _rows_in(self, batch: pa.RecordBatch) -> Iterator[None]:
        _, _, _, keys, times, seqs, payloads = batch.columns
        first = self._passed_on(batch)
        if first == batch.num_rows:
            yield
            return
        keys = keys.slice(first)
        changes = pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1)).to_numpy(zero_copy_only=False)
        starts = [0, *(np.flatnonzero(changes) + 1).tolist()]
        contents = payloads.slice(first).to_pylist()
        numbers, moments = seqs.slice(first).to_pylist(), times.slice(first).to_pylist()
        for start, end in zip(starts, [*starts[1:], len(keys)]):
            key = keys[start].as_py()
            if key != self._key:
                self._end_key()
                self._key = key
            self._run(numbers[start:end], moments[start:end], contents[start:end])
            if self.rows.is_waiting:
                yield
        yield

    def _passed_on(self, batch: pa.RecordBatch) -> int:
        """Pass on what is for others. Returns the number of the first row that is not."""
        ranks = batch.column(2).to_numpy()
        hellos, first = np.searchsorted(ranks, (batch_rows.PASS_ON, batch_rows.PASS_ON + 1)).tolist()
        for row in zip(*(column.slice(hellos, first - hellos).to_pylist() for column in batch.columns[1:])):
            self._output.pass_on(*row)
        return int(first)

    def _run(self, seqs: list[int], times: list[int], payloads: list[bytes]) -> None:
        """Work off some rows of one key or key group, or some without a key."""
        if self._is_by_key_group:
            for payload in payloads:
                columns, times_of_rows = column_link.unpacked(payload)
                self._operators[0].process(columns, times_of_rows)  # type: ignore[arg-type]  # sequences will do
            return
        if len(self._sides) == 1 and times[-1] == MIN_TIME and self._key:  # in their order: so are all before it
            self._run_unstamped(payloads)
            return
        process, sides, unpack = self._operators[0].process, self._sides, batch_rows.unpack
        records: list[Any] = []
        stamps: list[int] = []
        side = 0
        for seq, moment, payload in zip(seqs, times, payloads):
            unpacked, timestamps = unpack(payload, moment)
            this = sides[batch_rows.link_of(seq)]
            if records and (
                this != side or bool(stamps) != bool(timestamps) or len(records) + len(unpacked) > RUN_RECORDS
            ):
                process(records, stamps or None, side)
                records, stamps = [], []
            side = this
            records += unpacked
            if timestamps:
                stamps += timestamps
        if records:
            process(records, stamps or None, side)

    def _run_unstamped(self, payloads: list[bytes]) -> None:
        """The same for rows of one key that come from one input and share no time. There may be very many of them."""
        process, (side,) = self._operators[0].process, self._sides.values()
        records: list[Any] = []
        for content in map(pickle.loads, payloads):
            if len(records) + len(content) > RUN_RECORDS and records:
                process(records, None, side)
                records = []
            records += content
        process(records, None, side)

    def _end_key(self) -> None:
        if self._key:
            root = self._operators[0]
            root.end_key()
            assert isinstance(root.backend, (OneKeyBackend, ColumnBackend))
            root.backend.forget()
            self._key = b""

    # --- the end ---------------------------------------------------------------------------------

    def _stage_sinks(self) -> Iterator[None]:
        """Have the sinks make durable what they have, and send the driver what makes it visible."""
        for operator in self._operators:
            if not isinstance(operator, SinkOperator):
                continue
            operator.prepare(CHECKPOINT)
            if staged := operator.staged():
                self._output.result("staged", operator.operator.uid, staged)
            result = operator.results()
            if result is not None:
                name, records = result
                self._output.result("collected", name, [])  # also one that has nothing is known by its name
                for start in range(0, len(records), RESULT_RECORDS):
                    self._output.result("collected", name, records[start : start + RESULT_RECORDS])
                    yield
        yield
