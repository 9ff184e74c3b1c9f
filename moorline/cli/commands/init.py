"""``moorline init``: a new project with a job, tests and a Makefile that run."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import click

from moorline.errors import InvalidArgument

#: What a job's name may be, and what a folder should be.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,60}")


@click.command()
@click.argument("name")
@click.option(
    "--in", "parent", default=".", show_default=True, metavar="FOLDER", type=click.Path(), help="Where to make it."
)
def command(name: str, parent: str) -> None:
    """Write a project into the new folder NAME: a job, tests for it, and a Makefile.

    In it, "make test" needs no Java, and "make run" runs the job on a local Spark.
    """
    if not _NAME.fullmatch(name):
        raise InvalidArgument("name", name, "Begin with a letter; then letters, digits, - and _.")
    folder = Path(parent) / name
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidArgument("name", str(folder), "It is there already: give a name that is new.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgument("--in", parent, f"No folder can be made there: {error.strerror}.") from None
    templates = sorted(resources.files("moorline.cli").joinpath("project").iterdir(), key=lambda file: file.name)
    for template in templates:
        text = template.read_text(encoding="utf-8").replace("NAME", name)
        (folder / template.name.removesuffix(".txt")).write_text(text, encoding="utf-8")
        click.echo(f"wrote {folder / template.name.removesuffix('.txt')}")
    click.echo(f"now: cd {folder} && make test run")
