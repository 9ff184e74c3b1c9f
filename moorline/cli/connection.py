"""The connection to a running job: the URL of its console and the file with its token.

The token itself is no option: command lines are seen by others and kept in histories.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from moorline.errors import InvalidArgument
from moorline.http.client import JobClient

F = TypeVar("F", bound=Callable[..., Any])

_URL = click.option(
    "--url", envvar="MOORLINE_URL", metavar="URL", help="The job's console, such as http://127.0.0.1:8090."
)
_TOKEN = click.option(
    "--token-file",
    envvar="MOORLINE_TOKEN_FILE",
    metavar="FILE",
    type=click.Path(),
    help="The file with the job's token.",
)


def console_options(function: F) -> F:
    """Adds ``--url`` and ``--token-file`` to a command."""
    return _URL(_TOKEN(function))


def connected(url: str | None, token_file: str | None) -> JobClient:
    """A client for what the options say. Raises ``click.UsageError`` if they say too little."""
    if not url or not token_file:
        raise click.UsageError("Give --url and --token-file, or set MOORLINE_URL and MOORLINE_TOKEN_FILE.")
    try:
        token = Path(token_file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument("--token-file", token_file, f"It cannot be read: {error}.") from None
    return JobClient(url, token)
