"""A job whose snapshots hold what format 2 has added: timers, windows, time to live, broadcast, operator, raw state.

See ``keyed_job.py``.
"""

from __future__ import annotations

from collections import Counter

from keyed_job import COUNT, TOTALS, Numbers

import moorline as mo

RULES = [("a", 1), ("b", 2), ("c", 3)]
WINDOW_MS = 40_000


def in_event_time() -> mo.WatermarkStrategy:
    return mo.WatermarkStrategy.monotonous(lambda n: n * 1000)


class AtTheEnd(mo.KeyedBroadcastProcessFunction):
    """Counts in a state that expires, and says at the end of time how far it came and which rules there are."""

    RULES = mo.MapStateDescriptor("rules", str, int)
    seen = mo.ValueState(int, ttl=mo.StateTtlConfig("100000d"))

    def process_broadcast_element(self, rule, ctx):
        ctx.get_broadcast_state(self.RULES).put(*rule)

    def process_element(self, n, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(1 << 50)

    def on_timer(self, timestamp, ctx):
        rules = ctx.get_broadcast_state(self.RULES)
        yield ctx.current_key, self.seen.value(), [[name, rules.get(name)] for name, _ in RULES]


class Sums(mo.ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        yield key, window.start, window.end, sum(elements)


class Tens(mo.FlatMapFunction, mo.CheckpointedFunction):
    """Passes its records on in tens: those that wait are operator state, and there is raw state beside it."""

    def initialize_state(self, ctx):
        self.saved = ctx.operator_state.list_state(mo.ListStateDescriptor("waiting", int))
        self.waiting = list(self.saved.get())
        self.seen = sum(int(stream.read()) for stream in ctx.raw_state)

    def flat_map(self, n):
        self.seen += 1
        self.waiting.append(n)
        if len(self.waiting) == 10:
            yield from self.waiting
            self.waiting = []

    def finish(self):
        yield from self.waiting
        yield "seen", self.seen
        self.waiting, self.seen = [], 0

    def snapshot_state(self, ctx):
        self.saved.update(self.waiting)
        ctx.raw_state.start_partition().write(str(self.seen).encode())


def timed(name: str, parallelism: int = 2) -> mo.Job:
    """Timers, windows, time to live, broadcast, operator and raw state: what format 2 has added."""
    job = mo.Job(name, parallelism=parallelism, max_parallelism=16)
    numbers = job.source(Numbers(), uid="numbers", watermarks=in_event_time())
    rules = job.source(mo.from_items(RULES), uid="rules", parallelism=1).broadcast(AtTheEnd.RULES)
    numbers.key_by(lambda n: n % 7).connect(rules).process(AtTheEnd(), uid="ends").sink(
        mo.collect("ends"), uid="ends-out"
    )
    keyed = numbers.key_by(lambda n: n % 3)
    tumbling = keyed.window(mo.TumblingEventTimeWindows(f"{WINDOW_MS}ms")).process(Sums(), uid="tumbling")
    tumbling.sink(mo.collect("tumbling"), uid="tumbling-out")
    # Records of a key are three seconds apart, but for those of key 0 that are left out: its sessions end there.
    gapped = numbers.filter(lambda n: n % 3 or n % 90 > 30, uid="gaps").key_by(lambda n: n % 3)
    sessions = gapped.window(mo.EventTimeSessionWindows("4s")).process(Sums(), uid="sessions")
    sessions.sink(mo.collect("sessions"), uid="sessions-out")
    numbers.flat_map(Tens(), uid="tens").sink(mo.collect("tens"), uid="tens-out")
    return job


def timed_output() -> dict[str, Counter]:
    """What :func:`timed` emits from its first record to its last; how many of ``tens`` each subtask saw is left out."""
    totals = TOTALS["ints"]
    ends = [(k, totals[k], [list(rule) for rule in RULES]) for k in totals]
    tumbling = Counter()
    for n in range(COUNT):
        start = n * 1000 // WINDOW_MS * WINDOW_MS
        tumbling[n % 3, start, start + WINDOW_MS] += n
    sessions: list[list[int]] = []
    for key in range(3):
        last = None
        for n in (n for n in range(key, COUNT, 3) if n % 3 or n % 90 > 30):
            if last is None or n - last > 4:
                sessions.append([key, n * 1000, 0, 0])
            sessions[-1][2:] = [n * 1000 + 4000, sessions[-1][3] + n]
            last = n
    return {
        "ends": Counter(map(repr, ends)),
        "tumbling": Counter(repr((*window, total)) for window, total in tumbling.items()),
        "sessions": Counter(repr(tuple(session)) for session in sessions),
        "tens": Counter(map(repr, range(COUNT))),
    }
