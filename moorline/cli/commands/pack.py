"""``moorline pack``: an archive for executors on which Moorline is not installed."""

from __future__ import annotations

from pathlib import Path

import click

from moorline.cli.output import json_option, long_work, show_json, size
from moorline.cli.packing import pack


@click.command()
@click.option(
    "--output",
    "-o",
    default="moorline.tar.gz",
    show_default=True,
    metavar="FILE",
    type=click.Path(),
    help="The archive.",
)
@click.option("--with", "extras", multiple=True, metavar="NAME", help="Also this extra of Moorline, or distribution.")
@click.option("--also", multiple=True, metavar="PATH", type=click.Path(), help="Also this module or package of yours.")
@click.option("--all", "everything", is_flag=True, help="Also pyarrow, pandas and numpy.")
@json_option
def command(output: str, extras: tuple[str, ...], also: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Write an archive of Moorline and what it needs, so that executors need not have it installed.

    They need the same version of Python on the same kind of machine, and pyarrow, pandas and numpy as for all Arrow
    functions of PySpark, unless --all packs them.
    """
    target = Path(output)
    with long_work("packing"):
        names = pack(target, extras, [Path(path) for path in also], everything)
    if as_json:
        show_json({"archive": str(target), "bytes": target.stat().st_size, "distributions": names})
        return
    click.echo(f"wrote {target}, {size(target.stat().st_size)}: moorline, {', '.join(names)}")
    click.echo(f"  --archives {target}#moorline --conf spark.executorEnv.PYTHONPATH=moorline")
    click.echo(f"  or mo.spark_config(archive={str(target)!r})")
