"""The average of every two numbers of a key. It is the first example of Flink's documentation of state.

State: how many numbers there were since the last result, and their sum.
"""

import moorline as mo

NUMBERS = [(1, 3), (1, 5), (1, 7), (1, 4), (1, 2), (1, 1)]


class CountWindowAverage(mo.KeyedProcessFunction):
    """Emits (count, sum) for every two numbers of a key, and begins anew."""

    sum = mo.ValueState(tuple[int, int], default=(0, 0))

    def process_element(self, value, ctx):
        count, total = self.sum.value()
        count, total = count + 1, total + value[1]
        if count >= 2:
            yield count, total
            self.sum.clear()
        else:
            self.sum.update((count, total))


def build(numbers=NUMBERS) -> mo.Job:
    """Pairs of key and number in; (count, sum) out."""
    job = mo.Job("average", parallelism=2)
    (
        job.source(mo.from_items(numbers), uid="numbers")
        .key_by(lambda r: r[0])
        .process(CountWindowAverage(), uid="average")
        .sink(mo.collect("out"), uid="out")
    )
    return job


if __name__ == "__main__":
    for result in mo.run(build()).collected("out"):
        print(result)
