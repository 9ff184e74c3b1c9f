"""Every example, twice: its function alone in the harness, and the whole job on Spark, against explicit results."""

import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import moorline as mo
from moorline.testing.harness import OperatorHarness

FOLDER = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    """The example as a module that is nowhere registered, so that its functions travel to workers by value."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def by_key(records, key=lambda r: r[0]):
    """The records of each key, in their order: all that is certain when there are several subtasks."""
    found = {}
    for record in records:
        found.setdefault(key(record), []).append(record)
    return found


# Example, class of its function, name of its result. Those of from_items take their input as an argument.
FUNCTIONS = {
    "running_average": ("CountWindowAverage", "NUMBERS", "out"),
    "sum_per_customer": ("SumPerCustomer", "ORDERS", "sums"),
    "larger_than_before": ("LargerThanBefore", "READINGS", "records"),
    "pattern_detection": ("GuessedPassword", "LOGINS", "alerts"),
    "minute_hour_counts": ("MinuteAndHour", "VIEWS", "counts"),
    "past_events": ("WithHistory", "EVENTS", "purchases"),
    "ttl_sessions": ("Visits", "CLICKS", "visits"),
}
#: Tested in files of their own beside this one.
ELSEWHERE = {
    "connected_components",
    "windowed_counts",
    "interval_join",
    "buffering_sink",
    "counting_source",
    "broadcast_rules",
    "timers",
}

EXPECTED = {
    "ttl_sessions": [
        ("ada", "/home", 1),
        ("bob", "/home", 1),
        ("ada", "/lamp", 2),
        ("ada", "/login", 3),
        ("bob", "/desk", 2),
        ("ada", "/cart", 4),
    ],
    "running_average": [(2, 8), (2, 11), (2, 3)],
    "sum_per_customer": [("ada", 30), ("bob", 12), ("ada", 35), ("cleo", 40), ("bob", 20), ("ada", 36)],
    "larger_than_before": [("roof", 20.5), ("cellar", 9.0), ("roof", 21.5), ("cellar", 11.0)],
    "pattern_detection": ["eve"],
    "minute_hour_counts": [
        ("/home", "minute", "2026-03-01T10:00", 1),
        ("/home", "hour", "2026-03-01T10:00", 1),
        ("/home", "minute", "2026-03-01T10:00", 2),
        ("/home", "hour", "2026-03-01T10:00", 2),
        ("/cart", "minute", "2026-03-01T10:01", 1),
        ("/cart", "hour", "2026-03-01T10:00", 1),
        ("/home", "minute", "2026-03-01T11:30", 1),
        ("/home", "hour", "2026-03-01T11:00", 1),
        ("/home", "minute", "2026-03-01T10:00", 3),
        ("/home", "hour", "2026-03-01T10:00", 3),
    ],
    "past_events": [
        {"user": "ada", "bought": "lamp", "viewed_before": ["desk", "chair", "lamp"], "saved": 5},
        {"user": "bob", "bought": "chair", "viewed_before": ["lamp"], "saved": None},
    ],
}


def key_of(name):
    if name in ("running_average", "pattern_detection"):
        return lambda r: None  # one key has results, or they name none
    return (lambda r: r["user"]) if name == "past_events" else (lambda r: r[0])


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_function_of_an_example(name, parallelism):
    module = load(name)
    function, records, _ = FUNCTIONS[name]
    with OperatorHarness(getattr(module, function)(), key=lambda r: r[0], parallelism=parallelism) as harness:
        assert harness.process_all(getattr(module, records)) == EXPECTED[name]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_function_of_an_example_with_a_restore_between_all_records(name):
    module = load(name)
    function, records, _ = FUNCTIONS[name]
    harness = OperatorHarness(getattr(module, function)(), key=lambda r: r[0])
    results = []
    for number, record in enumerate(getattr(module, records)):
        results += harness.process(record)
        snapshot = harness.snapshot()
        harness.close()
        harness = OperatorHarness.restore(
            snapshot, getattr(module, function)(), key=lambda r: r[0], parallelism=1 + number % 3
        )
    harness.close()
    assert results == EXPECTED[name]


def learned(module, rides):
    """What a plain loop learns."""
    weights, seen, results = {}, Counter(), []
    for city, km, price in map(module.ride, range(rides)):
        base, per_km = weights.get(city, (0.0, 0.0))
        error = price - (base + per_km * km)
        weights[city] = base + 0.02 * error, per_km + 0.02 * error * km / 10
        seen[city] += 1
        results.append((city, seen[city], error))
    return results


def test_the_online_model_learns():
    module = load("online_model")
    with OperatorHarness(module.OnlineRegression(), key=lambda r: r[0], parallelism=2) as harness:
        results = harness.process_all(map(module.ride, range(4000)))
    assert results == learned(module, 4000)
    assert max(abs(error) for _, _, error in results[:10]) > 5
    assert max(abs(error) for _, _, error in results[-100:]) < 0.5


def test_the_word_counter_counts():
    module = load("word_count_files")
    with OperatorHarness(module.Count(), key=lambda word: word) as harness:
        counts = harness.process_all(module.RHYME.split())
    assert Counter(c["word"] for c in counts) == {c["word"]: c["count"] for c in counts}


@pytest.mark.spark
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_example_on_spark(name, spark):
    module = load(name)
    found = mo.run(module.build(), spark).collected(FUNCTIONS[name][2])
    assert by_key(found, key_of(name)) == by_key(EXPECTED[name], key_of(name))


@pytest.mark.spark
def test_the_online_model_on_spark(spark):
    module = load("online_model")
    found = mo.run(module.build(1000), spark).collected("errors")
    assert by_key(found) == by_key(learned(module, 1000))


@pytest.mark.spark
def test_the_word_count_on_spark(spark, tmp_path):
    module = load("word_count_files")
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.txt").write_text(module.RHYME)
    checkpoints = mo.Checkpoints(str(tmp_path / "checkpoints"), interval="1s")
    mo.run(module.build(tmp_path / "in", tmp_path / "out"), spark, checkpoints=checkpoints)
    assert module.totals(tmp_path / "out") == Counter(3 * module.RHYME.split())


def test_every_example_is_tested_here():
    assert {p.stem for p in FOLDER.glob("*.py")} == {*FUNCTIONS, *ELSEWHERE, "online_model", "word_count_files"}
    assert all(len(p.read_text().splitlines()) <= 60 for p in FOLDER.glob("*.py"))
