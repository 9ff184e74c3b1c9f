"""Documents of an outside store: the content of one key in one state as bytes, and back.

    document    state of the key         content
                states of windows        [[start, end, content], ...], ordered
    content     value, reducing, aggr.   element
                list                     [element, ...]
                map                      [[key, element], ...]
    element     no time to live          the value's bytes
                with a time to live      [the value's bytes, last access, own length]

All of it is msgpack; keys and values are in it as ``StoredType.pack`` makes them. A document is read whatever it was
written with, so a state may get or lose its time to live. Equal contents are equal bytes (but for sets, which have no
order), which is how ``state/external/backend.py`` sees what a batch of records has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from moorline.state.backend import Namespace
from moorline.state.forms import Form
from moorline.state.types.annotations import to_bytes

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_json = msgspec.json.Encoder(enc_hook=str, decimal_format="string").encode

#: No JSON is made of larger documents: it is for people.
JSON_BYTES = 64 << 10


class Documents:
    """The codec of one state's documents."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._unpack = form.value.unpack

    def write(self, spaces: Mapping[Namespace, Any]) -> bytes | None:
        """The document of a key's content, by namespace. None if it has none."""
        if not spaces:
            return None
        if not self._form.is_windowed:
            return _encode(self._content(spaces[None]))
        ordered = sorted(spaces.items(), key=lambda item: item[0] or ())
        return _encode([[*(n or (None, None)), self._content(value)] for n, value in ordered])

    def read(self, document: bytes) -> dict[Namespace, Any]:
        """The content of a key, by namespace."""
        decoded = _decode(document)
        if not self._form.is_windowed:
            return {None: self._live(decoded)}
        return {None if start is None else (start, end): self._live(content) for start, end, content in decoded}

    def json(self, document: bytes | None) -> str | None:
        """A document in a form for people; None if there is none."""
        if document is None or len(document) > JSON_BYTES:
            return None
        try:
            spaces = {n: self._shown(v) for n, v in self.read(document).items()}
            if self._form.is_windowed:
                text = _json([{"start": n and n[0], "end": n and n[1], "value": v} for n, v in spaces.items()])
            else:
                text = _json(spaces[None])
        except (TypeError, ValueError, RecursionError, OverflowError):
            return None
        # PostgreSQL has no text with a zero byte in it.
        return None if b"\\u0000" in text else text.decode()

    def _content(self, live: Any) -> Any:
        form, element = self._form, self._element
        if form.is_list:
            return [element(e) for e in live]
        if form.map_key is not None:
            return [[to_bytes(form.map_key, k, form.state), element(e)] for k, e in live.items()]
        return element(live)

    def _element(self, live: Any) -> Any:
        form = self._form
        if form.ttl is None:
            return to_bytes(form.value, live, form.state)
        value, last_access, own_length = live
        return [to_bytes(form.value, value, form.state), last_access, own_length]

    def _live(self, content: Any) -> Any:
        form, element = self._form, self._live_element
        if form.is_list:
            return [element(e) for e in content]
        if form.map_key is not None:
            unpack = form.map_key.unpack
            return {unpack(k): element(e) for k, e in content}
        return element(content)

    def _live_element(self, element: Any) -> Any:
        stamps: tuple[Any, Any] = (None, None)
        if type(element) is list:
            element, *rest = element
            stamps = (rest[0], rest[1])
        value = self._unpack(element)
        return value if self._form.ttl is None else (value, *stamps)

    def _shown(self, live: Any) -> Any:
        """The values without their stamps."""
        form = self._form
        if form.map_key is not None:
            return {k if type(k) in (str, int, float, bool) else str(k): self._bare(e) for k, e in live.items()}
        return [self._bare(e) for e in live] if form.is_list else self._bare(live)

    def _bare(self, live: Any) -> Any:
        return live if self._form.ttl is None else live[0]


def key_text(key: Any) -> str:
    """A key for people: text as it is, anything else as Python shows it.

    >>> key_text("user-1"), key_text(("a", 1))
    ('user-1', "('a', 1)")
    """
    text = key if type(key) is str else str(key) if type(key) in (int, float) else repr(key)
    return text[:500].replace("\0", "\ufffd")


def merged(layers: Iterable[Mapping[Any, Any]]) -> dict[Any, Any]:
    """Several layers of changes as one, oldest first: of each key the last change."""
    newest: dict[Any, Any] = {}
    for layer in layers:
        newest.update(layer)
    return newest
