"""Mypy and pyright as the tests use them: each is run once for all files, and its complaints are kept by file and line.

All files are copied into one folder, where they are modules of their own and Moorline is a package that they import,
as it is for a user.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Where Moorline lies, and the modules that tests of the API import.
_PATHS = [str(ROOT / folder) for folder in (".", "tests", "tests/api")]
#: Strict, but for annotations: these a user may leave out. Bodies without them are checked all the same.
_MYPY = """
[mypy]
strict = True
python_version = 3.11
mypy_path = {paths}
disallow_untyped_defs = False
disallow_incomplete_defs = False
disallow_untyped_calls = False
disallow_untyped_decorators = False
check_untyped_defs = True
warn_unused_ignores = False
[mypy-right_annotated,wrong_programs]
disallow_untyped_defs = True
disallow_incomplete_defs = True
[mypy-moorline.*]
ignore_errors = True
[mypy-pyarrow.*,pyspark.*,py4j.*,pandas.*,cloudpickle.*,psutil.*,rocksdict.*,fsspec.*,kazoo.*,confluent_kafka.*,pytest.*,hypothesis.*]
ignore_missing_imports = True
follow_imports = skip
"""


@dataclass(frozen=True, order=True)
class Complaint:
    """An error that a type checker reports."""

    file: str
    line: int
    #: Mypy's error code, or pyright's rule.
    code: str
    message: str


def run_mypy(folder: Path, cache: Path) -> list[Complaint]:
    """The errors of all files in ``folder``, in strict mode except for missing annotations."""
    config = folder / "mypy.ini"
    config.write_text(_MYPY.format(paths=":".join(_PATHS)))
    options = ["--config-file", str(config), "--cache-dir", str(cache), "--output", "json"]
    names = sorted(path.name for path in folder.glob("*.py"))
    command = [sys.executable, "-m", "mypy", *options, *names]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    errors = [one for one in found if one["severity"] == "error"]
    return sorted(Complaint(Path(e["file"]).name, e["line"], e["code"] or "", e["message"]) for e in errors)


def run_pyright(folder: Path) -> list[Complaint]:
    """The errors of all files in ``folder``, in the mode that it has by default."""
    config = {"pythonVersion": "3.11", "extraPaths": _PATHS, "typeCheckingMode": "standard"}
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    quiet = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=quiet)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] >= len(list(folder.glob("*.py"))), report["summary"]
    errors = [one for one in report["generalDiagnostics"] if one["severity"] == "error"]
    return sorted(
        Complaint(Path(e["file"]).name, e["range"]["start"]["line"] + 1, e.get("rule", ""), e["message"])
        for e in errors
    )


def copy_into(folder: Path, files: dict[str, Path]) -> None:
    """Copy files under names by which all of them are modules beside each other."""
    for name, path in files.items():
        shutil.copy(path, folder / name)
