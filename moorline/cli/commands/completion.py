"""``moorline completion``: a script that completes commands and options in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "fish", "zsh")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def command(shell: str) -> None:
    """Print a script for SHELL that completes commands, options and files.

    It is click's own. Have the shell read it when it starts:

    \b
      bash  eval "$(moorline completion bash)"         in ~/.bashrc
      zsh   eval "$(moorline completion zsh)"          in ~/.zshrc
      fish  moorline completion fish | source          in ~/.config/fish/config.fish
    """
    root = click.get_current_context().find_root().command
    of_shell = get_completion_class(shell)
    assert of_shell is not None
    click.echo(of_shell(root, {}, "moorline", "_MOORLINE_COMPLETE").source())
