"""What each customer has spent so far, after every order.

State: one number per customer, to which each order is added. A ReducingState does that.
"""

import operator

import moorline as mo

ORDERS = [("ada", 30), ("bob", 12), ("ada", 5), ("cleo", 40), ("bob", 8), ("ada", 1)]


class SumPerCustomer(mo.KeyedProcessFunction):
    """Emits (customer, cents so far)."""

    spent = mo.ReducingState(int, operator.add)

    def process_element(self, value, ctx):
        self.spent.add(value[1])
        yield ctx.current_key, self.spent.get()


def build(orders=ORDERS) -> mo.Job:
    """Pairs of customer and amount in; pairs of customer and sum out."""
    job = mo.Job("sums", parallelism=2)
    (
        job.source(mo.from_items(orders), uid="orders")
        .key_by(lambda order: order[0])
        .process(SumPerCustomer(), uid="sum")
        .sink(mo.collect("sums"), uid="sums")
    )
    return job


if __name__ == "__main__":
    for customer, spent in mo.run(build()).collected("sums"):
        print(f"{customer} has spent {spent}")
