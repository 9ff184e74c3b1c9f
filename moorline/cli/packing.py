"""An archive of Moorline and what it needs, for executors on which it is not installed.

    spark-submit --archives moorline.tar.gz#moorline --conf spark.executorEnv.PYTHONPATH=moorline ...

Spark unpacks the archive into the working directory of each executor, under the name after the ``#``; Python finds the
modules there before it starts. (``--py-files`` is too late: a worker's daemon is a module of ours, and compiled modules
cannot be imported from a zip.) What PySpark's Arrow functions need anyway is left out unless asked for.

The same content gives the same bytes: names in their order, no times and no owners.
"""

from __future__ import annotations

import gzip
import io
import json
import platform
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path

import moorline
from moorline.errors import InvalidArgument

#: Every executor that runs Arrow functions of PySpark has these.
OF_SPARK = ("pyspark", "py4j", "pandas", "pyarrow", "numpy")
#: In the archive, for people and for messages: what it was made for.
LABEL = "MOORLINE-PACK.json"

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


def pack(target: Path, extras: Sequence[str] = (), also: Iterable[Path] = (), everything: bool = False) -> list[str]:
    """Write the archive, and return the names of the distributions in it.

    ``extras``: those of Moorline, or other installed distributions. ``also``: modules and packages of your own.
    ``everything``: with pyarrow, pandas and numpy.
    """
    names = distributions(extras, everything)
    of_extras = metadata.metadata("moorline").get_all("Provides-Extra") or ()
    for wanted in (extra for extra in extras if extra not in of_extras):
        if re.sub(r"[-_.]+", "-", wanted).lower() not in names:
            raise InvalidArgument("--with", wanted, "It is neither an extra of Moorline nor installed here.")
    members: dict[str, Path] = {}
    for name in names:
        members |= dict(_files(metadata.distribution(name)))
    members |= dict(_tree(Path(moorline.__file__).parent))
    for path in also:
        if not path.exists():
            raise InvalidArgument("--also", str(path), "There is no such file or folder.")
        members |= dict(_tree(path)) if path.is_dir() else {path.name: path}
    label = {"moorline": moorline.__version__, "python": platform.python_version(), "platform": platform.platform()}
    label |= {"machine": platform.machine(), "implementation": sys.implementation.name}
    _write(target, members, json.dumps(label | {"distributions": names}, indent=2).encode())
    return names


def distributions(extras: Sequence[str] = (), everything: bool = False) -> list[str]:
    """The distributions of Moorline's dependencies, and of theirs; without those of Spark."""
    of_extras = set(metadata.metadata("moorline").get_all("Provides-Extra") or ())
    # Spark brings its own PySpark.
    left_out = {"pyspark", "py4j"} if everything else _closure([(name, set()) for name in OF_SPARK])
    todo = [(name, set[str]()) for name in extras if name not in of_extras]
    return sorted(_closure([*todo, ("moorline", set(extras) & of_extras)], left_out) - {"moorline"})


def _closure(todo: list[tuple[str, set[str]]], without: Iterable[str] = ()) -> set[str]:
    """These distributions and those that they require, by their normal names."""
    found: set[str] = set()
    while todo:
        name, extras = todo.pop()
        name = re.sub(r"[-_.]+", "-", name).lower()
        if name in found or name in without:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # needed on other systems or versions of Python alone
        found.add(name)
        todo += [(required, set()) for required in _required(distribution, extras)]
    return found


def _required(distribution: metadata.Distribution, extras: set[str]) -> Iterator[str]:
    for line in distribution.requires or ():
        wanted, _, condition = line.partition(";")
        extra = re.search(r"""extra\s*==\s*["']([^"']+)["']""", condition)
        if (extra is None or extra[1] in extras) and (match := _REQUIREMENT.match(wanted)) is not None:
            yield match[1]


def _files(distribution: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    for file in distribution.files or ():
        path = Path(str(distribution.locate_file(file)))
        # Scripts lie outside of site-packages.
        if ".." not in file.parts and "__pycache__" not in file.parts and path.is_file():
            yield str(file), path


def _tree(root: Path) -> Iterator[tuple[str, Path]]:
    for path in root.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield str(path.relative_to(root.parent)), path


def _write(target: Path, members: dict[str, Path], label: bytes) -> None:
    partial = target.with_name(target.name + ".partial")
    with (
        partial.open("wb") as out,
        gzip.GzipFile("", "wb", 6, out, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        archive.addfile(_entry(LABEL, len(label), 0o644), io.BytesIO(label))
        for name, path in sorted(members.items()):
            mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            with path.open("rb") as file:
                archive.addfile(_entry(name, path.stat().st_size, mode), file)
    partial.replace(target)


def _entry(name: str, size: int, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, mode
    return entry
