"""A model that learns while it is used: the price of a taxi ride from its length, one model per city.

State: the weights of a linear regression and the number of rides seen. Each ride is first predicted and then learned
from, by one step of gradient descent. After a failure the model goes on from its checkpoint, as if nothing had been.
"""

import moorline as mo

CITIES = {"berlin": (4.0, 2.5), "paris": (2.6, 1.2)}


def ride(number):
    """Ride ``number``: city, kilometres and price. The true price is a base fare and a price per kilometre."""
    city = ("berlin", "paris")[number % 2]
    base, per_km = CITIES[city]
    km = 1.0 + number * 7919 % 1000 / 100
    return city, km, base + per_km * km


class OnlineRegression(mo.KeyedProcessFunction):
    """Emits (city, ride number, error of the prediction)."""

    weights = mo.ValueState(tuple[float, float], default=(0.0, 0.0))
    seen = mo.ValueState(int, default=0)

    def __init__(self, rate=0.02):
        self.rate = rate

    def process_element(self, value, ctx):
        city, km, price = value
        base, per_km = self.weights.value()
        error = price - (base + per_km * km)
        self.weights.update((base + self.rate * error, per_km + self.rate * error * km / 10))
        self.seen.update(self.seen.value() + 1)
        yield city, self.seen.value(), error


def build(rides=4000) -> mo.Job:
    """Rides in; the errors of the predictions out."""
    job = mo.Job("taxi", parallelism=2)
    (
        job.source(mo.generate(ride, count=rides, splits=2), uid="rides")
        .key_by(lambda r: r[0])
        .process(OnlineRegression(), uid="model")
        .sink(mo.collect("errors"), uid="errors")
    )
    return job


if __name__ == "__main__":
    for city, number, error in mo.run(build()).collected("errors"):
        if number in (1, 10, 100, 1000, 2000):
            print(f"{city:7} ride {number:5}: the prediction was off by {abs(error):.2f}")
