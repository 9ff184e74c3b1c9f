"""Visits to a web shop: half an hour without a click ends a visit, and nobody has to clean up after it.

State: how many pages a visitor has seen in this visit. It is forgotten half an hour after the last click, or after
twelve hours for visitors who are logged in.
"""

import moorline as mo

#: Visitor, page, logged in.
CLICKS = [
    ("ada", "/home", False),
    ("bob", "/home", False),
    ("ada", "/lamp", False),
    ("ada", "/login", True),
    ("bob", "/desk", False),
    ("ada", "/cart", True),
]


class Visits(mo.KeyedProcessFunction):
    """Emits each click with its place in the visit. The first one of a visit is number 1."""

    clicks = mo.ValueState(int, ttl="30min")

    def process_element(self, value, ctx):
        visitor, page, is_logged_in = value
        # With a time to live there is no default: what is not there, or there no more, is None.
        number = (self.clicks.value() or 0) + 1
        self.clicks.update(number, ttl="12h" if is_logged_in else None)
        yield visitor, page, number


def build(clicks=CLICKS) -> mo.Job:
    """Clicks in; numbered clicks out."""
    job = mo.Job("visits", parallelism=2)
    (
        job.source(mo.from_items(clicks), uid="clicks")
        .key_by(lambda click: click[0])
        .process(Visits(), uid="visits")
        .sink(mo.collect("visits"), uid="out")
    )
    return job


if __name__ == "__main__":
    for visitor, page, number in mo.run(build()).collected("visits"):
        print(f"{visitor} looks at {page}, number {number} of this visit")
