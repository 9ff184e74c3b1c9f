"""``moorline rescale``: another parallelism for a running job."""

from __future__ import annotations

import click

from moorline.cli.connection import connected, console_options
from moorline.cli.output import json_option, long_work, printable, show_json


@click.command()
@click.argument("parallelism", nargs=-1, required=True, metavar="N | UID=N...")
@console_options
@click.option("--wait", default="5min", show_default=True, metavar="TIME", help="How long to wait for it.")
@json_option
def command(parallelism: tuple[str, ...], url: str | None, token_file: str | None, wait: str, as_json: bool) -> None:
    """Let a running job go on with another parallelism: N for all of it, or UID=N for some operators.

    The job takes a checkpoint, and starts again from it. Nothing is lost or done twice.
    """
    wanted = _wanted(parallelism)
    client = connected(url, token_file)
    with long_work("rescaling"):
        status = client.rescale(wanted, timeout=wait)
    if as_json:
        show_json({"job": status["job"], "status": status["status"], "attempt": status["attempt"]})
    else:
        click.echo(printable(f"job {status['job']}: {status['status']}, attempt {status['attempt']}"))


def _wanted(given: tuple[str, ...]) -> int | dict[str, int]:
    if len(given) == 1 and given[0].isdigit():
        return int(given[0])
    wanted: dict[str, int] = {}
    for argument in given:
        uid, equals, number = argument.rpartition("=")
        if not (uid and equals and number.isdigit()):
            raise click.UsageError(f"{argument!r} is neither a number nor UID=N.")
        wanted[uid] = int(number)
    return wanted
