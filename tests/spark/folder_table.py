"""A table in a folder, which the driver commits: a version is a small file that names the files of a checkpoint."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import msgspec

import moorline as mo


class FolderTable(mo.Sink):
    commits_on_driver = True

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self, ctx):
        return TableWriter(Path(self.folder))

    def open_committer(self, ctx):
        return TableCommitter(Path(self.folder))


class TableWriter(mo.SinkWriter):
    def __init__(self, folder: Path) -> None:
        self.folder, self.rows = folder, []
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, records):
        self.rows += records

    def prepare(self, checkpoint):
        if not self.rows:
            return []
        rows, self.rows = self.rows, []
        name = f"{uuid.uuid4().hex}.json"
        (self.folder / name).write_bytes(msgspec.json.encode(rows))
        return [name]


class TableCommitter(mo.GlobalCommitter):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def commit(self, lineage, checkpoint, committables):
        temporary = self.folder / f"{uuid.uuid4().hex}.tmp"
        temporary.write_text(json.dumps(committables))
        try:
            # Fails if there is one: a version is made once, whoever makes it.
            os.link(temporary, self.folder / f"version-{lineage}-{checkpoint}")
        except FileExistsError:
            pass
        finally:
            temporary.unlink()


def rows_of(folder: str | Path) -> list[Any]:
    """All rows that are in some version."""
    folder = Path(folder)
    names = [name for version in folder.glob("version-*") for name in json.loads(version.read_text())]
    return [row for name in names for row in msgspec.json.decode((folder / name).read_bytes())]
