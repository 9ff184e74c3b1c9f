"""``moorline run``: a job from a script, until it ends."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import click

from moorline.cli.jobs_table import OPERATOR_HEADERS, RateMeter, job_line, operator_rows, screen, text_table
from moorline.cli.output import json_option, long_work, printable, show_json, size
from moorline.cli.scripts import load_job
from moorline.http.console import HttpEndpoint
from moorline.model.config.checkpoints import Checkpoints
from moorline.model.config.control import ControlPort

#: How often the progress of the job is shown.
_LOOK_SECONDS = 0.5
#: How often --watch looks: a rate over less says little.
WATCH_SECONDS = 1.0


@click.command()
@click.argument("script", metavar="SCRIPT[:NAME]", type=click.Path())
@click.option("--checkpoints", metavar="PATH", type=click.Path(), help="Take checkpoints below this folder.")
@click.option("--interval", default="10s", show_default=True, metavar="TIME", help="How often.")
@click.option(
    "--restore", metavar="latest|PATH", type=click.Path(), help="Go on from the newest checkpoint, or from a savepoint."
)
@click.option("--claim", is_flag=True, help="Take the savepoint over: it is removed once a checkpoint replaces it.")
@click.option("--take-over", is_flag=True, help="Begin anew although an earlier run may be alive: it is stopped.")
@click.option("--allow-non-restored-state", is_flag=True, help="Start even if operators of the snapshot are gone.")
@click.option("--parallelism", type=click.IntRange(1), help="Instead of what the script says.")
@click.option("--backend", type=click.Choice(["heap", "rocksdb"]), default="heap", show_default=True)
@click.option("--master", metavar="URL", help="A Spark master. Without one a local Spark is started.")
@click.option("--console", metavar="HOST:PORT", help="Let other processes ask for status and state here.")
@click.option(
    "--token-file", metavar="FILE", type=click.Path(), help="Where to write the console's token. Needs --console."
)
@click.option(
    "--token-from", metavar="FILE", type=click.Path(), help="A file with the console's token, instead of a new one."
)
@click.option("--console-host", "hosts", metavar="NAME", multiple=True, help="A name to ask the console by.")
@click.option(
    "--savepoints",
    metavar="PATH",
    type=click.Path(),
    multiple=True,
    help="Below this folder, too, a savepoint may be asked for through the console.",
)
@click.option(
    "--control-port", type=click.IntRange(0, 65535), default=0, help="Where subtasks call the driver; 0: any."
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Of driver and workers.")
@click.option("--watch", is_flag=True, help="Show live progress, operator by operator.")
@json_option
def command(
    script: str,
    checkpoints: str | None,
    interval: str,
    restore: str | None,
    claim: bool,
    take_over: bool,
    allow_non_restored_state: bool,
    parallelism: int | None,
    backend: str,
    master: str | None,
    console: str | None,
    token_file: str | None,
    token_from: str | None,
    hosts: tuple[str, ...],
    savepoints: tuple[str, ...],
    control_port: int,
    log_level: str | None,
    watch: bool,
    as_json: bool,
) -> None:
    """Run the job in SCRIPT until it ends.

    The job is the variable "job" of the script, what its function "build" returns, or what NAME says. What stands
    under if __name__ == "__main__" is not executed.
    """
    if restore == "latest" and not checkpoints:
        raise click.UsageError("--restore latest needs --checkpoints: they say where to look.")
    if claim and restore in (None, "latest"):
        raise click.UsageError("--claim needs --restore with the path of a savepoint.")
    needs_console = {
        "token-file": token_file,
        "token-from": token_from,
        "console-host": hosts,
        "savepoints": savepoints,
    }
    for option, given in needs_console.items():
        if given and not console:
            raise click.UsageError(f"--{option} needs --console.")
    job = load_job(script)
    options: dict[str, Any] = {"restore": restore, "parallelism": parallelism, "backend": backend}
    options["allow_non_restored_state"] = allow_non_restored_state
    options["take_over"] = take_over
    options["log_level"] = log_level
    if control_port:
        options["control"] = ControlPort(control_port)
    if claim:
        options["restore_mode"] = "claim"
    if checkpoints:
        options["checkpoints"] = Checkpoints(checkpoints, interval=interval)
    if console:
        options["console"] = HttpEndpoint(console, token_file, savepoints, token_from=token_from, hosts=hosts)
    with long_work(f"starting {job.name}") as say:
        handle = _start(job, master, options)
        if handle.console is not None:
            click.echo(f"console: {handle.console.url}  token file: {handle.console.token_file}", err=True)
        if not watch:
            result = _wait(handle, lambda: say(_progress_line(handle)), _LOOK_SECONDS)
    if watch:
        result = _watch(handle)
    _show(job.name, result, as_json)


def _start(job: Any, master: str | None, options: dict[str, Any]) -> Any:
    # Loaded here: the other commands do without Spark, and are there at once.
    spark = importlib.import_module("moorline.spark.session.machine").on_master(master) if master else None
    return importlib.import_module("moorline.spark.run").start(job, spark, **options)


def _wait(handle: Any, look: Callable[[], None], seconds: float) -> Any:
    """The result of a job, which is looked at until then."""
    try:
        while (result := handle.wait(seconds)) is None:
            look()
        return result
    except KeyboardInterrupt:
        handle.cancel()
        raise


def _watch(handle: Any) -> Any:
    served = importlib.import_module("moorline.spark.served_job").ServedJob(handle, ())
    meter = RateMeter()
    with screen() as place:

        def look() -> None:
            status = served.status_told()
            rates = meter.look(status)
            table = text_table(OPERATOR_HEADERS, operator_rows(status, rates, served.metrics()))
            failures = "".join(f"\n{printable(failure)}" for failure in status["failures"][-3:])
            place.show(f"{job_line(status, rates)}\n{table}{failures}")

        return _wait(handle, look, WATCH_SECONDS)


def _progress_line(handle: Any) -> str:
    records, done = handle.progress["records_in"], handle.checkpoints
    newest = f", checkpoint {done[-1].checkpoint} ({size(done[-1].size)})" if done else ""
    return f"{handle.status.value}, {records:,} records{newest}"


def _show(name: str, result: Any, as_json: bool) -> None:
    collected = {sink: len(records) for sink, records in result.all_collected().items()}
    numbers = [stats.checkpoint for stats in result.checkpoints]
    if as_json:
        summary = {"checkpoints": numbers, "failures": result.failures, "restored_from": result.restored_from}
        show_json({"job": name, "status": "finished", "collected": collected} | summary)
        return
    click.echo(f"job {name} finished: {len(numbers)} checkpoints, {len(result.failures)} failed attempts")
    for sink, count in collected.items():
        click.echo(f"  {sink}: {count:,} records collected")
