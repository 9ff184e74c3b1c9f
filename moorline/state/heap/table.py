"""One table of the heap backend with what is needed to store it, restore it, and say what has changed in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from moorline.api.state.descriptors import StateDescriptor
from moorline.model import keys
from moorline.state.backend import WHOLE, RestoredRows, Slices
from moorline.state.forms import Form
from moorline.state.heap.rows import Content, entries_of, tables_of
from moorline.state.heap.states import Table, TrackedTable
from moorline.state.readers import checked_tables, readers_of_handle


class StoredTable:
    """The entries of one state, or of the timers of a kind."""

    def __init__(self, form: Form, is_tracked: bool) -> None:
        self.form = form
        self.table = TrackedTable() if is_tracked else Table()
        #: Is it something else than the rows it was restored from?
        self.is_altered = False

    def __len__(self) -> int:
        return len(self.table.entries)

    # --- restoring ------------------------------------------------------------------------------

    def fill(self, uid: str, restored: RestoredRows, descriptor: StateDescriptor | None) -> None:
        """Take in what is in the rows of one handle: it replaces what is here under the same keys."""
        form, handle = self.form, restored.handle
        readers = readers_of_handle(uid, form, descriptor, restored)
        is_other_type = descriptor is not None and handle.type != form.type
        self.is_altered = self.is_altered or is_other_type or handle.file is None
        filling = entries_of(form, readers, self._noted(checked_tables(uid, form, readers, restored)))
        for ident in filling.gone:
            self.table.entries.pop(ident, None)
        self.table.entries.update(filling.entries)

    def _noted(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            # Stamps that come back after a time without them would be older than what they are on.
            self.is_altered = self.is_altered or ("last_access" in table.column_names) != (self.form.ttl is not None)
            yield table

    # --- looking --------------------------------------------------------------------------------

    def keys(self) -> Iterator[Any]:
        """All keys, once each. The table may change on the way."""
        entries = self.table.entries
        if not self.form.is_windowed:
            for key in list(entries):
                if key in entries:
                    yield key
            return
        seen = set()
        for ident in list(entries):
            if ident in entries and ident[0] not in seen:
                seen.add(ident[0])
                yield ident[0]

    def of_key(self, encoded: bytes, expired_at: int | None) -> Content:
        """The entries of one key, by pointer: to be looked at at once."""
        entries, key = self.table.entries, keys.decode_identity(encoded)
        if self.form.is_windowed:
            of_key = {ident: value for ident, value in entries.items() if ident[0] == key}
        else:
            of_key = {key: entries[key]} if key in entries else {}
        return Content(of_key, None, expired_at)

    def idents(self) -> Iterator[Any]:
        """The identities of all entries. The table may change on the way."""
        return iter(list(self.table.entries))

    # --- snapshots ------------------------------------------------------------------------------

    def everything(self, expired_at: int | None) -> Content:
        return Content(dict(self.table.entries), None, expired_at)

    def changed_since(self, checkpoint: int) -> dict[Any, bool]:
        assert isinstance(self.table, TrackedTable)
        return self.table.changed_since(checkpoint)

    def rows_of(self, changed: dict[Any, bool]) -> int:
        """The number of rows that an increment of these keys has."""
        if not self.form.has_elements:
            return len(changed)
        entries = self.table.entries
        return sum(len(entries[ident]) if ident in entries else 1 for ident in changed)

    def changes(self, changed: dict[Any, bool]) -> Content:
        entries = self.table.entries
        now = {ident: entries[ident] for ident in changed if ident in entries}
        return Content(now, [ident for ident, existed in changed.items() if existed and ident not in now])

    def cut(self, checkpoint: int, completed: int, is_first: bool) -> None:
        """A snapshot has been taken. ``is_first``: there is nothing older to build on."""
        assert isinstance(self.table, TrackedTable)
        if is_first:
            self.table.begin()
        else:
            self.table.forget(completed)
            self.table.cut(checkpoint)

    def tables(self, content: Content, max_parallelism: int, slices: Slices = WHOLE) -> Iterator[pa.Table]:
        return tables_of(self.form, content, max_parallelism, slices)
