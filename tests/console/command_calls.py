"""Calls of the command line in this process."""

from __future__ import annotations

import textwrap

from click.testing import CliRunner, Result

from moorline.cli.main import cli


def call(*arguments: object, **environment: str) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments], env=environment, prog_name="moorline")


def shown(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def script(folder, text: str, name: str = "job.py") -> str:
    (folder / name).write_text(textwrap.dedent(text))
    return str(folder / name)
