"""``moorline query``: what is stored under a key, in a running job or in a snapshot."""

from __future__ import annotations

import json
from typing import Any

import click

from moorline.cli.connection import connected, console_options
from moorline.cli.output import json_option, printable, show_json
from moorline.http import wire as typed_json
from moorline.snapshots.locate import look_at
from moorline.snapshots.lookup import look_up


@click.command()
@click.argument("uid")
@click.argument("state")
@click.argument("key")
@click.option(
    "--in", "path", metavar="PATH", type=click.Path(), help="Ask this savepoint or checkpoint, not a running job."
)
@console_options
@click.option("--level", type=click.Choice(["live", "checkpoint"]), default="live", show_default=True)
@click.option("--timeout", default="10s", show_default=True, metavar="TIME", help="How long a live answer may take.")
@json_option
def command(
    uid: str,
    state: str,
    key: str,
    path: str | None,
    url: str | None,
    token_file: str | None,
    level: Any,
    timeout: str,
    as_json: bool,
) -> None:
    """Show what STATE of operator UID has under KEY.

    KEY is JSON: 7 is a number, [1, "a"] a tuple, {"bytes": "eA=="} bytes. What is no JSON is a text. Prints the
    value, or None if there is nothing; with --json an object with the value in it.
    """
    thing = _thing(key)
    try:
        encoded = typed_json.key_from_json(thing)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise click.BadParameter(f"{key!r:.100} is no key: {error}", param_hint="KEY") from None
    if path is not None:
        value = look_up(look_at(path), uid, state, encoded)
    else:
        value = connected(url, token_file).query_encoded(uid, state, encoded, level=level, timeout=timeout)
    if as_json:
        show_json({"uid": uid, "state": state, "key": thing, "value": typed_json.to_json(value)})
    else:
        click.echo(printable(repr(value)))


def _thing(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
