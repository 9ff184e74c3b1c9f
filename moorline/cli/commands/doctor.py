"""``moorline doctor``: can jobs run here, and if not, what is missing?"""

from __future__ import annotations

from dataclasses import asdict

import click

from moorline.cli.examination import Finding, looks
from moorline.cli.output import json_option, long_work, show_json, show_table


@click.command()
@click.option("--checkpoints", metavar="PATH", type=click.Path(), help="Try whether checkpoints can be kept here.")
@click.option("--master", metavar="URL", help="Start a session on this Spark master, and look at it and its workers.")
@click.option("--port", type=click.IntRange(1, 65535), help="Try whether a control port or console can listen here.")
@click.option("--module", "modules", multiple=True, metavar="NAME", help="Workers need this too. Needs --master.")
@json_option
def command(
    checkpoints: str | None, master: str | None, port: int | None, modules: tuple[str, ...], as_json: bool
) -> None:
    """Check Python, Java, Spark, folders, ports, clocks, workers and extras.

    Exit code 1 if something is missing that every job needs.
    """
    if modules and master is None:
        raise click.UsageError("--module needs --master: it is workers that are asked.")
    with long_work("looking around") as say:
        findings = []
        for look in looks(checkpoints, master, port, modules):
            findings.append(look())
            say(findings[-1].what)
    if as_json:
        show_json({"findings": [asdict(f) for f in findings], "ok": not _missing(findings)})
    else:
        show_table(("what", "", "found", "what to do"), [(f.what, f.state, f.found, f.advice) for f in findings])
    if _missing(findings):
        raise click.exceptions.Exit(1)


def _missing(findings: list[Finding]) -> bool:
    return any(f.state == "missing" for f in findings)
