"""Documentation, examples and the tests of the API are free of type errors, by mypy and by pyright."""

from __future__ import annotations

import pytest
from checkers import ROOT
from typed_files import CANARY, CODE, WITH_CODE, code_of, module

#: The checkers are run once for all, by one worker.
pytestmark = [pytest.mark.xdist_group("types"), pytest.mark.slow]


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
@pytest.mark.parametrize("path", [*WITH_CODE, *CODE], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_type_error(complaints, checker, path):
    found = [complaint for complaint in complaints[checker] if complaint.file == module(path)]
    assert [f"{path.name}:{c.line}: {c.message} [{c.code}]" for c in found] == []


def test_an_error_in_a_page_would_be_found_in_its_line(complaints):
    line = code_of(ROOT / "README.md").count("\n") + 1
    for checker, code in (("mypy", "arg-type"), ("pyright", "reportArgumentType")):
        assert [(c.line, c.code) for c in complaints[checker] if c.file == CANARY] == [(line, code)]
