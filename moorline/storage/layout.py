"""The layout of a job's folder, and the paths that are fit to be followed.

    <location>/<job>/                                     the root of the job's BlobStore
      history/0000000001.json                             claims and manifests, numbered without a gap as written
      head/0000000001-<digest>-<checkpoint>.json          how far it has come: the highest entry, the next checkpoint
      leader/0000000001.json                              the term of the driver that leads, if several stand ready
      data/chk-<checkpoint>/<operator uid>/
        <state>-<subtask>-<attempt>-<unique>.parquet      the rows of one state of one subtask
        native-<subtask>-<attempt>-<unique>.bin           a file of a backend's own kind

Names are for people and for sweeping up: which file belongs to which checkpoint is said by manifests alone. No name
is used twice, so a late writer of an old attempt cannot hit a file of a new one. Pure; everything in ``storage/``
and the subtask's snapshot ask here.
"""

from __future__ import annotations

import re
import uuid

import xxhash

from moorline.errors import SnapshotCorrupt

HISTORY = "history/"
LEADER = "leader/"
HEAD = "head/"
DATA = "data/"

_PATH = re.compile(r"[A-Za-z0-9._-]{1,200}(/[A-Za-z0-9._-]{1,200}){0,6}")
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,48}")
_UNIQUE = re.compile(r"[A-Za-z0-9]{1,40}")
_NUMBERED_PATH = re.compile(r"([a-z]+/)([0-9]{10})\.json")
_HEAD_PATH = re.compile(r"head/([0-9]{10})-([0-9a-f]{16})-([0-9]{1,15})\.json")
# Read from the right, because a state's name may itself end in numbers.
_DATA_PATH = re.compile(r"data/chk-([0-9]+)/[^/]+/[^/]+-[0-9]+-([0-9]+)-[A-Za-z0-9]+\.(?:parquet|bin)")


def check_path(path: str) -> str:
    """``path`` itself, if it is one of ours. Manifests come from storage, so what they name is checked before use.

    >>> check_path("data/chk-1/count/sum-0-1-c0ffee.parquet")
    'data/chk-1/count/sum-0-1-c0ffee.parquet'
    >>> check_path("../other-job/data")
    Traceback (most recent call last):
    moorline.errors.SnapshotCorrupt: '../other-job/data' is damaged: no file of ours can have this path. ...
    """
    if not is_path(path):
        shown = path if len(path) <= 100 else path[:100] + "..."
        raise SnapshotCorrupt(ascii(shown), "no file of ours can have this path")
    return path


def is_path(path: str) -> bool:
    """Can this be a path of ours? What others have put beside our files is left alone and not listed.

    >>> is_path("data/chk-1/count/sum-0-1-c0ffee.parquet"), is_path("data/a note.txt")
    (True, False)
    """
    return _PATH.fullmatch(path) is not None and not any(part in (".", "..") for part in path.split("/"))


def safe_name(text: str) -> str:
    """A file name for a uid, a state or a job: the text itself if it can be, else what is readable of it and a hash.

    >>> safe_name("count"), safe_name("Zähler / Tag")
    ('count', 'Z-hler-Tag-7f930cea')
    """
    if _PLAIN.fullmatch(text):
        return text
    readable = re.sub(r"[^A-Za-z0-9_]+", "-", text)[:39].strip("-")
    # 32 bits do for telling apart what a person looks at: names end in something unique anyway.
    digest = xxhash.xxh3_64_hexdigest(text.encode("utf-8", "surrogatepass"))[:8]
    return f"{readable}-{digest}" if readable else digest


def job_url(location: str, job: str) -> str:
    """The folder of a job below the location its checkpoints were configured with.

    >>> job_url("file:///data/checkpoints/", "average")
    'file:///data/checkpoints/average'
    """
    return f"{location.rstrip('/')}/{safe_name(job)}"


def entry_path(number: int) -> str:
    """The path of entry ``number`` of the history.

    >>> entry_path(7)
    'history/0000000007.json'
    """
    return numbered_path(HISTORY, number)


def numbered_path(folder: str, number: int) -> str:
    """The path of a number in a folder of numbered files (``numbered.py``)."""
    if not 1 <= number < 10**10:
        raise ValueError(f"{folder} has no number {number}")
    return f"{folder}{number:010d}.json"


def number_of(folder: str, path: str) -> int | None:
    """The inverse of :func:`numbered_path`; None for any other file.

    >>> number_of(HISTORY, "history/0000000007.json"), number_of(HISTORY, "history/7.json")
    (7, None)
    """
    match = _NUMBERED_PATH.fullmatch(path)
    return int(match[2]) if match and match[1] == folder else None


def head_path(number: int, digest: str, next_checkpoint: int) -> str:
    """The file that says: the history has come to this entry, and checkpoints below this number have been used.

    >>> head_path(7, "0123456789abcdef", 3)
    'head/0000000007-0123456789abcdef-3.json'
    """
    return f"{HEAD}{number:010d}-{digest}-{next_checkpoint}.json"


def head_of(path: str) -> tuple[int, str, int] | None:
    """The inverse of :func:`head_path`; None for any other file."""
    match = _HEAD_PATH.fullmatch(path)
    return (int(match[1]), match[2], int(match[3])) if match else None


def data_path(
    checkpoint: int, uid: str, state: str, subtask: int, attempt: int, *, unique: str = "", suffix: str = "parquet"
) -> str:
    """A path that was never used before, for a file of one state of one subtask.

    >>> data_path(7, "count", "sum", subtask=0, attempt=2, unique="c0ffee")
    'data/chk-7/count/sum-0-2-c0ffee.parquet'
    """
    unique = unique or uuid.uuid4().hex
    if not _UNIQUE.fullmatch(unique):
        raise ValueError(f"the unique part of a path is letters and digits, not {unique!r}")
    return f"{DATA}chk-{checkpoint}/{safe_name(uid)}/{safe_name(state)}-{subtask}-{attempt}-{unique}.{suffix}"


def is_of_checkpoint(path: str, checkpoint: int) -> bool:
    """Was a data file made for this checkpoint? It may belong to later ones as well.

    >>> is_of_checkpoint("data/chk-7/count/sum-0-2-c0ffee.parquet", 7)
    True
    """
    return path.startswith(f"{DATA}chk-{checkpoint}/")


def attempt_of(path: str) -> int | None:
    """The attempt that wrote a data file; None if it is not one of ours.

    >>> attempt_of("data/chk-7/count/sum-0-2-c0ffee.parquet")
    2
    """
    origin = origin_of(path)
    return origin[1] if origin else None


def origin_of(path: str) -> tuple[int, int] | None:
    """For which checkpoint and by which attempt a data file was written; None if it is not one of ours.

    >>> origin_of("data/chk-7/count/sum-0-2-c0ffee.parquet")
    (7, 2)
    """
    match = _DATA_PATH.fullmatch(path)
    return (int(match[1]), int(match[2])) if match else None
