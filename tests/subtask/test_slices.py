"""How many records are processed at a time."""

from __future__ import annotations

from collections.abc import Callable

from moorline.subtask.adaptive_batches import SLICE_MS, AdaptiveBatches


class Operator:
    """Takes as long as it says for so many records."""

    def __init__(self, takes_ms: Callable[[int], float]) -> None:
        self.takes_ms, self.now_ms, self.calls = takes_ms, 0.0, []

    def process(self, records: list[int], stamps: list[int] | None, side: int = 0) -> None:
        self.calls.append(len(records))
        self.now_ms += self.takes_ms(len(records))


def run(takes_ms: Callable[[int], float], frames: int = 20, records: int = 2_000, first: int = 0) -> list[int]:
    operator = Operator(takes_ms)
    slices = AdaptiveBatches(lambda: operator.now_ms, lambda: False, 4_096)
    if first:
        slices.process(operator, list(range(first)), None, 0)
        operator.calls.clear()
    for _ in range(frames):
        assert slices.process(operator, list(range(records)), None, 0) == records
    assert sum(operator.calls) == frames * records
    return operator.calls


def test_a_quick_function_gets_whole_frames():
    assert run(lambda count: count * 0.001) == [2_000] * 20


def test_a_slow_function_gets_a_few_at_a_time():
    calls = run(lambda count: count * 2.0)
    assert max(calls[1:]) * 2.0 <= SLICE_MS


def test_a_function_that_takes_as_long_for_a_few_gets_whole_frames_but_for_a_try_now_and_then():
    calls = run(lambda count: 200.0, frames=400)
    whole = calls.count(2_000)
    assert whole > 380
    assert len(calls) < 1.2 * 400


def test_it_does_not_matter_that_the_first_frame_was_small():
    calls = run(lambda count: 200.0, frames=400, first=8)
    assert calls.count(2_000) > 380


def test_it_does_not_matter_when_a_frame_of_one_record_comes():
    operator = Operator(lambda count: 200.0)
    slices = AdaptiveBatches(lambda: operator.now_ms, lambda: False, 4_096)
    for count in range(400):
        slices.process(operator, list(range(1 if count % 3 == 0 else 2_000)), None, 0)
    assert operator.calls.count(2_000) > 0.9 * 266
    assert len(operator.calls) < 1.2 * 400


def test_records_that_are_slow_each_come_one_by_one_but_for_a_try_now_and_then():
    calls = run(lambda count: count * 200.0, frames=2)
    assert max(calls[1:]) <= 2
    assert calls.count(2) < 0.05 * len(calls)


def test_a_call_that_is_slow_and_records_that_are_slow_too_find_a_measure():
    calls = run(lambda count: 100.0 + count * 1.0, frames=30)
    # Most are neither single records, which cost a hundred times as much, nor so many that a checkpoint would wait.
    usual = [count for count in calls if 20 <= count <= 200]
    assert sum(usual) > 0.6 * sum(calls)


def test_what_was_slow_for_a_while_gets_more_again():
    slow_until = 10
    seen: list[int] = []

    def takes_ms(count: int) -> float:
        seen.append(count)
        return count * 2.0 if len(seen) < slow_until else count * 0.0001

    assert run(takes_ms)[-1] == 2_000
