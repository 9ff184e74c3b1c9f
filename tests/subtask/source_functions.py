"""Source functions that count, and harnesses around them."""

from __future__ import annotations

import threading

import moorline as mo
from moorline.testing import OperatorHarness


def of(source, parallelism=1, snapshot=None, **options):
    return OperatorHarness.of(
        lambda job: job.source(source, uid="source", **options), inputs=0, parallelism=parallelism, snapshot=snapshot
    )


def source_threads():
    return [t for t in threading.enumerate() if t.name == "moorline-source"]


class Counter(mo.SourceFunction, mo.CheckpointedFunction):
    """The counting source of Flink's documentation, with an end if one is wanted."""

    def __init__(self, limit=None):
        self.offset, self.limit, self.is_running = 0, limit, True
        self.was_cancelled = self.was_closed = False

    def run(self, ctx):
        while self.is_running and (self.limit is None or self.offset < self.limit):
            with ctx.get_checkpoint_lock():
                ctx.collect(self.offset)
                self.offset += 1

    def cancel(self):
        self.is_running, self.was_cancelled = False, True

    def close(self):
        self.was_closed = True

    def initialize_state(self, ctx):
        self.state = ctx.operator_state.list_state(mo.ListStateDescriptor("state", int))
        self.restored = list(self.state.get())
        for offset in self.restored:
            self.offset = offset

    def snapshot_state(self, ctx):
        self.state.update([self.offset])
