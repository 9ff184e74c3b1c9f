"""The figures of a running subtask, for people and for the driver's watch over it."""

from __future__ import annotations

import math

from moorline.model.wire.messages import Progress
from moorline.subtask.environment import Environment
from moorline.subtask.inputs import Inputs
from moorline.subtask.operators.base import ChainedOperator
from moorline.subtask.output import Output
from moorline.subtask.time_accounting import TimeAccounting

#: How often keys are counted.
COUNT_MS = 500
#: Counting that takes long rests so many times as long: it is for people, and never more than a hundredth of the work.
COUNT_REST = 100


class Meter:
    """Reads the figures of one subtask. ``operators`` is its chain, which is filled when it starts."""

    def __init__(
        self,
        operators: list[ChainedOperator],
        inputs: Inputs,
        output: Output,
        times: TimeAccounting,
        environment: Environment,
    ) -> None:
        self._operators, self._inputs, self._output = operators, inputs, output
        self._times, self._env = times, environment
        self._keys, self._count_at_ms = 0, -math.inf

    def count_keys(self) -> None:
        """Count the keys with state, if it is time to. On the subtask's thread."""
        if (began := self._env.now_ms()) >= self._count_at_ms:
            self._keys = sum(o.backend.entries() for o in self._operators if o.backend is not None)
            ended = self._env.now_ms()
            self._count_at_ms = ended + max(COUNT_MS, COUNT_REST * (ended - began))

    def progress(self) -> Progress:
        """How far the subtask is. Called from another thread, so it looks at numbers only."""
        busy, back_pressured, idle = self._times.totals()
        # Records that a sink at the end of the chain has written are out as well.
        written = sum(o.records_in for o in self._operators if o.operator.is_sink)
        return Progress(
            records_in=self._operators[0].records_in if self._operators else 0,
            records_out=self._output.records_out + written,
            keys=self._keys,
            blocked_bytes=self._inputs.held_bytes(),
            in_flight_bytes=self._output.in_flight_bytes(),
            busy_ms=busy,
            backpressured_ms=back_pressured,
            idle_ms=idle,
            reading=self._env.reads.path,
            counters={o.operator.uid: dict(o.counters) for o in self._operators if o.counters},
            outages=dict(self._env.outages),
        )

    def turn(self) -> object:
        """Another value whenever the subtask has done something. Called from another thread."""
        reads, times = self._env.reads, self._times
        return (times.turns if times.is_busy else object()), reads.count, reads.bytes
