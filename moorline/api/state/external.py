"""The contract between Moorline and an outside store that keeps state: what it must be able to do, and why.

A state with ``store=`` lives in a database. The worker reads through; what it writes stays with it until the checkpoint
that covers it is complete, and is then *applied* to the store (``state/external/backend.py``). A store sees three
things:

    documents   all that one state has for one key, as bytes; found by state, key group and encoded key
    marks       one for each subtask that writes: how far it has come, and who it is (``model/store_marks.py``)
    attempts    numbered; a higher one has taken over

**What makes it exactly-once.** :meth:`StoreSession.apply` writes documents only while the writer's own mark stands in
the store and no mark of a higher attempt does, and it moves the mark in the same transaction. So a half-dead worker
changes nothing after its successor has come, however late its commands arrive; and after a connection that broke in
the middle of a commit the mark tells whether it happened. Where a store cannot do all of it at once (Redis), ``apply``
may go in pieces: each checks the mark and is repeatable; the first sets ``reaching``, only the last ``reached``.

A store is configuration: it is pickled, sent to the workers, and opens its connection there. The suite
``moorline.testing.contracts.external`` checks a store of your own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from moorline.errors import InvalidArgument
from moorline.model.store_marks import NOT_YET, FreshStart, Mark, Owner, TakeOver, own_mark

__all__ = [
    "NOT_YET",
    "Change",
    "Document",
    "ExternalStore",
    "FreshStart",
    "Mark",
    "Owner",
    "Place",
    "StoreSession",
    "TakeOver",
    "check_settings",
    "own_mark",
]


class Place(NamedTuple):
    """The address of a document."""

    state: str
    key_group: int
    #: As ``model/keys/encoding.py`` encodes it.
    key: bytes


class Document(NamedTuple):
    """All that a state has for one key."""

    place: Place
    content: bytes


@dataclass(frozen=True, slots=True)
class Change:
    """A document is to be replaced, or removed."""

    place: Place
    #: None: remove it.
    content: bytes | None
    #: For people: the key, and the content as JSON where it has such a form. Empty if the store does not want them.
    key_text: str = ""
    json: str | None = None


class StoreSession(Protocol):
    """One subtask's connection. Used by one thread.

    Every call either does what it says or raises: :class:`~moorline.errors.ExternalStateTaken` when the mark is gone or
    a higher attempt has one, :class:`~moorline.errors.ExternalStateBehind` when the mark is further back than this
    session has left it (the store has lost data), :class:`~moorline.errors.StorageError` when the store stays out of
    reach for as long as the store's ``patience``. None of them waits for ever.
    """

    def take_over(self, decide: Callable[[Sequence[Mark]], TakeOver]) -> None:
        """Show ``decide`` all marks of the job and operator, and do what it returns, atomically. It may raise.

        It may be called more than once, and has no effect of its own.
        """
        ...

    def read(self, places: Sequence[Place]) -> list[Document]:
        """The documents at these places; nothing for a place that has none. One round trip, if it can be done."""
        ...

    def scan(self, state: str) -> Iterator[list[Document]]:
        """All documents of a state in the subtask's key groups, each once, in pages of bounded size.

        What comes or goes on the way may be seen or not.
        """
        ...

    def count(self, limit: int) -> int:
        """The number of documents in the subtask's key groups. Counting may stop at ``limit``."""
        ...

    def apply(self, checkpoint: int, changes: Sequence[Change]) -> None:
        """Make the changes and set the mark to ``checkpoint``. Does nothing if the mark is there already."""
        ...

    def close(self) -> None:
        """Close the connection. Never raises."""
        ...


class ExternalStore:
    """An outside store for a state. Configuration: small, picklable, comparable.

    ``label`` names it in checkpoints, so it stays the same when the database moves to another host. ``where`` is for
    messages. Neither of them, nor the ``repr``, may show a password.
    """

    #: A state starts empty and the store has something of an earlier run: refuse, remove it, or go on with it.
    on_fresh_start: FreshStart = "error"
    #: So many bytes of documents are kept in the worker, for each subtask.
    cache_bytes: int = 32 << 20
    #: Does it want keys and contents in a form that people can read?
    wants_text: bool = False

    @property
    def label(self) -> str:
        raise NotImplementedError

    @property
    def where(self) -> str:
        raise NotImplementedError

    def open(self, owner: Owner) -> StoreSession:
        """The session of one subtask. Called in the worker."""
        raise NotImplementedError

    def forget(self, job: str, uid: str | None = None) -> None:
        """Remove all that is kept for a job, or for one operator of it. Only for jobs that are not running."""
        raise NotImplementedError


def check_settings(store: ExternalStore) -> None:
    """Raises if a setting that all stores have is of no use."""
    if store.on_fresh_start not in ("error", "clear", "keep"):
        raise InvalidArgument("on_fresh_start", store.on_fresh_start, "It is 'error', 'clear' or 'keep'.")
    if store.cache_bytes < 0:
        raise InvalidArgument("cache_bytes", store.cache_bytes, "Give a number of bytes from 0.")
