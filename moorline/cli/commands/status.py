"""``moorline status``: how a running job is."""

from __future__ import annotations

import click

from moorline.cli.connection import connected, console_options
from moorline.cli.output import json_option, printable, show_json, show_table


@click.command()
@console_options
@json_option
def command(url: str | None, token_file: str | None, as_json: bool) -> None:
    """Show how a running job is, through its console."""
    status = connected(url, token_file).status()
    if as_json:
        show_json(status)
        return
    newest = status["last_checkpoint"]
    checkpoints = f"{status['checkpoints']} checkpoints" + (f", newest {newest}" if newest is not None else "")
    click.echo(printable(f"job {status['job']}: {status['status']}, attempt {status['attempt']}, {checkpoints}"))
    for failure in status["failures"]:
        click.echo(printable(f"  {failure}"))
    operators = status["progress"]["operators"]
    if operators:
        headers = ("operator", "records in", "records out", "keys", "held bytes")
        names = ("records_in", "records_out", "keys", "held_bytes")
        rows = [(uid, *(f"{counts[name]:,}" for name in names)) for uid, counts in operators.items()]
        show_table(headers, rows, numbers=headers[1:])
    for uid, counts in status["progress"].get("counters", {}).items():
        for counter, count in counts.items():
            click.echo(printable(f"{uid}: {counter.replace('_', ' ')}: {count:,}"))
    for uid, cause in status["progress"].get("outages", {}).items():
        click.echo(printable(f"{uid} waits for its outside system: {cause}"))
    for subtask, stall in status["progress"].get("stalled", {}).items():
        click.echo(
            printable(f"subtask {subtask} has not moved on for {stall['seconds']:.0f} s: it is at {stall['at']}")
        )
