"""Files of a remote place to read: all below a URL, those that a glob matches, or the one that is meant.

A split's id is the path below the URL, or below the part of it that is no glob. A URL that names one file has one split
with the id ``.``, which no path can be.
"""

from __future__ import annotations

import glob
from dataclasses import dataclass
from fnmatch import fnmatchcase

from moorline.connectors.files.local.paths import is_hidden
from moorline.connectors.files.remote.location import Location, RemoteObject, seen_in

#: The split of a URL that names a file.
ITSELF = "."


@dataclass(frozen=True)
class RemoteFolder:
    """The files that a URL means."""

    #: The part of the URL that is no glob.
    location: Location
    #: The rest of it, by its parts.
    glob: tuple[str, ...]
    #: Chooses among the files of a folder by name.
    pattern: str

    @property
    def chosen(self) -> str:
        """The search, in words for people."""
        return "/".join([self.location.url, *self.glob, *([] if self.pattern == "*" else [self.pattern])])

    def listing(self) -> dict[str, RemoteObject]:
        """The files there are now: by split, in the order of their names."""
        if not self.glob and (itself := self.location.files.find("")) is not None:
            return {ITSELF: itself}
        found = {object.path: object for object in self.location.files.list() if self._is_chosen(object.path)}
        return dict(sorted(found.items()))

    def _is_chosen(self, path: str) -> bool:
        parts = path.split("/")
        if any(is_hidden(part) for part in parts):
            return False
        if self.glob and _matches(parts, self.glob):
            return True
        is_below = not self.glob or any(_matches(parts[:end], self.glob) for end in range(1, len(parts)))
        return is_below and fnmatchcase(parts[-1], self.pattern)

    def shown(self, split: str) -> str:
        """A file for people."""
        return self.location.shown("" if split == ITSELF else split)

    def object(self, split: str, position: object) -> RemoteObject:
        """The file of a split, as its position says that it looks. Raises SnapshotCorrupt if there is none such."""
        if split != ITSELF:
            return seen_in(split, position)
        itself = seen_in("itself", position)
        return RemoteObject("", itself.size, itself.version)


def remote_folder(location: Location, pattern: str) -> RemoteFolder:
    """The folder of a URL that may be a glob.

    >>> folder = remote_folder(Location("s3://bucket/in/day=*/*.csv"), "*")
    >>> folder.location.url, folder.glob
    ('s3://bucket/in', ('day=*', '*.csv'))
    """
    scheme, _, rest = location.url.partition("://")
    parts = rest.split("/")
    plain = next((n for n, part in enumerate(parts) if n and glob.has_magic(part)), len(parts))
    base = Location(f"{scheme}://{'/'.join(parts[:plain])}", location.options)
    return RemoteFolder(base, tuple(parts[plain:]), pattern)


def _matches(parts: list[str], pattern: tuple[str, ...]) -> bool:
    """Does a path match a glob, part by part? ``**`` stands for any number of folders.

    >>> _matches(["a", "b", "c.csv"], ("**", "*.csv")), _matches(["a", "c.csv"], ("*.csv",))
    (True, False)
    """
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return _matches(parts, pattern[1:]) or (bool(parts) and _matches(parts[1:], pattern))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
