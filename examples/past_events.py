"""What a customer had looked at before buying: events of the past, looked up when they are needed.

State: the last three products a user saw (a ListState), and the price of each when it was seen (a MapState).
"""

import moorline as mo

KEEP = 3
EVENTS = [
    ("ada", "view", "lamp", 40),
    ("ada", "view", "desk", 200),
    ("bob", "view", "lamp", 40),
    ("ada", "view", "chair", 90),
    ("ada", "view", "lamp", 35),
    ("ada", "buy", "lamp", 30),
    ("bob", "buy", "chair", 90),
]


class WithHistory(mo.KeyedProcessFunction):
    """Emits each purchase with what came before it, and forgets the user's past."""

    viewed = mo.ListState(str)
    price_seen = mo.MapState(str, int)

    def process_element(self, value, ctx):
        user, kind, product, price = value
        if kind == "view":
            self.viewed.update([*self.viewed.get(), product][-KEEP:])
            self.price_seen[product] = price
            return
        before = self.price_seen.get(product)
        yield {
            "user": user,
            "bought": product,
            "viewed_before": list(self.viewed.get()),
            "saved": before - price if before is not None else None,
        }
        self.viewed.clear()
        self.price_seen.clear()


def build(events=EVENTS) -> mo.Job:
    """Views and purchases in; enriched purchases out."""
    job = mo.Job("shop", parallelism=2)
    (
        job.source(mo.from_items(events), uid="events")
        .key_by(lambda event: event[0])
        .process(WithHistory(), uid="history")
        .sink(mo.collect("purchases"), uid="purchases")
    )
    return job


if __name__ == "__main__":
    for purchase in mo.run(build()).collected("purchases"):
        print(purchase)
