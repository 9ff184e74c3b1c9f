"""``moorline fsck``: is every file of a snapshot there, and is it what was written?"""

from __future__ import annotations

from dataclasses import asdict

import click

from moorline.cli.output import age, json_option, long_work, show_json, show_table, size
from moorline.driver.giving_up import give_up
from moorline.snapshots.checking import fsck, sweep
from moorline.snapshots.inspection import Progress, Report, Verdict


@click.command()
@click.argument("path", type=click.Path())
@click.option("--quick", is_flag=True, help="Look at names and sizes alone.")
@click.option("--grace", default="10min", show_default=True, help="Younger files that nobody needs are not listed.")
@click.option("--sweep", "sweeps", is_flag=True, help="Delete those that nobody needs and that are older.")
@click.option(
    "--give-up",
    "given_up",
    type=click.IntRange(1),
    multiple=True,
    metavar="NUMBER",
    help="Give up an entry of the history that cannot be read or is missing, for good. The job must not run.",
)
@json_option
def command(path: str, quick: bool, grace: str, sweeps: bool, given_up: tuple[int, ...], as_json: bool) -> None:
    """Check every file of the snapshots at PATH: presence, size, checksums, readability, and what nobody needs.

    PATH is the folder of a savepoint, of a job's checkpoints, or a checkpoint location with one job in it. The exit
    code is 1 unless everything is sound. A running job is not disturbed.
    """
    if given_up:
        give_up(path, given_up)
    with long_work("checking") as tell:
        report = fsck(path, contents=not quick, grace=grace, progress=lambda p: tell(_progress_line(p)))
    swept = sweep(report.url, grace=grace) if sweeps else []
    if swept:
        gone = {left.path for left in swept}
        report.leftovers[:] = [left for left in report.leftovers if left.path not in gone]
    if as_json:
        _show_json(report, [left.path for left in swept])
    else:
        _show(report)
        if sweeps:
            click.echo(f"deleted: {len(swept)} files, {size(sum(left.size for left in swept))}")
    if report.verdict is not Verdict.SOUND:
        raise click.exceptions.Exit(1)


def _progress_line(progress: Progress) -> str:
    return f"{progress.files} of {progress.of_files} files, {size(progress.size)} of {size(progress.of_size)}"


def _show(report: Report) -> None:
    click.echo(f"{report.kind} {report.job} in {report.url}: {report.verdict.value}")
    click.echo()
    headers = ("checkpoint", "attempt", "files", "bytes", "age", "state")
    show_table(headers, [_row(report, n) for n in range(len(report.snapshots))], numbers=headers[:5])
    if report.problems:
        click.echo()
        rows = [(p.kind.value, p.path, ", ".join(map(str, p.needed_by)), p.detail) for p in report.problems]
        show_table(("problem", "file", "needed by", "what"), rows)
    pending = [left for left in report.leftovers if not left.is_abandoned]
    for files, what in (
        (report.unreferenced, "that nobody needs: delete them with --sweep"),
        (pending, "of uploads that may be under way"),
    ):
        if files:
            click.echo(f"{len(files)} files, {size(sum(left.size for left in files))}, {what}")


def _row(report: Report, number: int) -> tuple[str, ...]:
    s = report.snapshots[number]
    state = ("whole" if s.is_whole else "NOT WHOLE") + (", given up" if s.is_given_up else "")
    return str(s.checkpoint), str(s.attempt), str(s.files), size(s.size), age(s.created_ms), state


def _show_json(report: Report, swept: list[str]) -> None:
    show_json(
        {
            "url": report.url,
            "kind": report.kind,
            "job": report.job,
            "verdict": report.verdict.value,
            "newest_whole": report.newest_whole,
            "snapshots": [asdict(s) for s in report.snapshots],
            "problems": [asdict(p) | {"kind": p.kind.value} for p in report.problems],
            "leftovers": [asdict(left) for left in report.leftovers],
            "deleted": swept,
        }
    )
