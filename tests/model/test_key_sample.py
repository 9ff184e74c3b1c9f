"""Which keys get the most records, as a sample of them shows."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from moorline.model.keys.sample import MOST_KEYS, MOST_LOOKS, PER_SECOND, SPAN_MS, KeySample


def sampled(key_of: Callable[[int], object], rate: int = 10_000, seconds: int = 60) -> KeySample:
    """A sample of a stream, in batches of a tenth of a second."""
    sample, number = KeySample(), 0
    for ms in range(0, seconds * 1_000, 100):
        sample.look(ms)
        sample.see([key_of(n) for n in range(number, number + rate // 10)])
        number += rate // 10
    sample.look(seconds * 1_000)
    return sample


def shares(sample: KeySample) -> dict[object, float]:
    return {hot.key: hot.share for hot in sample.hottest}


def test_a_key_that_gets_much_is_found_among_many():
    random = Random(1)
    sample = sampled(lambda n: "hot" if random.random() < 0.2 else n)
    assert shares(sample) == {"hot": pytest.approx(0.2, abs=0.05)}
    assert sample.per_second == pytest.approx(10_000, rel=0.05)


def test_no_key_stands_out_where_all_get_the_same():
    assert shares(sampled(lambda n: n % 5_000)) == {}


@pytest.mark.parametrize("period", [2, 3, 200, 400])
def test_an_order_of_keys_makes_none_look_hot(period):
    """A step that never changed would see the same key again and again."""
    for share in shares(sampled(lambda n: n % period)).values():
        assert share == pytest.approx(1 / period, abs=0.05)


def test_keys_that_come_in_long_runs_count_by_how_long_these_are():
    found = shares(sampled(lambda n: n // 50_000))  # each for five seconds, of which a minute has twelve
    assert len(found) >= 9 and all(share < 0.15 for share in found.values())


def test_what_was_hot_before_is_forgotten():
    sample = sampled(lambda n: "then" if n < 300_000 else "now", seconds=30 + 2 * SPAN_MS // 1_000 + 4)
    assert shares(sample) == {"now": 1.0}


def test_where_little_comes_every_record_counts():
    assert shares(sampled(lambda n: n % 4, rate=20)) == dict.fromkeys(range(4), 0.25)


def test_few_records_are_looked_at_however_many_come():
    class Keys(list[int]):
        looked = 0

        def __getitem__(self, at):
            self.looked += 1
            return super().__getitem__(at)

    sample, keys, looked = KeySample(), Keys(range(1_000)), []
    for ms in range(0, 20_000, 10):
        keys.looked = 0
        sample.look(ms)
        sample.see(keys)
        looked.append(keys.looked)
    assert sum(looked[:200]) < 12 * MOST_LOOKS, "at the beginning the rate is not known"
    assert sum(looked[400:]) == pytest.approx(PER_SECOND * 16, rel=0.2)


def test_memory_is_bounded_in_a_burst_of_new_keys():
    sample = KeySample()
    sample.look(0)
    for n in range(200):
        sample.look(1.0 * n)
        sample._every = 1
        sample.see(range(1_000 * n, 1_000 * n + 1_000))
    assert len(sample._span.counts) <= MOST_KEYS


def test_columns_are_seen_as_the_keys_that_they_stand_for():
    numbers, texts = KeySample(), KeySample()
    for sample in (numbers, texts):
        sample.look(0)
    for _ in range(50):
        numbers.see(np.array([7, 7, 8, 7]))
        texts.see(["ada", "bob"], np.array([0, 0, 1, 0]))
    for sample in (numbers, texts):
        sample.look(5_000)
    assert shares(numbers) == {7: 0.75, 8: 0.25} and all(type(key) is int for key in shares(numbers))
    assert shares(texts) == {"ada": 0.75, "bob": 0.25}
