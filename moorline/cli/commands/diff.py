"""``moorline diff``: what changed from one snapshot to another."""

from __future__ import annotations

from itertools import islice

import click

from moorline.cli.output import json_option, long_work, printable, show_json
from moorline.http.wire import to_json
from moorline.snapshots.tables.diff import Change, diff_snapshots


@click.command()
@click.argument("before", metavar="A", type=click.Path())
@click.argument("after", metavar="B", type=click.Path())
@click.option("--limit", type=click.IntRange(0), default=100, show_default=True, help="Show so many; 0: all of them.")
@json_option
def command(before: str, after: str, limit: int, as_json: bool) -> None:
    """Show what has changed from snapshot A to snapshot B: states, and what is under each key.

    Each is a path as in moorline inspect. Exit code 0 if nothing has changed, 1 if something has.
    """
    with long_work("comparing") as say:
        changes: list[Change] = []
        differences = diff_snapshots(before, after)
        for change in islice(differences, limit) if limit else differences:
            changes.append(change)
            if len(changes) % 1000 == 0:
                say(f"{len(changes):,} changes")
        is_cut = bool(limit) and next(differences, None) is not None
    if as_json:
        show_json({"changes": [_change_fields(change) for change in changes], "there_are_more": is_cut})
    else:
        for change in changes:
            click.echo(printable(str(change)))
        if is_cut:
            click.echo(f"and more: these are the first {limit:,}. --limit 0 shows all.", err=True)
        elif not changes:
            click.echo("nothing has changed")
    if changes:
        raise click.exceptions.Exit(1)


def _change_fields(change: Change) -> dict[str, object]:
    fields = {"what": change.what, "uid": change.uid, "state": change.state}
    more = {"key": change.key, "window": change.window, "map_key": change.map_key}
    more |= {"before": change.before, "after": change.after}
    return fields | {name: to_json(value) for name, value in more.items() if value is not None}
