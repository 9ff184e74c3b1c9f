"""The tally of chaos tests: how many processes were killed or stopped, and how many checkpoints were restored."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

import pytest


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Counter]:
    counted: Counter = Counter()
    yield counted
    # A property of the report: it reaches the summary also from a worker of xdist.
    request.node.user_properties.append(("chaos", dict(counted)))


@pytest.fixture
def own_main(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that loads a script may change what this process was started with: it is put back."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


def pytest_terminal_summary(terminalreporter) -> None:
    tally: Counter = Counter()
    for report in terminalreporter.getreports(""):
        if report.when == "teardown":
            tally.update(dict(report.user_properties).get("chaos", {}))
    if tally:
        terminalreporter.section("chaos")
        for what, count in sorted(tally.items()):
            terminalreporter.line(f"{count:5} {what}")
