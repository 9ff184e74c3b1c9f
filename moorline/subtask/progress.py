"""The figures of a running subtask, for people and for the driver's watch over it.

Nothing here is done per record: operators count batches, and what costs more is looked at now and then.
"""

from __future__ import annotations

import math

from moorline.model import keys
from moorline.model.keys.sample import KeySample
from moorline.model.times import MAX_TIME, MIN_TIME
from moorline.model.wire.figures import HotKey, OperatorFigures
from moorline.model.wire.messages import Progress
from moorline.state.backend import StateFigures
from moorline.subtask.environment import Environment
from moorline.subtask.inputs import Inputs
from moorline.subtask.operators.base import ChainedOperator
from moorline.subtask.output import Output
from moorline.subtask.time_accounting import TimeAccounting

#: How often state is counted.
COUNT_MS = 500
#: Counting that takes long rests so many times as long: it is for people, and never more than a hundredth of the work.
COUNT_REST = 100
#: A key that is longer is not sent to the driver twice a second.
LONGEST_HOT_KEY = 1_000


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
        #: By uid. Replaced as a whole: another thread reads it.
        self._state: dict[str, StateFigures] = {}
        self._behind: dict[str, dict[str, int]] = {}
        self._hot: dict[str, tuple[float, list[HotKey]]] = {}
        self._count_at_ms = self._look_at_ms = -math.inf

    def count_state(self) -> None:
        """Count what is kept, if it is time to. On the subtask's thread."""
        if (began := self._env.now_ms()) >= self._look_at_ms:
            self._look_at_ms = began + COUNT_MS
            backends = {o.operator.uid: o.backend for o in self._operators if o.backend is not None}
            self._hot = {uid: _hot_keys(backend.identities.sample, began) for uid, backend in backends.items()}
        if began >= self._count_at_ms:
            self._state = {o.operator.uid: o.backend.figures() for o in self._operators if o.backend is not None}
            self._behind = {o.operator.uid: behind for o in self._operators if (behind := o.records_behind())}
            for operator in self._operators:
                operator.metrics.look(began)
            ended = self._env.now_ms()
            self._count_at_ms = ended + max(COUNT_MS, COUNT_REST * (ended - began))

    def progress(self) -> Progress:
        """The progress of the subtask. Called from another thread, so it looks at numbers only."""
        busy, back_pressured, idle = self._times.totals()
        operators, counted, behind, hot = list(self._operators), self._state, self._behind, self._hot
        figures = [
            _figures(
                o,
                counted.get(o.operator.uid, StateFigures()),
                behind.get(o.operator.uid, {}),
                hot.get(o.operator.uid, (0.0, [])),
            )
            for o in operators
        ]
        # Records that a sink at the end of the chain has written are out as well.
        written = sum(o.records_in for o in operators if o.operator.is_sink)
        return Progress(
            records_in=operators[0].records_in if operators else 0,
            records_out=self._output.records_out + written,
            keys=sum(f.keys for f in figures),
            blocked_bytes=self._inputs.held_bytes(),
            in_flight_bytes=self._output.in_flight_bytes(),
            busy_ms=busy,
            backpressured_ms=back_pressured,
            idle_ms=idle,
            reading=self._env.reads.path,
            counters={o.operator.uid: dict(o.counters) for o in operators if o.counters},
            outages=dict(self._env.outages),
            bytes_in=self._inputs.bytes_in,
            bytes_out=self._output.bytes_out,
            operators=figures,
            process=self._env.process_figures(),
        )

    def turn(self) -> object:
        """Another value whenever the subtask has done something. Called from another thread."""
        reads, times = self._env.reads, self._times
        return (times.turns if times.is_busy else object()), reads.count, reads.bytes


def _hot_keys(sample: KeySample, now_ms: float) -> tuple[float, list[HotKey]]:
    sample.look(now_ms)
    encoded = [(keys.encode(hot.key), hot.share) for hot in sample.hottest]
    return sample.per_second, [HotKey(key=k, share=share) for k, share in encoded if len(k) <= LONGEST_HOT_KEY]


def _figures(
    chained: ChainedOperator, state: StateFigures, behind: dict[str, int], hot: tuple[float, list[HotKey]]
) -> OperatorFigures:
    """The figures of one operator. ``state``, ``behind`` (records by split) and ``hot``: as they were counted last."""
    watermark = chained.watermark_out
    return OperatorFigures(
        uid=chained.operator.uid,
        records_in=chained.records_in,
        records_out=chained.records_in if chained.operator.is_sink else chained.records_out,
        watermark=watermark if MIN_TIME < watermark < MAX_TIME else None,
        has_ended=watermark == MAX_TIME,
        event_time=chained.event_time,
        keys=sum(state.keys.values()),
        states=state.keys,
        timers=state.timers,
        backend=state.sizes,
        splits={split: {"records_behind": count} for split, count in behind.items()},
        metrics=chained.metrics.report(),
        keyed_per_second=hot[0],
        hot_keys=hot[1],
    )
