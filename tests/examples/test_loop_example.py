"""The example of a loop: its function alone in the harness, and the whole job on Spark."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import moorline as mo
from moorline.testing.harness import OperatorHarness

spec = importlib.util.spec_from_file_location(
    "example_connected_components", Path(__file__).parents[2] / "examples" / "connected_components.py"
)
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)


def test_a_place_that_learns_of_a_smaller_name_tells_its_neighbours():
    with OperatorHarness(example.Spread(), key=lambda message: message[0]) as harness:
        assert harness.process_all([("m", "road", "n"), ("m", "component", "k"), ("m", "component", "l")]) == [
            ("m", "m"),
            ("m", "k"),
        ]
        told = harness.side_output(example.Spread.messages)
        assert told == [("n", "component", "m"), ("n", "component", "m"), ("n", "component", "k")]


@pytest.mark.spark
def test_everybody_learns_the_smallest_name_of_its_component(spark):
    changes = dict(mo.run(example.build(), spark).collected("changes"))
    assert changes == {**dict.fromkeys("abcd", "a"), **dict.fromkeys("xyz", "x"), "e": "e"}
