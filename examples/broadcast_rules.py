"""Rules that change while the stream runs, known to every subtask: each payment is judged by the limit of its time.

State: the limits so far as broadcast state, a copy in every subtask; the payments that wait for their time as keyed
state. A payment waits until event time has reached it, because only then no earlier change of the limit can follow.
"""

import moorline as mo

#: At a time the limit becomes an amount.
LIMITS = [(0, 100), (2_000, 50), (4_000, 500)]
#: Time, account, amount.
PAYMENTS = [(1_000, "ada", 80), (1_500, "bob", 120), (2_000, "ada", 80), (3_000, "cleo", 40), (5_000, "bob", 120)]

LIMIT_STATE = mo.MapStateDescriptor("limits", int, int)


class OverTheLimit(mo.KeyedBroadcastProcessFunction):
    """Emits payments above the limit."""

    waiting = mo.MapState(int, list[int])

    def process_broadcast_element(self, value, ctx):
        since, limit = value
        ctx.get_broadcast_state(LIMIT_STATE).put(since, limit)

    def process_element(self, value, ctx):
        time, _, amount = value
        self.waiting[time] = [*self.waiting.get(time, []), amount]
        ctx.timer_service().register_event_time_timer(time)

    def on_timer(self, timestamp, ctx):
        limits = ctx.get_broadcast_state(LIMIT_STATE)
        limit = limits[max(since for since in limits if since <= timestamp)]
        for amount in self.waiting[timestamp]:
            if amount > limit:
                yield timestamp, ctx.get_current_key(), amount, limit
        self.waiting.remove(timestamp)


def build(payments=PAYMENTS, limits=LIMITS) -> mo.Job:
    """Payments and limits in; payments over the limit of their time out."""
    job = mo.Job("limits", parallelism=2)
    by_time = mo.WatermarkStrategy.monotonous(timestamp=lambda r: r[0])
    rules = job.source(mo.from_items(limits), uid="limits", watermarks=by_time)
    paid = job.source(mo.from_items(payments), uid="payments", watermarks=by_time)
    (
        paid.key_by(lambda payment: payment[1])
        .connect(rules.broadcast(LIMIT_STATE))
        .process(OverTheLimit(), uid="judge")
        .sink(mo.collect("over"), uid="over")
    )
    return job


if __name__ == "__main__":
    for payment in sorted(mo.run(build()).collected("over")):
        print(payment)  # (1500, 'bob', 120, 100), then (2000, 'ada', 80, 50)
