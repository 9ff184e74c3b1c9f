"""Every example as a batch gives what it gives when it streams: the results that the tests beside this one expect."""

from collections import Counter
from pathlib import Path

import pytest
from test_examples import ELSEWHERE, EXPECTED, FUNCTIONS, by_key, key_of, learned, load
from test_operator_state_examples import OVER, SENT, SILENCES
from test_window_examples import COUNTS, PAIRS

import moorline as mo
from moorline.errors import InvalidLoop

pytestmark = pytest.mark.spark

#: Example, name of its result, and the result: all of it, in some order.
MULTISETS = {
    "windowed_counts": ("counts", COUNTS),
    "interval_join": ("pairs", PAIRS),
    "broadcast_rules": ("over", OVER),
    "timers": ("silences", SILENCES),
}
#: With a test of its own below.
SPECIAL = {"online_model", "word_count_files", "buffering_sink", "counting_source", "connected_components"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_keyed_example_as_a_batch(name, spark):
    found = mo.run(load(name).build(), spark, mode="auto").collected(FUNCTIONS[name][2])
    # Running results are those of streaming, because a key's records keep their order.
    assert by_key(found, key_of(name)) == by_key(EXPECTED[name], key_of(name))


@pytest.mark.parametrize("name", MULTISETS)
def test_an_example_with_event_time_as_a_batch(name, spark):
    result, expected = MULTISETS[name]
    assert sorted(mo.run(load(name).build(), spark, mode="auto").collected(result)) == expected


def test_the_online_model_as_a_batch(spark):
    found = mo.run(load("online_model").build(1000), spark, mode="batch").collected("errors")
    assert by_key(found) == by_key(learned(load("online_model"), 1000))


def test_the_word_count_as_a_batch(spark, tmp_path):
    module = load("word_count_files")
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.txt").write_text(module.RHYME)
    mo.run(module.build(tmp_path / "in", tmp_path / "out"), spark, mode="batch")
    assert module.totals(tmp_path / "out") == Counter(3 * module.RHYME.split())
    assert not (tmp_path / "out" / ".moorline-staging").exists()


def test_the_buffering_sink_as_a_batch(spark, tmp_path):
    module = load("buffering_sink")
    log = str(tmp_path / "sent")

    def send(elements):
        with open(log, "a") as file:
            file.write(" ".join(f"{word}:{count}" for word, count in elements) + "\n")

    mo.run(module.build(send=send), spark, mode="batch")
    assert [f"sent {line}" for line in Path(log).read_text().splitlines()] == SENT


def test_the_counting_source_as_a_batch(spark):
    module = load("counting_source")
    module.FailOnce.open = lambda self, ctx: setattr(self, "attempt", 0)  # this Spark tries a task once
    assert mo.run(module.build(5000), spark, mode="batch").collected("numbers") == list(range(5000))


def test_an_example_with_a_loop_is_no_batch():
    with pytest.raises(InvalidLoop):
        mo.run(load("connected_components").build(), mode="batch")


def test_every_example_is_tested_here():
    assert {*MULTISETS, *SPECIAL} == {*ELSEWHERE, "online_model", "word_count_files"}
