"""The staging area of a table's files, and the meaning of their names.

    <area>/_moorline/<sink>-<unique>                                         being written
    <area>/part-<sink>-<lineage>-<checkpoint>-<subtask>-<unique>.parquet     staged; the table's once it names it

A file that a table does not name is invisible, so workers stage right where files stay. The name alone says which
checkpoint of which sink a file is from: by it the files of a damaged checkpoint are found again, and those that were
never committed.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any
from uuid import uuid4

import xxhash
from pyarrow.fs import FileSelector, FileType

from moorline.api.sinks import is_meant
from moorline.connectors.files.local.paths import sync_folder

#: A folder that the tools of tables leave alone.
HIDDEN = "_moorline"
_BUFFER = 1 << 20
_FILE = re.compile(r"(?:.*[/-])?part-([0-9a-f]{16})-([0-9a-f]+)-([0-9]{10,20})-[0-9]{5,}-[0-9a-f]{32}\.parquet")


@dataclass(frozen=True)
class StagedFile:
    """The facts in the name of a staged file."""

    path: str
    sink: str
    lineage: str
    checkpoint: int

    def is_after(self, checkpoint: int, lineages: tuple[str, ...]) -> bool:
        """Is it one that a roll-back to a checkpoint takes back?"""
        return self.checkpoint > checkpoint and is_meant(self.lineage, lineages)


def staged_file(path: str) -> StagedFile | None:
    """The file of a sink of ours, or None if its name is another."""
    found = _FILE.fullmatch(path)
    return None if found is None else StagedFile(path, found[1], found[2], int(found[3]))


def staged_name(sink: str, lineage: str, checkpoint: int, subtask: int) -> str:
    """A new name for a file of a sink."""
    return f"part-{sink}-{lineage}-{checkpoint:010}-{subtask:05}-{uuid4().hex}.parquet"


def sink_tag(job: str, uid: str) -> str:
    """The tag that marks a sink's files among those of others."""
    return xxhash.xxh3_64_hexdigest(f"{job}\0{uid}".encode("utf-8", "surrogatepass"))


def mark_name(job: str, uid: str, lineage: str) -> str:
    """The name under which a table remembers how far a sink's commits have come."""
    return f"moorline/{job}/{uid}/{lineage}"


def shown_in_history(job: str, uid: str, checkpoint: int | None = None) -> dict[str, str]:
    """The text about a commit in a table's history, for people."""
    shown = {"moorline.job": job, "moorline.sink": uid}
    return shown if checkpoint is None else {**shown, "moorline.checkpoint": str(checkpoint)}


def refusal(path: str, sink: str, checkpoint: int) -> str | None:
    """The reason why a file that a snapshot names must not become part of a table, if so.

    Names from a snapshot are data, and data must not reach out of the area.

    >>> refusal("../elsewhere.parquet", "00", 1)
    'it is not a file that was staged here'
    """
    named = staged_file(path)
    if named is None or ".." in path.split("/") or path.startswith("/"):
        return "it is not a file that was staged here"
    if (named.sink, named.checkpoint) != (sink, checkpoint):
        return f"it was not staged for checkpoint {checkpoint} of this sink"
    return None


class StagingArea:
    """A folder of a table, on a disk here or elsewhere. Paths are relative to it."""

    @property
    def folder(self) -> str | None:
        """The folder, if it is on a disk here."""
        raise NotImplementedError

    def filesystem(self) -> Any:
        """The pyarrow filesystem that it is on."""
        raise NotImplementedError

    @property
    def root(self) -> str:
        """The folder as :meth:`filesystem` calls it."""
        return self.folder or ""

    def upload(self, path: str) -> Any:
        """A stream into a new file that is not on a disk here; it is durable once that is closed."""
        return self.filesystem().open_output_stream(self._full(path))

    def begin(self, sink: str) -> tuple[str, IO[bytes]]:
        """A new file out of sight: beside the table if it is on a disk here, or else on a disk of ours."""
        if self.folder is None:
            number, path = tempfile.mkstemp(prefix="moorline-table-")
            return path, os.fdopen(number, "w+b", buffering=_BUFFER)
        hidden = os.path.join(self.folder, HIDDEN)
        os.makedirs(hidden, exist_ok=True)
        path = os.path.join(hidden, f"{sink}-{uuid4().hex}")
        return path, open(path, "x+b", buffering=_BUFFER)

    def place(self, temporary: str, file: IO[bytes], path: str) -> int:
        """Have a file of :meth:`begin` durable under its path in the table. Returns its size."""
        file.flush()
        size = file.seek(0, os.SEEK_END)
        if self.folder is None:
            file.seek(0)
            target = self.upload(path)
            while piece := file.read(_BUFFER):
                target.write(piece)
            target.close()
            file.close()
            os.unlink(temporary)
            return size
        os.fsync(file.fileno())
        file.close()
        full = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        os.rename(temporary, full)
        sync_folder(os.path.dirname(full))
        return size

    def staged(self, sink: str) -> Iterator[StagedFile]:
        """The files of a sink that are there, whether the table names them or not."""
        for info in self.filesystem().get_file_info(FileSelector(self.root, allow_not_found=True, recursive=True)):
            path = os.path.relpath(info.path, self.root) if self.root else info.path
            file = staged_file(path)
            if info.type is FileType.File and file is not None and file.sink == sink:
                yield file

    def remove(self, paths: list[str]) -> None:
        """Delete files that the table does not name."""
        for path in paths:
            self.filesystem().delete_file(self._full(path))

    def remove_unfinished(self, sink: str) -> None:
        """Delete files that a writer began and did not live to stage."""
        if self.folder is None:
            return
        hidden = os.path.join(self.folder, HIDDEN)
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(hidden):
                if name.startswith(f"{sink}-"):
                    os.unlink(os.path.join(hidden, name))

    def _full(self, path: str) -> str:
        return os.path.join(self.root, path) if self.root else path
