"""``moorline logs``: what the driver of a running job has logged about it."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import click

from moorline.cli.connection import connected, console_options
from moorline.cli.output import json_option, printable, show_json
from moorline.errors import ConsoleRefused

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_LOOK_SECONDS = 1.0


@click.command()
@console_options
@click.option("--follow", "-f", is_flag=True, help="Go on until the job has ended.")
@click.option("--level", type=click.Choice([name.lower() for name in _LEVELS[:4]]), default="debug", show_default=True)
@click.option("--last", type=click.IntRange(0), default=100, show_default=True, help="So many lines to begin with.")
@json_option
def command(url: str | None, token_file: str | None, follow: bool, level: str, last: int, as_json: bool) -> None:
    """Show the last lines that the driver of a running job has logged about it, 1000 at most.

    What the logger "moorline" of the driver lets through is kept. Workers log to standard error, which Spark keeps in
    the files of their executors; what a subtask fails of is in the driver's log as well.
    """
    if follow and as_json:
        raise click.UsageError("--json prints one document: it does not go with --follow.")
    client = connected(url, token_file)
    lines = client.log_lines()
    seen = lines[-1]["number"] if lines else 0
    lines = [line for line in lines if _LEVELS.index(line["level"]) >= _LEVELS.index(level.upper())]
    lines = lines[-last:] if last else []
    if as_json:
        show_json({"lines": lines})
        return
    _print(lines)
    while follow:
        time.sleep(_LOOK_SECONDS)
        try:
            lines = client.log_lines(seen)
        except ConsoleRefused:
            return  # the console ends with its job
        seen = lines[-1]["number"] if lines else seen
        _print([line for line in lines if _LEVELS.index(line["level"]) >= _LEVELS.index(level.upper())])


def _print(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        at = datetime.fromtimestamp(line["time_ms"] / 1000).strftime("%H:%M:%S")
        for text in str(line["text"]).splitlines():
            click.echo(f"{at} {line['level']} {printable(text)}")
