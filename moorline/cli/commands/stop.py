"""``moorline stop``: end a running job."""

from __future__ import annotations

import time

import click

from moorline.cli.connection import connected, console_options
from moorline.cli.output import json_option, long_work, show_json
from moorline.errors import ConsoleRefused
from moorline.http.client import JobClient
from moorline.model.durations import milliseconds

_ENDED = ("finished", "failed", "cancelled")
_LOOK_SECONDS = 0.2


@click.command()
@console_options
@click.option("--savepoint", metavar="PATH", type=click.Path(), help="Take a savepoint here first.")
@click.option("--drain", is_flag=True, help="Before the savepoint, let all timers and windows fire. Needs --savepoint.")
@click.option("--cancel", is_flag=True, help="At once: what no checkpoint covers is not committed.")
@click.option("--wait", default="60s", show_default=True, metavar="TIME", help="How long to wait for the end.")
@json_option
def command(
    url: str | None,
    token_file: str | None,
    savepoint: str | None,
    drain: bool,
    cancel: bool,
    wait: str,
    as_json: bool,
) -> None:
    """End a running job well: a final checkpoint, and everything committed. Waits for the end.

    With --savepoint, a job whose savepoint fails goes on, and the exit code is 1.
    """
    if drain and not savepoint:
        raise click.UsageError("--drain needs --savepoint.")
    if cancel and savepoint:
        raise click.UsageError("--cancel ends the job at once, without a savepoint.")
    patience = milliseconds(wait, "--wait") / 1000
    client = connected(url, token_file)
    deadline = time.monotonic() + patience
    with long_work("stopping") as say:
        answer = client.stop(cancel=cancel, savepoint=savepoint or "", drain=drain, timeout=patience)
        say(str(answer["job"]))
        status = _wait(client, deadline)
    if as_json:
        show_json({"job": answer["job"], "status": status} | ({"savepoint": savepoint} if savepoint else {}))
    elif status == "ended":
        click.echo(f"job {answer['job']} has ended")
    else:
        click.echo(f"job {answer['job']}: {status}")
    if status != "ended" and status not in _ENDED:
        raise click.ClickException(f"the job is still {status} after {wait}. It goes on stopping.")
    if status == "failed":
        raise click.exceptions.Exit(1)


def _wait(client: JobClient, deadline: float) -> str:
    """The status in the end. "ended": the console has closed, as it does when its job is over."""
    status = "running"
    while time.monotonic() < deadline:
        try:
            status = client.status()["status"]
        except ConsoleRefused:
            return "ended"
        if status in _ENDED:
            break
        time.sleep(_LOOK_SECONDS)
    return status
