"""The tally of chaos tests: how many processes were killed or stopped, and how many checkpoints were restored."""

from __future__ import annotations

from collections import Counter

import pytest

_tally = pytest.StashKey[Counter]()


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Counter:
    return request.config.stash.setdefault(_tally, Counter())


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    tally = config.stash.get(_tally, Counter())
    if tally:
        terminalreporter.section("chaos")
        for what, count in sorted(tally.items()):
            terminalreporter.line(f"{count:5} {what}")
