"""One state that lives in an outside store, as the worker has it: live objects for the batch, documents beyond.

    live       Python objects of the keys of the current batch; the user's states work on them
    cache      the documents of keys that were used last
    pending    documents that have changed since the last barrier
    layers     the same for earlier barriers, until the checkpoint is known to be applied
    store      everything else

A key is looked for in this order, and read from the store ahead of the batch, for all states at once; a key that
was not announced is read when it is touched. When the batch is done, :meth:`ExternalTable.flush` makes documents of the
live objects again and keeps those that differ. So user code need not say what it has changed, and all that a snapshot
holds are bytes, which the stream cannot change any more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from moorline.api.state.external import Change, Place
from moorline.errors import StorageError
from moorline.model import keys
from moorline.state.external.documents import Documents, key_text, merged
from moorline.state.forms import Form
from moorline.state.heap.rows import Content, tables_of
from moorline.state.heap.states import Table

#: What a key in the cache takes beside its document, about.
KEY_BYTES = 200
#: So many barriers whose checkpoints have not completed have a layer of their own.
MAX_LAYERS = 16

_MISSING: Any = object()

#: Where a document belongs, and its content; None: it is gone.
Written = tuple[Place, bytes | None]


class Entries(dict[Any, Any]):
    """A dict of live objects that fetches what it does not have. The states of the heap backend work on it."""

    def __init__(self, is_windowed: bool, touched: Callable[[Any], None]) -> None:
        super().__init__()
        self._is_windowed, self._touched = is_windowed, touched
        #: The keys whose content is here, be it nothing.
        self.loaded: set[Any] = set()

    def _ensure(self, ident: Any) -> None:
        key = ident[0] if self._is_windowed else ident
        if key not in self.loaded:
            self._touched(key)

    def get(self, ident: Any, default: Any = None) -> Any:
        value = dict.get(self, ident, _MISSING)
        if value is _MISSING:
            self._ensure(ident)
            return dict.get(self, ident, default)
        return value

    def __contains__(self, ident: Any) -> bool:
        if dict.__contains__(self, ident):
            return True
        self._ensure(ident)
        return dict.__contains__(self, ident)

    def __setitem__(self, ident: Any, value: Any) -> None:
        self._ensure(ident)
        dict.__setitem__(self, ident, value)


class ExternalTable:
    """The live objects, the changes and the cache of one state."""

    def __init__(self, form: Form, max_parallelism: int, cache_bytes: int, touched: Callable[[Any], None]) -> None:
        self.form, self.documents = form, Documents(form)
        self._json = self.documents.json
        self.table = Table()
        self.table.entries = self.entries = Entries(form.is_windowed, touched)
        self.pending: dict[Any, Written] = {}
        #: Oldest first, by checkpoint.
        self.layers: list[tuple[int, dict[Any, Written]]] = []
        self._max_parallelism = max_parallelism
        #: Of the live keys: their documents as they are known.
        self._known: dict[Any, Written] = {}
        #: Of the live entries, if they cannot change in place: the object itself.
        self._before: dict[Any, Any] = {}
        self._cache: OrderedDict[Any, Written] = OrderedDict()
        self._cache_bytes = cache_bytes
        self._cached = 0
        self._is_immutable = form.value.is_immutable and not form.has_elements and not form.is_windowed

    # --- a batch --------------------------------------------------------------------------------

    def missing(self, keys_of_batch: Sequence[Any]) -> list[tuple[Any, Place]]:
        """Bring in the keys that the worker has. Returns those to be read from the store."""
        wanted = []
        for key in keys_of_batch:
            if key in self.entries.loaded:
                continue
            known = self._find(key)
            if known is not None:
                self.load(key, known)
            else:
                wanted.append((key, self._place(key)))
        return wanted

    def _find(self, key: Any) -> Written | None:
        # What leaves the batch goes to the cache, so if it is there it is the newest.
        cached = self._cache.pop(key, None)
        if cached is not None:
            self._cached -= _size(cached)
            return cached
        layers: list[dict[Any, Written]] = [self.pending, *(layer for _, layer in reversed(self.layers))]
        for layer in layers:
            if key in layer:
                return layer[key]
        return None

    def _place(self, key: Any) -> Place:
        encoded = keys.encode(key)
        return Place(self.form.state, keys.encoded_key_group(encoded, self._max_parallelism), encoded)

    def load(self, key: Any, known: Written) -> None:
        """Bring in the content of a key."""
        self._known[key] = known
        self.entries.loaded.add(key)
        content = known[1]
        if content is not None:
            try:
                spaces = self.documents.read(content)
            except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
                what, cause = f"the stored document of {key!r:.100} in", f"{type(error).__name__}: {error}"
                raise StorageError(f"state {self.form.state!r}", f"read {what}", cause) from error
            for namespace, live in spaces.items():
                ident = (key, namespace) if self.form.is_windowed else key
                dict.__setitem__(self.entries, ident, live)
                if self._is_immutable:
                    self._before[ident] = live

    def flush(self) -> int:
        """Make documents of what has changed. Returns by how many the keys have become more."""
        if not self.entries.loaded:
            return 0
        grown = 0
        for key, spaces in self._touched():
            place, before = self._known[key]
            content = self.documents.write(spaces)
            if content != before:
                self.pending[key] = self._known[key] = (place, content)
                grown += (content is not None) - (before is not None)
        return grown

    def _touched(self) -> list[tuple[Any, dict[Any, Any]]]:
        """The keys that may have changed, with what they have."""
        entries, before = self.entries, self._before
        if not self.form.is_windowed:
            touched: list[tuple[Any, dict[Any, Any]]] = []
            for key in entries.loaded:
                value = dict.get(entries, key, _MISSING)
                if value is _MISSING:
                    before.pop(key, None)  # the same object may come again, and would be taken for unchanged
                    if self._known[key][1] is not None:
                        touched.append((key, {}))
                elif not self._is_immutable or before.get(key, _MISSING) is not value:
                    before[key] = value
                    touched.append((key, {None: value}))
            return touched
        by_key: dict[Any, dict[Any, Any]] = {key: {} for key in entries.loaded}
        for (key, namespace), value in entries.items():
            by_key[key][namespace] = value
        return list(by_key.items())

    def keep_only(self, keep: set[Any]) -> None:
        """The batch is over. Its documents go to the cache, but those of the keys that are about to be used again."""
        over = self.entries.loaded - keep
        if not over:
            return
        for key in over:
            known = self._known.pop(key)
            self._cache[key] = known
            self._cached += _size(known)
        self.entries.loaded -= over
        if self.form.is_windowed:
            gone = [ident for ident in self.entries if ident[0] in over]
        else:
            gone = [key for key in over if dict.__contains__(self.entries, key)]
        for ident in gone:
            del self.entries[ident]
            self._before.pop(ident, None)
        while self._cached > self._cache_bytes:
            _, known = self._cache.popitem(last=False)
            self._cached -= _size(known)

    # --- checkpoints ----------------------------------------------------------------------------

    def cut(self, checkpoint: int) -> tuple[Callable[[], Iterator[pa.Table]], list[Place]]:
        """A barrier: what has changed becomes a layer. Returns all that is not applied yet: rows, and what is gone."""
        self.layers.append((checkpoint, self.pending))
        self.pending = {}
        if len(self.layers) > MAX_LAYERS:
            # Checkpoints fail and fail. If the older of the two completed after all, it would be covered by the next.
            (_, older), (number, newer), *rest = self.layers
            self.layers = [(number, older | newer), *rest]
        written = merged(layer for _, layer in self.layers)
        return lambda: self._rows(written), [place for place, content in written.values() if content is None]

    def _rows(self, written: dict[Any, Written]) -> Iterator[pa.Table]:
        entries = {}
        for key, (_, content) in written.items():
            if content is not None:
                for namespace, live in self.documents.read(content).items():
                    entries[(key, namespace) if self.form.is_windowed else key] = live
        return tables_of(self.form, Content(entries), self._max_parallelism)

    def changes(self, checkpoint: int, with_text: bool) -> list[Change]:
        """The changes that are to be applied for a checkpoint."""
        written = merged(layer for number, layer in self.layers if number <= checkpoint)
        return [self.change(place, content, key if with_text else None) for key, (place, content) in written.items()]

    def change(self, place: Place, content: bytes | None, key: Any = None) -> Change:
        """``key``: it is to be readable for people."""
        return Change(place, content) if key is None else Change(place, content, key_text(key), self._json(content))

    def applied(self, checkpoint: int) -> None:
        """Forget the layers up to a checkpoint: the store has them."""
        self.layers = [(number, layer) for number, layer in self.layers if number > checkpoint]

    # --- looking --------------------------------------------------------------------------------

    def unapplied(self) -> dict[Any, Written]:
        """The documents that are not applied to the store yet."""
        return merged([*(layer for _, layer in self.layers), self.pending])

    def idents_of(self, key: Any) -> list[Any]:
        """The identities of the live entries of a key."""
        if not self.form.is_windowed:
            return [key] if dict.__contains__(self.entries, key) else []
        return [ident for ident in self.entries if ident[0] == key]


def _size(written: Written) -> int:
    return KEY_BYTES + len(written[0].key) + len(written[1] or b"")
