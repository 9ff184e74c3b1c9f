"""How often each page was seen per minute and per hour, by the time that each event carries.

State: two maps per page, from the beginning of a minute or hour to a count. Events may come late or out of order:
each finds its own bucket. (Windows that close by themselves, and buckets that are dropped after a while, need
watermarks and timers; those are planned.)
"""

from datetime import datetime

import moorline as mo

VIEWS = [
    ("/home", "2026-03-01T10:00:05"),
    ("/home", "2026-03-01T10:00:59"),
    ("/cart", "2026-03-01T10:01:10"),
    ("/home", "2026-03-01T11:30:00"),
    ("/home", "2026-03-01T10:00:30"),  # late
]


class MinuteAndHour(mo.KeyedProcessFunction):
    """Emits the new count of the minute and of the hour that an event belongs to."""

    minutes = mo.MapState(datetime, int)
    hours = mo.MapState(datetime, int)

    def process_element(self, value, ctx):
        minute = datetime.fromisoformat(value[1]).replace(second=0, microsecond=0)
        hour = minute.replace(minute=0)
        for unit, counts, bucket in (("minute", self.minutes, minute), ("hour", self.hours, hour)):
            counts[bucket] = counts.get(bucket, 0) + 1
            yield ctx.current_key, unit, bucket.isoformat(timespec="minutes"), counts[bucket]


def build(views=VIEWS) -> mo.Job:
    """Pairs of page and time in; (page, unit, bucket, count) out."""
    job = mo.Job("views", parallelism=2)
    (
        job.source(mo.from_items(views), uid="views")
        .key_by(lambda view: view[0])
        .process(MinuteAndHour(), uid="counts")
        .sink(mo.collect("counts"), uid="counts-out")
    )
    return job


if __name__ == "__main__":
    # Each result replaces the one before it, so the last of a bucket is its count.
    last = {result[:3]: result[3] for result in mo.run(build()).collected("counts")}
    for (page, unit, bucket), count in sorted(last.items()):
        print(f"{page:6} {unit:6} {bucket}  {count}")
