"""``moorline inspect``: what is in a checkpoint or savepoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import click

from moorline.cli.output import age, json_option, show_json, show_table, size
from moorline.model.manifest import ElementsHandle, KeyedHandle, NativeHandle, OperatorEntry, SnapshotFile
from moorline.snapshots.locate import look_at


@dataclass
class _State:
    """One state of one operator, over all of its subtasks."""

    uid: str
    state: str
    kind: str
    type: str
    #: As stored: a key that has changed stands in an increment as well. None: only its own backend can tell.
    rows: int | None = 0
    bytes: int = 0
    key_groups: list[list[int]] = field(default_factory=list)
    #: How many files, and how long the longest chain of increments is.
    files: int = 0
    increments: int = 0

    def take(self, handle: KeyedHandle, increments: int) -> None:
        self.rows = None if isinstance(handle, NativeHandle) or self.rows is None else self.rows + handle.rows
        self._count(handle.all_files())
        self.increments = max(self.increments, increments)
        if [handle.first, handle.end] not in self.key_groups:
            self.key_groups.append([handle.first, handle.end])

    def take_elements(self, handle: ElementsHandle) -> None:
        self.rows = (self.rows or 0) + handle.count
        self.bytes += sum(map(len, handle.inline))
        self._count([handle.file] if handle.file is not None else [])

    def _count(self, files: list[SnapshotFile]) -> None:
        self.files += len(files)
        self.bytes += sum(file.size for file in files)


@click.command()
@click.argument("path")
@json_option
def command(path: str, as_json: bool) -> None:
    """Show what is in the snapshot at PATH.

    PATH is the folder of a savepoint, of a job's checkpoints (the newest is shown), one entry of its history, or a
    checkpoint location with one job in it.
    """
    snapshot = look_at(path)
    manifest = snapshot.manifest
    states = [state for entry in manifest.operators for state in _states(entry)]
    if as_json:
        operators = [
            {"uid": o.uid, "name": o.name, "parallelism": o.parallelism, "max_parallelism": o.max_parallelism}
            for o in manifest.operators
        ]
        head = {"job": manifest.job, "checkpoint": manifest.checkpoint, "is_savepoint": snapshot.is_savepoint}
        head |= {"attempt": manifest.attempt, "created_ms": manifest.created_ms, "bytes": manifest.size}
        show_json(head | {"url": snapshot.store.url, "operators": operators, "states": [asdict(s) for s in states]})
        return
    click.echo(f"{snapshot}: job {manifest.job}, {size(manifest.size)}, {age(manifest.created_ms)} ago")
    click.echo()
    shown = [(o.uid, o.name, str(o.parallelism), str(o.max_parallelism)) for o in manifest.operators]
    show_table(("operator", "what", "parallelism", "key groups"), shown, numbers=("parallelism", "key groups"))
    click.echo()
    headers = ("operator", "state", "kind", "type", "rows", "bytes", "files", "increments", "key groups")
    show_table(headers, [_row(s) for s in states], numbers=headers[4:8])


def _row(state: _State) -> tuple[str, ...]:
    rows = "?" if state.rows is None else f"{state.rows:,}"
    groups = " ".join(f"[{first},{end})" for first, end in sorted(state.key_groups))
    counts = (rows, size(state.bytes), str(state.files), str(state.increments), groups)
    return state.uid, state.state, state.kind, state.type, *counts


def _states(entry: OperatorEntry) -> Iterator[_State]:
    states: dict[tuple[str, str], _State] = {}
    for handles in entry.subtasks:
        chains: dict[str, int] = {}
        for keyed in handles.keyed:
            if isinstance(keyed, NativeHandle):
                # The files hold all states together.
                name = ", ".join(state for state, _, _ in keyed.states)
                kind, type_name = keyed.backend, ", ".join(f"{k} of {t}" for _, k, t in keyed.states)
            else:
                name, kind, type_name = keyed.state, keyed.kind, str(keyed.type)
                chains[name] = chains.get(name, 0) + keyed.increment
            state = states.setdefault((name, kind), _State(entry.uid, name, kind, type_name))
            state.take(keyed, chains.get(name, 0))
        for elements in handles.elements:
            key = elements.state, elements.mode
            states.setdefault(key, _State(entry.uid, *key, str(elements.type))).take_elements(elements)
    yield from states.values()
