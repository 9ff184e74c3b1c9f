"""Versions that stand in several places agree: of Moorline, of the storage format, of Python and of Spark."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import moorline
from moorline.model.manifest import FORMAT

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]


def read(path: str) -> str:
    return (ROOT / path).read_text()


def pythons() -> list[tuple[int, int]]:
    """The versions of Python that the classifiers name."""
    named = re.findall(r"Programming Language :: Python :: (\d+)\.(\d+)", "\n".join(PROJECT["classifiers"]))
    return [(int(major), int(minor)) for major, minor in named]


def test_the_version_is_written_once():
    assert "version" not in PROJECT
    assert PROJECT["dynamic"] == ["version"]
    assert re.findall(r'^__version__ = "(.+)"$', read(PYPROJECT["tool"]["hatch"]["version"]["path"]), re.MULTILINE) == [
        moorline.__version__
    ]


def test_the_installed_package_has_the_version_of_the_source():
    assert importlib.metadata.version("moorline") == moorline.__version__, "run: touch pyproject.toml && make setup"


def test_the_command_line_says_the_version():
    module, _, _ = PROJECT["scripts"]["moorline"].partition(":")
    said = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.split()[-1] == moorline.__version__


def test_the_newest_section_of_the_changelog_is_the_version():
    sections = re.findall(r"^## \[(.+?)\] - (unreleased|\d{4}-\d\d-\d\d)$", read("CHANGELOG.md"), re.MULTILINE)
    assert sections[0][0] == moorline.__version__
    assert [when for _, when in sections[1:] if when == "unreleased"] == [], "only the newest one is unreleased"


def test_the_changelog_has_no_sections_but_the_usual_ones():
    usual = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Storage format"}
    assert set(re.findall(r"^### (.+)$", read("CHANGELOG.md"), re.MULTILINE)) <= usual


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("docs/reference/storage-format.md", r"^# Storage format, version (\d+)$"),
        ("docs/reference/storage-format.md", r'"format": (\d+),$'),
        ("docs/reference/storage-format.md", r"the attempt, the wall clock, (\d+) \|$"),
        ("CHANGELOG.md", r"^- Version (\d+) is written;"),
    ],
)
def test_pages_name_the_present_storage_format(path, form):
    assert re.findall(form, read(path), re.MULTILINE)[0] == str(FORMAT)


def test_the_table_of_storage_formats_has_a_row_for_each():
    table = read("docs/reference/storage-format.md").partition("| version |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (\d+) \| ", table, re.MULTILINE)
    assert rows == [str(version) for version in range(1, FORMAT + 1)]


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("README.md", r"You need Python (\S+) or newer"),
        ("CONTRIBUTING.md", r"Python (\S+) and Java"),
        ("Makefile", r"but Python (\S+) or newer"),
        (str(next(ROOT.glob("moorline/**/examination.py")).relative_to(ROOT)), r"Use Python (\S+) or newer"),
    ],
)
def test_pages_name_the_oldest_python(path, form):
    assert re.findall(form, read(path)) == [PROJECT["requires-python"].removeprefix(">=")]


def test_tools_check_against_the_oldest_python():
    oldest = "{}.{}".format(*min(pythons()))
    assert PROJECT["requires-python"] == f">={oldest}"
    assert PYPROJECT["tool"]["mypy"]["python_version"] == oldest
    assert PYPROJECT["tool"]["ruff"]["target-version"] == "py" + oldest.replace(".", "")


def test_the_support_policy_names_the_same_versions_of_python():
    oldest, newest = ("{}.{}".format(*python) for python in (min(pythons()), max(pythons())))
    page = read("docs/reference/support.md")
    assert re.findall(r"^\| Python \| ([\d.]+) to ([\d.]+),", page, re.MULTILINE) == [(oldest, newest)]
    minor = range(min(pythons())[1] + 1, max(pythons())[1] + 1)
    assert [m for m in minor if not re.search(rf"\b3\.{m}\.\d+\b", page)] == [], (
        "each has been tried, and the page says how"
    )


def test_every_python_between_the_oldest_and_the_newest_is_named():
    named = pythons()
    assert named == [(3, minor) for minor in range(named[0][1], named[-1][1] + 1)]
