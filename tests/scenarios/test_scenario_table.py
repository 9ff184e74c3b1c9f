"""Every test that the table of scenarios names is there, and every scenario is in the table."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "flink-scenarios.md"


def test_the_tests_that_the_table_names_exist():
    named = re.findall(r"\[`(\w+)`\]\(([^)]+)\)", PAGE.read_text())
    assert len(named) > 25
    for test, path in named:
        assert f"def {test}(" in (PAGE.parent / path).read_text(), f"{test} is not in {path}"


def test_every_scenario_is_in_the_table():
    text, scenarios = PAGE.read_text(), Path(__file__).with_name("test_flink_scenarios.py").read_text()
    for name in re.findall(r"^def (test_\w+)\(", scenarios, re.MULTILINE):
        assert f"`{name}`" in text, f"{name} is not in {PAGE.name}"
