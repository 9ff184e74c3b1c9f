"""``mo.give_up``: write off entries of a history that are lost."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from moorline.driver.processes import this_process
from moorline.driver.restore import refuse_beside_another
from moorline.errors import InvalidArgument
from moorline.model.options import checks_options
from moorline.snapshots.folders import folder_at
from moorline.storage.history import History
from moorline.storage.log import read_history
from moorline.storage.stores.open import remember_options


@checks_options()
def give_up(
    path: str,
    entries: Collection[int],
    *,
    take_over: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Give up entries of a job's history by their numbers: those that cannot be read, or are missing, for good.

    A job refuses to start when an entry that may have been its newest checkpoint is lost and no other is whole. This
    puts on record that it is not waited for any more: the next start with ``restore="latest"`` goes on from what is
    left, and with nothing left it begins empty, after sinks have taken back what this run had published. The job must
    not run; if it may, ``take_over=True`` fences it.

    >>> import moorline as mo
    >>> from moorline.storage.history import History
    >>> from moorline.storage.stores.open import open_store
    >>> store = open_store("memory://given-up/orders")
    >>> attempt = History(store, "orders").claim(fresh=True, now_ms=0)
    >>> store.put("history/0000000002.json", b"rubbish")
    >>> mo.fsck("memory://given-up/orders").verdict.value
    'lost'
    >>> mo.give_up("memory://given-up/orders", [2])
    >>> mo.fsck("memory://given-up/orders").verdict.value
    'sound'
    """
    if storage_options is not None:
        remember_options(path, storage_options)
    store = folder_at(path)
    records = read_history(store)
    broken = [r.seq for r in records if r.damage is not None]
    for number in entries:
        if number not in broken:
            have = f"Those that can be given up are: {', '.join(map(str, broken))}." if broken else "Nothing is broken."
            raise InvalidArgument("entry", number, f"Only what cannot be read or is missing can be given up. {have}")
    job = next((r.entry.job for r in reversed(records) if r.entry is not None), None)
    if job is None:
        advice = "No entry of this history can be read: begin anew with restore=None, or from a savepoint."
        raise InvalidArgument("path", path, advice)
    history = History(store, job)
    history.process = this_process()
    if not take_over:
        refuse_beside_another(records, history, job)
    history.claim(False, _now_ms())
    history.give_up([], _now_ms(), entries)
    history.end("entries given up", _now_ms())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
