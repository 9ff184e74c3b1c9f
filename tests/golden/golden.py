"""What Flink 2.3 itself printed (``flink_golden.txt``), as Python values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

LINES = Path(__file__).with_name("flink_golden.txt").read_text(encoding="utf-8").splitlines()


def default_max_parallelism() -> list[tuple[int, int]]:
    (line,) = (line for line in LINES if line.startswith("DEFAULT_MAXP"))
    return [(int(p), int(m)) for p, m in re.findall(r"(\d+)->(\d+)", line)]


def ranges() -> list[tuple[int, int, list[tuple[int, int]]]]:
    """Max parallelism, parallelism, and the first and last key group of every subtask."""
    found = []
    for line in LINES:
        if m := re.match(r"RANGE max=(\d+) p=(\d+): (.*)", line):
            pairs = [(int(a), int(b)) for a, b in re.findall(r"(\d+)-(\d+)", m[3])]
            found.append((int(m[1]), int(m[2]), pairs))
    return found


@dataclass
class Repartition:
    """One restart of operator state: who got which elements of which old subtask's state."""

    name: str
    old: int
    new: int
    #: By new subtask: state, old subtask, positions.
    subtasks: list[list[tuple[str, int, list[int]]]] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.name} {self.old}->{self.new}"


def repartitions() -> list[Repartition]:
    found: list[Repartition] = []
    for line in LINES:
        if m := re.match(r"REPART (\S+) old=(\d+) new=(\d+)", line):
            found.append(Repartition(m[1], int(m[2]), int(m[3])))
        elif m := re.match(r"  subtask \d+ \{(.*)\}", line):
            parts = re.findall(r"(\w+)@t(\d+)=\[([^\]]*)\]", m[1])
            found[-1].subtasks.append([(s, int(t), [int(n) for n in ns.split(",")]) for s, t, ns in parts])
    return found
