"""Output of commands: tables for people, JSON for scripts, and a sign of life on long work.

With ``rich`` (an extra) tables are drawn and long work has a bar; without it they are plain columns. Either way a
pipe or a file gets plain text, and ``--json`` gets one JSON document and nothing else on standard output.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

try:
    import rich.console
    import rich.progress
    import rich.table
    import rich.text

    HAS_RICH = True
except ImportError:
    HAS_RICH = False

F = TypeVar("F", bound=Callable[..., Any])


def json_option(function: F) -> F:
    """Adds ``--json`` to a command."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")(function)


def show_json(content: Any) -> None:
    """One document, with keys in their order."""
    click.echo(json.dumps(content, indent=2, allow_nan=False))


def show_table(headers: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()) -> None:
    """A table; the columns in ``numbers`` are aligned to the right."""
    if HAS_RICH and sys.stdout.isatty():
        table = rich.table.Table(box=None, header_style="bold", pad_edge=False)
        for header in headers:
            table.add_column(header, justify="right" if header in numbers else "left", overflow="fold")
        for row in rows:
            # As text: a uid with brackets in it is no markup.
            table.add_row(*(rich.text.Text(printable(cell)) for cell in row))
        rich.console.Console().print(table)
        return
    cells = [list(headers), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(headers))]
    for row in cells:
        aligned = [
            cell.rjust(width) if header in numbers else cell.ljust(width)
            for cell, width, header in zip(row, widths, headers)
        ]
        click.echo("  ".join(aligned).rstrip())


def printable(text: str) -> str:
    """The text without control characters, which could move the cursor: names come from the writer of a snapshot.

    >>> printable("a\\x1b[31m\\nb")
    'a\\\\x1b[31m\\\\nb'
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def size(count: int) -> str:
    """A number of bytes.

    >>> size(999), size(1536), size(5 << 30)
    ('999 B', '1.5 KiB', '5.0 GiB')
    """
    if count < 1024:
        return f"{count} B"
    amount, units = float(count), ("KiB", "MiB", "GiB", "TiB")
    for unit in units:
        amount /= 1024
        if amount < 1024 or unit == units[-1]:
            break
    return f"{amount:.1f} {unit}"


def age(created_ms: int, now_ms: int | None = None) -> str:
    """The time since then, for people.

    >>> age(0, 5_000), age(0, 7_260_000)
    ('5 s', '2 h 1 min')
    """
    seconds = max(0, (time.time_ns() // 1_000_000 if now_ms is None else now_ms) - created_ms) // 1000
    if seconds < 60:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 60:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


@contextmanager
def long_work(title: str) -> Iterator[Callable[[str], None]]:
    """A bar on standard error while work goes on, if a person looks at it. Call what it gives to say how far it is."""
    if not HAS_RICH or not sys.stderr.isatty():
        yield lambda step: None
        return
    columns = (
        rich.progress.SpinnerColumn(),
        rich.progress.TextColumn("{task.description}", markup=False),
        rich.progress.TimeElapsedColumn(),
    )
    with rich.progress.Progress(*columns, console=rich.console.Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title)
        yield lambda step: progress.update(task, description=f"{title}: {printable(step)}")
