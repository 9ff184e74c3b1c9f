"""``moorline top``: all jobs at a glance, again and again."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import click

from moorline.cli.connection import connected
from moorline.cli.jobs_table import RateMeter, screen, text_table
from moorline.cli.output import age, json_option, show_json, size
from moorline.errors import ConsoleRefused, MoorlineError
from moorline.model.durations import milliseconds
from moorline.model.manifest import Claim
from moorline.snapshots.folders import job_folders
from moorline.snapshots.locate import job_at
from moorline.storage.log import read_history
from moorline.storage.stores.open import open_store

#: Not so often that looking is all that happens.
SHORTEST_SECONDS = 0.1
_HEADERS = ("job", "status", "attempt", "records", "records/s", "busiest", "checkpoint", "age", "size", "failures")


@dataclass
class _Endpoint:
    """One running job, looked at through its endpoint."""

    url: str
    token_file: str
    meter: RateMeter


@click.command()
@click.argument("locations", metavar="[PATH]...", type=click.Path(), nargs=-1)
@click.option(
    "--console",
    "consoles",
    metavar="URL FILE",
    nargs=2,
    multiple=True,
    help="A running job: the URL of its console and the file with its token. May be repeated.",
)
@click.option("--interval", default="2s", show_default=True, metavar="TIME", help="How often to look.")
@click.option("--once", is_flag=True, help="Look once and print it on standard output.")
@json_option
def command(
    locations: tuple[str, ...], consoles: tuple[tuple[str, str], ...], interval: str, once: bool, as_json: bool
) -> None:
    """Show all jobs: those with a console, and those that have checkpoints below PATH.

    Of a job that is known by its checkpoints alone, storage says whether its run has ended; what does not say so runs,
    or its driver was lost. Goes on until Ctrl-C.
    """
    if not locations and not consoles:
        raise click.UsageError("Give a checkpoint location, or --console URL FILE.")
    endpoints = [_Endpoint(url, token_file, RateMeter()) for url, token_file in consoles]
    pause = milliseconds(interval, "--interval") / 1000
    if pause < SHORTEST_SECONDS:
        raise click.UsageError(f"--interval {interval}: give {SHORTEST_SECONDS} s or more.")
    if once or as_json:
        jobs = _jobs(endpoints, locations)
        show_json({"jobs": jobs}) if as_json else click.echo(text_table(_HEADERS, [_row(job) for job in jobs]))
        return
    with screen() as place:
        while True:
            place.show(text_table(_HEADERS, [_row(job) for job in _jobs(endpoints, locations)]))
            time.sleep(pause)


def _jobs(endpoints: list[_Endpoint], locations: tuple[str, ...]) -> list[dict[str, Any]]:
    """Every job once: the endpoint of one knows more than its checkpoints."""
    live = [_live(endpoint) for endpoint in endpoints]
    roots: dict[str, None] = {}
    for location in locations:
        found = job_folders(open_store(location))
        if not found:
            live.append(_job(location, "no job here"))
        roots |= dict.fromkeys(found)
    stored = {root: _stored(root) for root in roots}
    for job in live:
        of_name = [root for root, one in stored.items() if one["job"] == job["job"]]
        # Of several with its name nobody knows here which one it is.
        of_storage = stored.pop(of_name[0]) if len(of_name) == 1 else {}
        job |= {name: of_storage.get(name) for name in ("created_ms", "bytes")}
    names = Counter(job["job"] for job in [*live, *stored.values()])
    for root, job in stored.items():
        if names[job["job"]] > 1:
            job["job"] = f"{job['job']} in {root}"
    return live + list(stored.values())


def _live(endpoint: _Endpoint) -> dict[str, Any]:
    try:
        status = connected(endpoint.url, endpoint.token_file).status()
    except ConsoleRefused:
        return _job(endpoint.url, "unreachable")
    rates, operators = endpoint.meter.look(status), status["progress"]["operators"]
    busiest = max(operators, key=lambda uid: operators[uid].get("busy", 0), default=None)
    return _job(
        status["job"],
        status["status"],
        attempt=status["attempt"],
        records_in=status["progress"]["records_in"],
        rate=rates.total,
        busiest=busiest and f"{busiest} {100 * operators[busiest].get('busy', 0):.0f} %",
        checkpoint=status["last_checkpoint"],
        failures=len(status["failures"]),
    )


def _stored(root: str) -> dict[str, Any]:
    store = open_store(root)
    try:
        found, records = job_at(store), read_history(store)
    except MoorlineError as error:
        return _job(root.rpartition("/")[2], f"unreadable: {error}"[:60])
    if records and all(record.damage for record in records):
        return _job(found.job or root.rpartition("/")[2], "damaged")
    last = next((r.entry for r in reversed(records) if isinstance(r.entry, Claim)), None)
    newest = found.checkpoints[-1] if found.checkpoints else None
    return _job(
        found.job,
        (last.ended if last is not None else "") or "running or lost",
        attempt=found.attempts,
        checkpoint=newest.checkpoint if newest else None,
        created_ms=newest.created_ms if newest else None,
        bytes=newest.size if newest else None,
    )


def _job(job: str, status: str, **known: Any) -> dict[str, Any]:
    names = ("attempt", "records_in", "rate", "busiest", "checkpoint", "created_ms", "bytes", "failures")
    return {"job": job, "status": status} | dict.fromkeys(names) | known


def _row(job: dict[str, Any]) -> tuple[str, ...]:
    def shown(name: str, form: str = "{}") -> str:
        return "-" if job[name] is None else form.format(job[name])

    made = "-" if job["created_ms"] is None else age(job["created_ms"])
    stored = "-" if job["bytes"] is None else size(job["bytes"])
    rates = (shown("records_in", "{:,}"), shown("rate", "{:,.0f}"), shown("busiest"))
    return job["job"], job["status"], shown("attempt"), *rates, shown("checkpoint"), made, stored, shown("failures")
