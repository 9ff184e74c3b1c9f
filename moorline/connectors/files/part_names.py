"""Names of the files of a sink, and the committables that carry them through snapshots.

    <path>/[<column>=<value>/ …]part-<sink>-<checkpoint>-<subtask>-<attempt>-<unique>.<ext>    published
    <path>/.moorline-staging/<job>-<sink>/part-…                                               staged

``<sink>`` is the uid made safe for file names, followed by a hash of job and uid, so two jobs can write to one
folder. No name is ever used twice: ``<unique>`` is the beginning of the lineage and a random number.
"""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import msgspec
import xxhash

from moorline.api.sinks import SinkContext, is_meant
from moorline.errors import StorageError

STAGING = ".moorline-staging"
_PART = re.compile(
    r"part-([A-Za-z0-9_-]{1,48}-[0-9a-f]{16})-([0-9]{10,20})-[0-9]{5,}-[0-9]+-([0-9a-f]{32})(?:\.[a-z]+[0-9]?){1,2}"
)
_HEX = re.compile(r"[0-9a-f]*")
_FOLDER = re.compile(r"[A-Za-z0-9_-]{1,97}-[0-9a-f]{16}")
#: A folder of a partition. With its =, it cannot be one that leads elsewhere.
_PARTITION = re.compile(r"[^/\0]+=[^/\0]+")


class Committable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A staged file, as plain data."""

    #: Relative to the sink's folder.
    staged: str
    #: Relative to the sink's folder, with the folders of its partition.
    final: str
    size: int


def sink_tag(job: str, uid: str) -> str:
    """The tag that marks a sink's files among those of others in the same folder."""
    digest = xxhash.xxh3_64_hexdigest(f"{job}\0{uid}".encode("utf-8", "surrogatepass"))
    return f"{_safe(uid)}-{digest}"


def staging_folder(job: str, uid: str) -> str:
    """The folder in which a sink stages its files, relative to its own."""
    return f"{STAGING}/{_safe(job)}-{sink_tag(job, uid)}"


def unique_word(ctx: SinkContext) -> str:
    """A word that no other file has."""
    begins = ctx.lineage[:16] if _HEX.fullmatch(ctx.lineage) else ""
    return (begins + uuid4().hex)[:32]


def part_name(ctx: SinkContext, checkpoint: int, unique: str, extension: str) -> str:
    """The name of a file of a writer's."""
    tag = sink_tag(ctx.job, ctx.uid)
    return f"part-{tag}-{checkpoint:010}-{ctx.subtask:05}-{ctx.attempt}-{unique}{extension}"


def is_after(name: str, tag: str, checkpoint: int, lineages: tuple[str, ...]) -> bool:
    """Is it a file of the sink that a roll-back to a checkpoint takes back?

    >>> name = "part-out-0123456789abcdef-0000000007-00000-1-" + "5f1e" * 8 + ".csv"
    >>> is_after(name, "out-0123456789abcdef", 6, ("5f1e",)), is_after(name, "out-0123456789abcdef", 6, ("77",))
    (True, False)
    """
    match = _PART.fullmatch(name)
    return match is not None and match[1] == tag and int(match[2]) > checkpoint and is_meant(match[3], lineages)


def checkpoint_in(file: Committable) -> int:
    """The checkpoint that a checked committable is for."""
    match = _PART.fullmatch(file.final.rpartition("/")[2])
    assert match is not None
    return int(match[2])


def lineage_in(file: Committable) -> str:
    """The beginning of the lineage of a checked committable."""
    match = _PART.fullmatch(file.final.rpartition("/")[2])
    assert match is not None
    return match[3][:16]


def checked_committable(path: str, committable: Any) -> Committable:
    """A committable as it comes out of a snapshot. Names are data, and data must not reach out of the sink's folder."""
    try:
        file = msgspec.convert(committable, Committable)
    except msgspec.ValidationError as error:
        cause = f"{committable!r:.200} names no file: {error}"
        raise StorageError(path, "publish files in", cause, can_pass=False) from None
    top, _, rest = file.staged.partition("/")
    folder, _, name = rest.partition("/")
    *partition, final = file.final.split("/")
    is_safe = (
        top == STAGING
        and _FOLDER.fullmatch(folder)
        and name == final
        and _PART.fullmatch(name)
        and all(_PARTITION.fullmatch(part) for part in partition)
        and file.size >= 0
    )
    if not is_safe:
        cause = f"{committable!r:.200} is not a file that was staged here"
        raise StorageError(path, "publish files in", cause, can_pass=False)
    return file


def _safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text)[:48] or "_"
