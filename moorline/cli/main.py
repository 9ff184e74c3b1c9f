"""``moorline``: which commands there are, and what becomes of their errors.

A command is a file in ``cli/commands/`` with a ``click`` command called ``command``; its name is the file's. What
goes wrong is one paragraph on standard error, without a traceback unless ``--debug`` asks for it.

    exit code   0  it worked      1  it did not      2  it was called in a wrong way
"""

from __future__ import annotations

import importlib
import pkgutil
import textwrap
from typing import Any

import click

import moorline
from moorline.cli import commands
from moorline.errors import MoorlineError
from moorline.model.spelling import did_you_mean


class Commands(click.Group):
    """The commands that lie in ``cli/commands/``. A file is loaded when its command is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(module.name for module in pkgutil.iter_modules(commands.__path__))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"{commands.__name__}.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            meant = did_you_mean(args[0], self.list_commands(ctx))
            raise click.UsageError(error.message + meant, ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:  # whatever a command meets: the user gets a paragraph
            if ctx.params.get("debug"):
                raise
            raise click.ClickException(_paragraph(error)) from error


def _paragraph(error: Exception) -> str:
    """An error as a paragraph, for the user who has to act."""
    message = str(error).strip()
    if not isinstance(error, MoorlineError):
        message = f"{type(error).__name__}: {message}. Run it again as moorline --debug ... to see where."
    return "\n".join(textwrap.fill(line, 100, subsequent_indent="  ") for line in message.splitlines()[:20])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(moorline.__version__, prog_name="moorline")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Stateful streaming on Spark: run jobs, look at their checkpoints, ask for their state.

    Exit codes: 0 it worked, 1 it did not, 2 it was called in a wrong way.
    """


def main() -> None:
    """Run the command line: the installed script calls this."""
    cli(prog_name="moorline")


if __name__ == "__main__":
    main()
