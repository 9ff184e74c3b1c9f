"""How often each page was seen per minute, by the time that each view carries, with late views and without doubles.

A window of a page and minute closes when the watermark has passed it. Views may be 10 seconds out of order; for half a
minute after that, a late view corrects the count of its minute; what comes later still goes to an output of its own.
"""

from datetime import UTC, datetime

import moorline as mo

LATE = mo.OutputTag("late")
VIEWS = [
    ("/home", "2026-03-01T10:00:05"),
    ("/home", "2026-03-01T10:00:59"),
    ("/cart", "2026-03-01T10:01:05"),
    ("/home", "2026-03-01T10:00:50"),  # out of order
    ("/home", "2026-03-01T10:03:00"),
]


class Count(mo.AggregateFunction):
    """Counts, and keeps nothing else."""

    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a + b


def labelled(page, window, counts):
    """A count with the page and minute that it belongs to."""
    yield page, datetime.fromtimestamp(window.start / 1000, UTC).strftime("%H:%M"), counts[0]


def counted(views: mo.Stream) -> mo.Stream:
    """Views in; (page, minute, count) out, and late views at LATE."""
    minutes = views.key_by(lambda view: view[0]).window(mo.TumblingEventTimeWindows("1min"))
    minutes = minutes.allowed_lateness("30s").side_output_late_data(LATE)
    return minutes.aggregate(Count(), labelled, accumulator_type=int, uid="counts")


def build(views=VIEWS) -> mo.Job:
    job = mo.Job("views-per-minute", parallelism=2)
    when = mo.WatermarkStrategy.bounded_out_of_orderness("10s", lambda view: datetime.fromisoformat(view[1]))
    counts = counted(job.source(mo.from_items(views), uid="views", watermarks=when))
    counts.sink(mo.collect("counts"), uid="counts-out")
    counts.side_output(LATE).sink(mo.collect("late"), uid="late-out")
    return job


if __name__ == "__main__":
    for page, minute, count in sorted(mo.run(build()).collected("counts")):
        print(f"{page:6} {minute}  {count}")
