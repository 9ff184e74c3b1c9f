"""``moorline inspect``: the contents of a checkpoint or savepoint, and why they are as large as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import click

from moorline.cli.connection import connected, console_options
from moorline.cli.explained import show_explanation
from moorline.cli.output import age, json_option, long_work, show_json, show_table, size
from moorline.http.explained import explanation_to_json
from moorline.model.durations import milliseconds
from moorline.model.manifest import ElementsHandle, KeyedHandle, NativeHandle, OperatorEntry, SnapshotFile
from moorline.snapshots.explanation.explain import explain
from moorline.snapshots.locate import LocatedSnapshot, look_at


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
@click.argument("path", required=False, type=click.Path())
@click.option("--explain", "is_explained", is_flag=True, help="Read all rows: why is the state so large?")
@click.option("--uid", metavar="UID", help="Explain this operator alone.")
@click.option("--top", type=click.IntRange(0, 1000), default=5, show_default=True, help="So many of the largest keys.")
@click.option("--ttl", metavar="TIME", help="What would a time to live of this length remove now?")
@click.option("--growth/--no-growth", default=True, help="Read the checkpoint before as well, and compare.")
@console_options
@json_option
def command(
    path: str | None,
    is_explained: bool,
    uid: str | None,
    top: int,
    ttl: str | None,
    growth: bool,
    url: str | None,
    token_file: str | None,
    as_json: bool,
) -> None:
    """Show what is in the snapshot at PATH.

    PATH is the folder of a savepoint, of a job's checkpoints (the newest is shown), one entry of its history, or a
    checkpoint location with one job in it. That reads the manifest alone. --explain reads the rows: sizes by operator,
    state and key group, the largest keys, growth since the checkpoint before, and what a time to live would remove.

    Without PATH, the newest checkpoint of a running job is explained, by the job itself (--url and --token-file).
    """
    if path is None:
        if ttl is not None:
            raise click.UsageError("--ttl is for a PATH: a running job knows how long its states live.")
        explained = connected(url, token_file).explain(uid, top=top)
        show_json(explained) if as_json else show_explanation(explained)
        return
    snapshot = look_at(path)
    if not is_explained:
        if uid is not None or ttl is not None:
            raise click.UsageError("--uid and --ttl need --explain.")
        _show_contents(snapshot, as_json)
        return
    length = milliseconds(ttl, "--ttl") if ttl is not None else None
    with long_work("reading") as say:
        found = explain(snapshot.manifest, snapshot.store, uid=uid, top=top, ttl_ms=length, growth=growth, say=say)
    content = explanation_to_json(found)
    show_json(content) if as_json else show_explanation(content)


def _show_contents(snapshot: LocatedSnapshot, as_json: bool) -> None:
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
