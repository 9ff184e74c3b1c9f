"""Run the conversations in ``transcripts/<machine>/*.txt`` against a machine.

A transcript is a list of blocks: comments, an event, ``----``, and what the machine answers. To accept a new
behaviour run with ``REWRITE=1`` and read the diff: it is the change in behaviour.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

FOLDER = Path(__file__).with_name("transcripts")


def of(machine: str) -> list[Path]:
    return sorted((FOLDER / machine).glob("*.txt"))


def run(path: Path, respond: Callable[[str], Iterable[object] | None]) -> None:
    """Feed the events of a transcript to ``respond`` and compare its answers."""
    told = []
    for block in path.read_text().strip().split("\n\n"):
        head = block.partition("\n----")[0].splitlines()
        comments = [line for line in head if line.startswith("#")]
        events = [line for line in head if not line.startswith("#")]
        if not events:
            told.append("\n".join(comments))
            continue
        (event,) = events
        answer = [f"  {action}" for action in respond(event) or ()] or ["  nothing"]
        told.append("\n".join([*comments, event, "----", *answer]))
    new = "\n\n".join(told) + "\n"
    if os.environ.get("REWRITE"):
        path.write_text(new)
    assert path.read_text() == new
