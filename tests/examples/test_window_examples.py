"""The examples of windows and joins: their step alone in the harness, with restores, and the whole job on Spark."""

import importlib.util
from datetime import UTC, datetime
from pathlib import Path

import pytest

import moorline as mo
from moorline.model.times import MAX_TIME
from moorline.testing.harness import OperatorHarness

FOLDER = Path(__file__).parents[2] / "examples"

COUNTS = [("/cart", "10:01", 1), ("/home", "10:00", 3), ("/home", "10:03", 1)]
PAIRS = [("ada", "chair", 80, 420), ("ada", "chair", 120, 90), ("ada", "desk", 120, 570)]


def load(name):
    """The example as a module that is nowhere registered, so that its functions travel to workers by value."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def at(record):
    return round(datetime.fromisoformat(record[1]).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_views_are_counted_per_minute(parallelism):
    module = load("windowed_counts")
    harness = OperatorHarness.of(module.counted, parallelism=parallelism)
    out = []
    for number, view in enumerate(module.VIEWS):
        out += harness.process(view, at(view))
        harness = OperatorHarness.of(module.counted, parallelism=1 + number % 3, snapshot=harness.snapshot())
    assert out == []
    assert sorted(harness.watermark(MAX_TIME)) == COUNTS


def test_a_late_view_corrects_its_minute_and_one_that_is_later_still_is_put_aside():
    module = load("windowed_counts")
    harness = OperatorHarness.of(module.counted)
    for view in module.VIEWS:
        harness.process(view, at(view))
    late = ("/home", "2026-03-01T10:00:30")
    assert harness.watermark(at(("", "2026-03-01T10:01:20"))) == [("/home", "10:00", 3)]
    assert harness.process(late, at(late)) == [("/home", "10:00", 4)]
    harness.watermark(at(("", "2026-03-01T10:02:00")))
    assert harness.process(late, at(late)) == []
    assert harness.side_output(module.LATE) == [late]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_purchases_find_their_searches(parallelism):
    module = load("interval_join")
    harness = OperatorHarness.of(module.attributed, inputs=2, parallelism=parallelism)
    out = []
    for search in module.SEARCHES:
        out += harness.process(search, at(search))
    harness = OperatorHarness.of(module.attributed, inputs=2, snapshot=harness.snapshot())
    for purchase in module.PURCHASES:
        out += harness.process(purchase, at(purchase), side=1)
    assert sorted(out) == PAIRS


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "result", "expected"), [("windowed_counts", "counts", COUNTS), ("interval_join", "pairs", PAIRS)]
)
def test_an_example_with_event_time_on_spark(name, result, expected, spark):
    found = mo.run(load(name).build(), spark).collected(result)
    assert sorted(found) == expected
