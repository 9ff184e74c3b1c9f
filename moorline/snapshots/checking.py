"""``mo.fsck`` and ``mo.sweep``: check a snapshot, and delete unneeded files."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from moorline.model.durations import Duration, milliseconds
from moorline.model.options import checks_options
from moorline.snapshots import inspection
from moorline.snapshots.contents import ContentsCheck
from moorline.snapshots.folders import folder_at
from moorline.snapshots.inspection import Leftover, Progress, Report
from moorline.storage.stores.open import remember_options


@checks_options()
def fsck(
    path: str,
    *,
    contents: bool = True,
    grace: Duration = "10min",
    progress: Callable[[Progress], None] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Report:
    """Check every file of a job's checkpoints, or of a savepoint: its presence, its checksum, its rows.

    ``print`` what comes back; ``report.verdict`` sums it up. ``contents=False`` looks at names and sizes alone, which
    is quick. Files that no snapshot needs and that are older than ``grace`` are listed too. Nothing is changed, and a
    running job does not notice.

    >>> import moorline as mo
    >>> from moorline.storage.stores.open import open_store
    >>> from moorline.snapshots.folders import write_savepoint
    >>> from moorline.model.manifest import Manifest
    >>> write_savepoint(open_store("memory://checked"), Manifest("orders", 1, 7, 0, operators=[]))
    >>> print(mo.fsck("memory://checked"))
    memory://checked: savepoint 'orders': sound
      checkpoint 7: 0 files, 0 bytes, whole
    """
    if storage_options is not None:
        remember_options(path, storage_options)
    grace_ms = milliseconds(grace, "grace")
    return inspection.check(
        folder_at(path),
        _now_ms(),
        grace_ms=grace_ms,
        contents=contents,
        progress=progress,
        read=lambda manifests: ContentsCheck(manifests).read,
    )


@checks_options()
def sweep(path: str, *, grace: Duration = "1h", storage_options: Mapping[str, Any] | None = None) -> list[Leftover]:
    """Delete files of a job's folder, or of a savepoint, that no snapshot names and that are older than ``grace``.

    A running job does this by itself; this is for one that will not come back. It is safe beside a running one all the
    same: what a retained checkpoint names and what an upload may still want is never deleted. Returns what was.

    >>> import moorline as mo
    >>> from moorline.model.manifest import Manifest
    >>> from moorline.storage.stores.open import open_store
    >>> from moorline.snapshots.folders import write_savepoint
    >>> write_savepoint(open_store("memory://swept"), Manifest("orders", 1, 7, 0, operators=[]))
    >>> mo.sweep("memory://swept")
    []
    """
    if storage_options is not None:
        remember_options(path, storage_options)
    return inspection.sweep(folder_at(path), _now_ms(), grace_ms=milliseconds(grace, "grace"))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
