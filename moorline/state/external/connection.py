"""A subtask's connection to its outside store, and how the store is brought to what was restored.

The session is opened at its first use. Before anything is read it takes over from the subtasks that wrote there before
(``protocol/takeover.py`` decides) and applies what the restored checkpoint holds and the store may not have yet.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from moorline.api.state.descriptors import StateDescriptor
from moorline.api.state.external import Change, ExternalStore, Owner, Place, StoreSession
from moorline.model import keys
from moorline.model.key_groups import KeyGroupRange
from moorline.model.keys.identity import KeyIdentities
from moorline.protocol.takeover import StoreStart, take_over
from moorline.state.backend import RestoredRows
from moorline.state.external.progress import StoreProgress, read_progress
from moorline.state.external.table import ExternalTable
from moorline.state.heap.table import StoredTable
from moorline.state.registration import Registration

#: Documents are counted up to here; beyond, their number is an estimate.
COUNT_UP_TO = 100_000


class StoreConnection:
    """The connection of one subtask, which has the states of ``states`` there.

    ``attempt`` numbers the starts of the job, ``restored`` is the checkpoint it is restored from.
    """

    def __init__(
        self,
        store: ExternalStore,
        states: Registration[ExternalTable],
        *,
        job: str,
        key_groups: KeyGroupRange,
        attempt: int,
        restored: int | None,
    ) -> None:
        self.store, self._states, self._restored_from = store, states, restored
        self._owner = Owner(job, states.uid, attempt, key_groups.first, key_groups.end, uuid.uuid4().hex)
        #: By key group: what the restored checkpoint says about the store.
        self.progress: dict[int, StoreProgress] = {}
        #: Documents of the restored checkpoint that the store may not have yet.
        self._to_apply: list[Change] = []
        self._session: StoreSession | None = None
        #: The store has all of this checkpoint.
        self.reached = 0
        #: Documents that there are, as the store has counted them and as they have become more or fewer.
        self.entries = 0

    # --- restoring ------------------------------------------------------------------------------

    def restore_progress(self, restored: RestoredRows) -> None:
        """Take what a checkpoint says about the store."""
        self.progress |= read_progress(restored)

    def restore_rows(
        self,
        table: ExternalTable,
        restored: Sequence[RestoredRows],
        descriptor: StateDescriptor,
        identities: KeyIdentities,
        max_parallelism: int,
    ) -> None:
        """Make documents of the restored rows of a state, to be applied."""
        rows, name = StoredTable(table.form, True), table.form.state
        for part in restored:
            rows.fill(self._states.uid, part, descriptor)
        spaces: dict[bytes, dict[Any, Any]] = {}
        for ident, live in rows.table.entries.items():
            key, namespace = ident if table.form.is_windowed else (ident, None)
            spaces.setdefault(keys.encode(key), {})[namespace] = live
        for gone in (key for progress in self.progress.values() for state, key in progress.gone if state == name):
            spaces.setdefault(gone, {})
        for encoded, content in spaces.items():
            place = Place(name, keys.encoded_key_group(encoded, max_parallelism), encoded)
            text = _shown(encoded, identities) if self.store.wants_text else None
            self._to_apply.append(table.change(place, table.documents.write(content), text))

    # --- the session ----------------------------------------------------------------------------

    def session(self) -> StoreSession:
        """The session, which has taken over and brought the store to what was restored."""
        if self._session is not None:
            return self._session
        session = self.store.open(self._owner)
        try:
            self._begin(session)
        except BaseException:
            session.close()
            raise
        self._session = session
        return session

    def _begin(self, session: StoreSession) -> None:
        restored, progress = self._restored_from, self.progress.values()
        if progress or (self._to_apply and restored is None):
            restored = max((p.checkpoint for p in progress), default=0)
        as_of = max((p.as_of for p in progress), default=restored)
        start = StoreStart(
            self._owner,
            self.store.where,
            self._types(),
            self.store.on_fresh_start,
            restored,
            {group: p.reached for group, p in self.progress.items()},
            self._states.allow_dropped,
            as_of,
        )
        session.take_over(partial(take_over, start=start))
        if as_of is not None:
            session.apply(as_of, self._to_apply)
            self.reached, self._to_apply = as_of, []
        self.entries = session.count(COUNT_UP_TO)

    def _types(self) -> Mapping[str, str]:
        return {name: str(table.form) for name, table in self._states.parts.items()}

    def apply(self, checkpoint: int, changes: Sequence[Change]) -> None:
        """Write what a complete checkpoint covers."""
        self.session().apply(checkpoint, changes)
        self.reached = checkpoint

    def close(self) -> None:
        if self._session is not None:
            self._session.close()


def _shown(encoded: bytes, identities: KeyIdentities) -> Any:
    """The key if it can be made, else its encoding."""
    try:
        return keys.decode(encoded, identities.classes)
    except keys.UnknownClass:
        return encoded
