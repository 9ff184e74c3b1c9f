"""``moorline list``: the jobs that have checkpoints at a location."""

from __future__ import annotations

import click

from moorline.cli.output import age, json_option, long_work, show_json, show_table, size
from moorline.snapshots.locate import JobAt, jobs_at


@click.command()
@click.argument("location", metavar="PATH", type=click.Path())
@json_option
def command(location: str, as_json: bool) -> None:
    """List the jobs below PATH: their newest checkpoint, its size and age."""
    with long_work("reading"):
        jobs = jobs_at(location)
    if as_json:
        show_json({"location": location, "jobs": [_job_fields(job) for job in jobs]})
    elif not jobs:
        click.echo(f"no job has checkpoints in {location}")
    else:
        headers = ("job", "checkpoints", "newest", "size", "age", "attempts", "damaged")
        show_table(headers, [_row(job) for job in jobs], numbers=headers[1:])


def _row(job: JobAt) -> tuple[str, ...]:
    newest = job.checkpoints[-1] if job.checkpoints else None
    about = (str(newest.checkpoint), size(newest.size), age(newest.created_ms)) if newest else ("-", "-", "-")
    return job.job, str(len(job.checkpoints)), *about, str(job.attempts), str(len(job.damaged))


def _job_fields(job: JobAt) -> dict[str, object]:
    return {
        "job": job.job,
        "url": job.url,
        "attempts": job.attempts,
        "damaged": job.damaged,
        "checkpoints": [
            {"checkpoint": m.checkpoint, "attempt": m.attempt, "created_ms": m.created_ms, "bytes": m.size}
            for m in job.checkpoints
        ],
    }
