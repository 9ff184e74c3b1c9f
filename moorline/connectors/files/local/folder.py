"""Files of a local disk to read: those of a folder and the folders below it, those that a glob matches, or one.

A split's id is the path below the folder, so the folder can be moved between a savepoint and the restart.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from moorline.connectors.files.formats.lines import is_utf8
from moorline.connectors.files.identity import shown
from moorline.connectors.files.local.paths import is_hidden
from moorline.errors import StorageError


@dataclass(frozen=True)
class LocalFolder:
    """The files that a path means."""

    path: str
    #: Chooses among the files of a folder by name.
    pattern: str

    @property
    def chosen(self) -> str:
        """The search, in words for people."""
        return self.path if self.pattern == "*" else os.path.join(self.path, self.pattern)

    def listing(self) -> dict[str, str]:
        """The files there are now: id to path, sorted by id."""
        try:
            return dict(sorted(self._list()))
        except OSError as error:
            raise StorageError.of(self.path, "list", error) from error

    def _list(self) -> Iterator[tuple[str, str]]:
        if os.path.isfile(self.path):
            yield split_id(os.path.basename(self.path)), self.path
        elif os.path.isdir(self.path):
            yield from self._walk(self.path, self.path)
        elif glob.has_magic(self.path):
            yield from self._matches()
        else:
            raise StorageError(self.path, "list", "there is no such file or folder", can_pass=False)

    def _matches(self) -> Iterator[tuple[str, str]]:
        root = self.path
        while glob.has_magic(root):
            root = os.path.dirname(root)
        if not os.path.isdir(root):
            raise StorageError(root, "list", "there is no such folder", can_pass=False)
        for path in sorted(glob.glob(self.path, recursive=True)):
            split = os.path.relpath(path, root)
            if any(is_hidden(part) for part in split.split(os.sep)):
                continue
            if os.path.isfile(path):
                yield split_id(split), path
            else:
                yield from self._walk(path, root)

    def _walk(self, folder: str, root: str) -> Iterator[tuple[str, str]]:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except FileNotFoundError:
            if folder == root:
                raise
            return  # removed since its parent was listed
        for entry in entries:
            if is_hidden(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(entry.path, root)
            elif fnmatchcase(entry.name, self.pattern) and entry.is_file():
                yield split_id(os.path.relpath(entry.path, root)), entry.path


def split_id(name: str) -> str:
    """The id of the file with this relative path. A name that is not UTF-8 is written out, behind what no path has.

    >>> split_id("2024/a.csv"), split_id("caf\\udce9.csv")
    ('2024/a.csv', '//caf\\\\xe9.csv')
    """
    if is_utf8(name):
        return name
    return "//" + shown(name.replace("\\", "\\\\"))
