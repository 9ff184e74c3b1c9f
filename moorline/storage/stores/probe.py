"""Can a store carry the checkpoints of a job? Tried by a real write, read and delete, before a job is started.

What storage refuses then, it would refuse at the first checkpoint, when no user watches any more. ``open.py`` calls it.
"""

from __future__ import annotations

import uuid
from contextlib import suppress

from moorline.errors import StorageError
from moorline.storage.blobs import BlobStore

_CONTENT = b"Moorline has tried whether it can write here. This file may be deleted."


def probe(store: BlobStore, *, exclusive: bool = True) -> None:
    """Raises StorageError if ``store`` does not do what a history of checkpoints rests on.

    ``exclusive``: a second write of the same path has to be refused.

    >>> from moorline.storage.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> probe(store)
    >>> store.list()
    []
    """
    path = f"probe/{uuid.uuid4().hex}"
    try:
        try:
            first = store.put_if_absent(path, _CONTENT)
            second = store.put_if_absent(path, b"") if exclusive else False
            content = store.get(path)
        finally:
            with suppress(StorageError):
                store.delete([path])
        left = [blob for blob in store.list("probe/") if blob.path == path]
    except StorageError as error:
        cause = f"a trial failed: {error}. Checkpoints need a location that can be written, read and deleted from"
        raise StorageError(store.url, "use", cause, error.can_pass) from error
    if second:
        cause = "it does not honour If-None-Match, so two drivers could overwrite each other's history"
        raise StorageError(store.url, "use", cause, can_pass=False)
    if not first or content != _CONTENT or left:
        what = "cannot be deleted" if left else "is not what is read back"
        raise StorageError(store.url, "use", f"what is written there {what}", can_pass=False)
