"""Sensors that have fallen silent: every reading sets a timer, to see whether another one has come until then.

State: the times of a sensor's readings of the last ten seconds. Timers go off when event time has reached them, so the
result is the same however the readings come in: early, out of order within a second, or all at once.
"""

import moorline as mo

SILENCE_MS = 10_000
#: Time in milliseconds, sensor.
READINGS = [(0, "roof"), (1_000, "cellar"), (8_000, "roof"), (20_500, "roof"), (20_000, "cellar"), (22_000, "roof")]


class Silent(mo.KeyedProcessFunction):
    """Emits a sensor and since when nothing was heard of it for ten seconds."""

    readings = mo.MapState(int, bool)

    def process_element(self, value, ctx):
        time, timers = ctx.timestamp(), ctx.timer_service()
        if time + SILENCE_MS > timers.current_watermark():  # else it is too late to say anything new
            self.readings[time] = True
            timers.register_event_time_timer(time + SILENCE_MS)

    def on_timer(self, timestamp, ctx):
        since = timestamp - SILENCE_MS
        if not any(since < other <= timestamp for other in self.readings):
            yield ctx.get_current_key(), since
        self.readings.remove(since)


def build(readings=READINGS) -> mo.Job:
    """Readings in; silences out."""
    job = mo.Job("sensors", parallelism=2)
    times = mo.WatermarkStrategy.bounded_out_of_orderness("1s", timestamp=lambda r: r[0])
    (
        job.source(mo.from_items(readings), uid="readings", watermarks=times)
        .key_by(lambda reading: reading[1])
        .process(Silent(), uid="silent")
        .sink(mo.collect("silences"), uid="silences")
    )
    return job


if __name__ == "__main__":
    for silence in sorted(mo.run(build()).collected("silences")):
        print(silence)  # the cellar since 1000 and since 20000, the roof since 8000 and since 22000
