"""``moorline plan``: what would become of each state, before anything starts."""

from __future__ import annotations

from dataclasses import asdict

import click

from moorline.cli.output import json_option, printable, show_json, show_table, size
from moorline.cli.scripts import load_job
from moorline.snapshots.planning import plan


@click.command()
@click.argument("script", metavar="SCRIPT[:NAME]", type=click.Path())
@click.option(
    "--restore",
    required=True,
    metavar="PATH",
    type=click.Path(),
    help="The savepoint, or the folder of a job's checkpoints.",
)
@click.option("--checkpoint", type=click.IntRange(1), help="This one of the job's checkpoints, not the newest.")
@click.option("--parallelism", type=click.IntRange(1), help="Instead of what the script says.")
@click.option("--allow-non-restored-state", is_flag=True, help="Operators of the snapshot may be gone.")
@json_option
def command(
    script: str,
    restore: str,
    checkpoint: int | None,
    parallelism: int | None,
    allow_non_restored_state: bool,
    as_json: bool,
) -> None:
    """Say what starting the job in SCRIPT from a snapshot would do to each state. Nothing is started.

    Exit code 1 if the job would refuse to start, because state would be lost or could not be read.
    """
    restore_plan = plan(
        load_job(script),
        restore=restore,
        checkpoint=checkpoint,
        parallelism=parallelism,
        allow_non_restored_state=allow_non_restored_state,
    )
    if as_json:
        show_json(asdict(restore_plan) | {"is_safe": restore_plan.is_safe})
    else:
        groups = f"{restore_plan.key_groups} key groups"
        click.echo(printable(f"{restore_plan.snapshot}: checkpoint {restore_plan.checkpoint}, {groups}"))
        for problem in restore_plan.problems:
            click.echo(printable(f"PROBLEM: {problem}"))
        click.echo()
        headers = ("operator", "state", "kind", "verdict", "rows", "bytes", "note")
        rows = [(s.uid, s.state, s.kind, s.verdict, f"{s.rows:,}", size(s.size), s.note) for s in restore_plan.states]
        show_table(headers, rows, numbers=headers[4:6])
        click.echo()
        click.echo("the job would start" if restore_plan.is_safe else "the job would refuse to start")
    if not restore_plan.is_safe:
        raise click.exceptions.Exit(1)
