"""A source that counts, and goes on counting where it was after a failure. It is from Flink's documentation of state.

State: the next number. It changes together with what is emitted, under the checkpoint lock, so that a snapshot holds
exactly the number after the last one that was emitted before its barrier.
"""

import moorline as mo


class CounterSource(mo.SourceFunction, mo.CheckpointedFunction):
    """Counts up to ``limit``, in every subtask."""

    def __init__(self, limit):
        self.limit, self.offset, self.is_running = limit, 0, True

    def run(self, ctx):
        lock = ctx.get_checkpoint_lock()
        while self.is_running and self.offset < self.limit:
            with lock:  # output and state change together
                ctx.collect(self.offset)
                self.offset += 1

    def cancel(self):
        self.is_running = False

    def initialize_state(self, ctx):
        self.state = ctx.operator_state.list_state(mo.ListStateDescriptor("state", int))
        for offset in self.state.get():
            self.offset = offset

    def snapshot_state(self, ctx):
        self.state.update([self.offset])


class FailOnce(mo.MapFunction):
    """Fails at a number, in the first attempt."""

    def __init__(self, at):
        self.at = at

    def open(self, runtime_context):
        self.attempt = runtime_context.attempt

    def map(self, value):
        if self.attempt == 1 and value == self.at:
            raise RuntimeError(f"no more after {value}")
        return value


def build(limit=50_000) -> mo.Job:
    """Numbers in; the same numbers out, each of them once, in spite of the failure."""
    job = mo.Job("counting", parallelism=1)
    numbers = job.source(CounterSource(limit), uid="counter").map(FailOnce(limit - 1), uid="fail-once")
    numbers.sink(mo.collect("numbers"), uid="numbers")
    return job


if __name__ == "__main__":
    found = mo.run(build(), checkpoints=mo.Checkpoints("checkpoints"), restart=mo.FixedDelay(1, "10ms"))
    print(found.collected("numbers") == list(range(50_000)), len(found.failures))  # True 1
