"""Only the values that are larger than all before them, per sensor: a record, in the sense of sports.

State: the largest value so far of each sensor. Most records change nothing and cost one look.
"""

import moorline as mo

READINGS = [("roof", 20.5), ("cellar", 9.0), ("roof", 19.0), ("roof", 21.5), ("cellar", 9.0), ("cellar", 11.0)]


class LargerThanBefore(mo.KeyedProcessFunction):
    """Lets a reading pass if there was none as large."""

    largest = mo.ValueState(float)

    def process_element(self, value, ctx):
        largest = self.largest.value()
        if largest is None or value[1] > largest:
            self.largest.update(value[1])
            yield value


def build(readings=READINGS) -> mo.Job:
    """Pairs of sensor and value in; some of them out."""
    job = mo.Job("records", parallelism=2)
    (
        job.source(mo.from_items(readings), uid="readings")
        .key_by(lambda reading: reading[0])
        .process(LargerThanBefore(), uid="larger")
        .sink(mo.collect("records"), uid="records")
    )
    return job


if __name__ == "__main__":
    for sensor, value in mo.run(build()).collected("records"):
        print(f"{sensor}: {value} is the largest so far")
