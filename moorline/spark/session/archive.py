"""Java's classes in a file that an embedded Spark's JVM maps instead of reading and checking 15,000 of them again.

The archive is made once for each Java and each Spark, in a cache folder, by a process of its own
(``spark/session/training.py``) that is started when a process that had to do without it ends. Its name says for which
Java and which jars it is, and the JVM compares them again. What is in it the JVM believes: one that is cut off ends it
with a bus error. So its checksum is compared before each use, which takes some hundredths of a second.
Only the embedded Spark uses it. Nothing depends on it: where it cannot be made, starts take longer.

    <name>.jsa       the archive, put there in one step
    <name>.sum       its size and checksum, put there before it
    <name>.*.part    one that is being made, or was when its maker was killed: the next maker removes it
    <name>.lock      held while one is being made
    <name>.failed    why it could not be made: it is not tried again while this file is there
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path

log = logging.getLogger("moorline")

#: The variable that names the cache folder, and what it says if there is to be none.
VARIABLE, OFF = "MOORLINE_CACHE", "off"
#: What to say of an archive that does not fit is for nobody's screen.
QUIETLY = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")


def folder(environment: Mapping[str, str]) -> Path | None:
    """The cache folder, made if need be. None if there is none to be trusted: its content is run by Java."""
    named = environment.get(VARIABLE)
    if named == OFF:
        return None
    base = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME") or "/nonexistent", ".cache")
    path = Path(named) if named else Path(base) / "moorline"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as error:
        log.debug("no archive of Java's classes: %s", error)
        return None
    if found.st_uid != os.getuid() or found.st_mode & 0o022 or not os.access(path, os.W_OK):
        log.debug("no archive of Java's classes: %s is not ours, or others may write to it", path)
        return None
    return path


def archive_in(path: Path, java: str, jars: list[Path]) -> Path:
    """The place of the archive for this Java and these jars."""
    program = Path(os.path.realpath(java))
    library = program.parents[1] / "lib" / "modules"
    seen = hashlib.sha256()
    for file in (program, library, *jars):
        if file.exists():
            found = file.stat()
            seen.update(f"{file} {found.st_size} {found.st_mtime_ns}\n".encode())
    return path / f"spark-{seen.hexdigest()[:20]}.jsa"


def options_to_use(archive: Path) -> list[str]:
    """The options with which Java uses the archive; nothing if it is not there yet. One that is damaged is removed."""
    try:
        if checksum(archive) != archive.with_suffix(".sum").read_text():
            log.warning("%s is damaged and is removed; it will be made again", archive)
            archive.unlink()
            return []
        os.utime(archive)  # archives that nobody uses are removed one day
    except OSError:
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", *QUIETLY]


def checksum(archive: Path) -> str:
    """Its size and a checksum of its content, against accidents: whom the folder belongs to is trusted."""
    size = found = 0
    with archive.open("rb") as file:
        while piece := file.read(1 << 20):
            size, found = size + len(piece), zlib.crc32(piece, found)
    return f"{size} {found:08x}"


def options_to_make(part: Path) -> list[str]:
    """The options with which Java writes an archive of all that it has loaded when it ends."""
    return [f"-XX:ArchiveClassesAtExit={part}", *QUIETLY]


def is_wanted(archive: Path) -> bool:
    """Is it missing, and was it never tried in vain to make it?"""
    return not archive.exists() and not archive.with_suffix(".failed").exists()


def give_up(archive: Path, why: str) -> None:
    """Java has not started with it: it is not used again, nor made again."""
    log.warning("the archive of Java's classes %s is not used any more: %s", archive, why)
    try:
        archive.unlink(missing_ok=True)
        archive.with_suffix(".failed").write_text(why)
    except OSError as error:
        log.debug("it could not be removed: %s", error)


def make_beside(archive: Path) -> None:
    """Have it made by a process that outlives this one, and takes only what others leave of the processor."""
    command = [sys.executable, "-m", "moorline.spark.session.training", str(archive)]
    paths = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
    try:
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=archive.parent,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            start_new_session=True,
        )
    except OSError as error:
        log.debug("no archive of Java's classes: %s", error)
