"""``moorline serve``: a web page of all jobs and snapshots at a location."""

from __future__ import annotations

import signal
import threading
from contextlib import closing

import click

import moorline
from moorline.http import served_location
from moorline.http.console import HttpEndpoint
from moorline.http.served_location import ServedLocation
from moorline.http.server import ConsoleServer


@click.command()
@click.argument("location", metavar="PATH", type=click.Path())
@click.option("--address", default="127.0.0.1:0", show_default=True, help="Where to listen; port 0: any that is free.")
@click.option("--token-file", type=click.Path(), help="Where the token is written, for its owner alone to read.")
@click.option("--token-from", metavar="FILE", type=click.Path(), help="A file with the token, instead of a new one.")
@click.option("--host", "hosts", metavar="NAME", multiple=True, help="A name to ask for the page by.")
def command(
    location: str, address: str, token_file: str | None, token_from: str | None, hosts: tuple[str, ...]
) -> None:
    """Show a web page of all jobs and savepoints at PATH, running or not, until Ctrl-C.

    Only storage is read. The page asks for a token: it is in the address that is printed.
    """
    over = threading.Event()
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, lambda *_: over.set())
    served = ServedLocation(location, version=moorline.__version__)
    served.jobs()  # what cannot be read at all is said here, and not in a browser
    console = HttpEndpoint(address, token_file, token_from=token_from, hosts=hosts)
    with closing(ConsoleServer(served, console, served_location.read)) as server:
        # A token that is given stays the same: it is known, and does not belong on a screen or into a log.
        click.echo(f"{location} is shown at {server.url if token_from else server.page}")
        over.wait()
