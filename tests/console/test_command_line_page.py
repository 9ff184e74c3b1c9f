"""The reference of the command line shows what the commands print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from moorline.cli.main import cli

PAGE = (Path(__file__).parents[2] / "docs/reference/command-line.md").read_text()


def printed(*arguments: str) -> str:
    return CliRunner().invoke(cli, [*arguments, "--help"], prog_name="moorline", terminal_width=100).output


def test_the_page_shows_every_command_and_no_other():
    shown = re.findall(r"^## moorline (\w+)$", PAGE, re.MULTILINE)
    assert shown == cli.list_commands(None)


@pytest.mark.parametrize("name", ["", *cli.list_commands(None)])
def test_the_page_shows_the_help_that_is_printed(name):
    assert f"```text\n{printed(*filter(None, [name]))}```" in PAGE
