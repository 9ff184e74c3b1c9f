"""A folder on the worker's own disk for one subtask of one attempt, and the removal of those that dead ones left.

    moorline-<host>-<pid>-<job>-<uid>-<subtask>-<attempt>-<random>

No two subtasks ever have the same one, so an older attempt that is still alive does no harm. A worker that was killed
could not remove its own; the next one in the same place on the same host does, if no process has its pid.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
from pathlib import Path

from moorline.storage.layout import safe_name


def make_local_folder(parent: str | None, job: str, uid: str, subtask: int, attempt: int) -> Path:
    """A new folder below ``parent``, or below the one for temporary files."""
    where = Path(parent or tempfile.gettempdir())
    where.mkdir(parents=True, exist_ok=True)
    host = re.sub(r"[^A-Za-z0-9]", "_", socket.gethostname()) or "host"
    _remove_left_behind(where, host)
    name = f"moorline-{host}-{os.getpid()}-{safe_name(job)}-{safe_name(uid)}-{subtask}-{attempt}-"
    return Path(tempfile.mkdtemp(prefix=name, dir=where))


def _remove_left_behind(where: Path, host: str) -> None:
    for path in where.glob(f"moorline-{host}-*-*"):
        owner = re.match(rf"moorline-{host}-(\d+)-", path.name)
        if owner and not _is_alive(int(owner[1])):
            shutil.rmtree(path, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
