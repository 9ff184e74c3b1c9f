"""``moorline savepoint``: a snapshot of a running job that is its owner's to keep."""

from __future__ import annotations

import click

from moorline.cli.connection import connected, console_options
from moorline.cli.output import json_option, long_work, printable, show_json


@click.command()
@click.argument("path", type=click.Path())
@console_options
@click.option("--wait", default="5min", show_default=True, metavar="TIME", help="How long to wait for it.")
@json_option
def command(path: str, url: str | None, token_file: str | None, wait: str, as_json: bool) -> None:
    """Take a savepoint of a running job at PATH, a folder that is new. The job goes on.

    PATH is where the job's driver and workers can write: a shared folder or a bucket. Without a savepoint at the end
    the exit code is 1.
    """
    client = connected(url, token_file)
    with long_work("taking a savepoint"):
        where = client.savepoint(path, timeout=wait)
    if as_json:
        show_json({"savepoint": where})
    else:
        click.echo(printable(f"savepoint: {where}"))
