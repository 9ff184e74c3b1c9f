"""Which search led to which purchase: both of one user, the purchase at most ten minutes after the search.

An interval join keeps the records of both sides just as long as one of the other side may still come. Its results
carry the later of the two times, so windows can follow.
"""

from datetime import datetime

import moorline as mo

SEARCHES = [
    ("ada", "2026-03-01T10:00:00", "desk"),
    ("bob", "2026-03-01T10:02:00", "lamp"),
    ("ada", "2026-03-01T10:08:00", "chair"),
]
PURCHASES = [
    ("ada", "2026-03-01T10:09:30", 120),
    ("ada", "2026-03-01T10:15:00", 80),
    ("bob", "2026-03-01T10:30:00", 15),  # too long after
]


class Attribution(mo.ProcessJoinFunction):
    """What was searched for, what was paid, and how long it took."""

    def process_element(self, search, purchase, ctx):
        seconds = (ctx.right_timestamp - ctx.left_timestamp) // 1000
        yield ctx.current_key, search[2], purchase[2], seconds


def user(record):
    return record[0]


def attributed(searches: mo.Stream, purchases: mo.Stream) -> mo.Stream:
    """Two streams of (user, time, what) in; (user, searched for, paid, seconds) out."""
    near = searches.key_by(user).interval_join(purchases.key_by(user)).between("0s", "10min")
    return near.process(
        Attribution(), left_type=tuple[str, str, str], right_type=tuple[str, str, int], uid="attribution"
    )


def build(searches=SEARCHES, purchases=PURCHASES) -> mo.Job:
    job = mo.Job("attribution", parallelism=2)
    when = mo.WatermarkStrategy.bounded_out_of_orderness("1min", lambda record: datetime.fromisoformat(record[1]))
    attributed(
        job.source(mo.from_items(searches), uid="searches", watermarks=when),
        job.source(mo.from_items(purchases), uid="purchases", watermarks=when),
    ).sink(mo.collect("pairs"), uid="pairs")
    return job


if __name__ == "__main__":
    for name, thing, paid, seconds in sorted(mo.run(build()).collected("pairs")):
        print(f"{name:4} looked for a {thing:6} and paid {paid:4} after {seconds // 60} minutes")
