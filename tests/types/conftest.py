"""Each checker is run once, for the programs of this folder, for the pages and for the examples together."""

from __future__ import annotations

import pytest
from checkers import ROOT, Complaint, copy_into, run_mypy, run_pyright
from typed_files import CANARY, CODE, PROGRAMS, WITH_CODE, code_of, module


@pytest.fixture(scope="session")
def complaints(tmp_path_factory) -> dict[str, list[Complaint]]:
    folder = tmp_path_factory.mktemp("checked")
    copy_into(folder, {module(path): path for path in [*PROGRAMS, *CODE]})
    for page in WITH_CODE:
        (folder / module(page)).write_text(code_of(page))
    (folder / CANARY).write_text(code_of(ROOT / "README.md") + "mo.Job(3)\n")
    return {"mypy": run_mypy(folder, ROOT / ".mypy_cache/checked"), "pyright": run_pyright(folder)}
