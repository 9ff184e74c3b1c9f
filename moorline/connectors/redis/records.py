"""Entries of Redis streams as records, and records as entries.

format=None      the fields of the entry: a dict of texts
format=...       one field of the entry, decoded or encoded by the format
as_records=True    a RedisEntry around either, when reading
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic

import msgspec
from typing_extensions import TypeVar

from moorline.connectors.formats.base import Format

V = TypeVar("V", default=Any)

#: From stream, id, and fields and values in turn, to a record. Raises for an entry that is none.
DecodeEntry = Callable[[str, bytes, list[bytes]], Any]
#: From a record to fields and values in turn. Raises for a record that cannot be written.
EncodeEntry = Callable[[Any], list[bytes]]


class RedisEntry(msgspec.Struct, Generic[V], frozen=True):
    """An entry of a Redis stream, with its place. Of ``mo.read_redis_stream(..., as_records=True)``.

    >>> RedisEntry("orders", "1700000000000-0", {"customer": "ada"}).timestamp
    1700000000000
    """

    stream: str
    id: str
    #: The fields, or what the format has made of one of them.
    value: V

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970, as the id says."""
        return int(self.id.partition("-")[0])


def decoder(format: Format[Any] | None, field: str, as_records: bool) -> DecodeEntry:
    """The function from entries to records.

    >>> decoder(None, "", as_records=True)("s", b"7-0", [b"word", b"to"])
    RedisEntry(stream='s', id='7-0', value={'word': 'to'})
    """
    value = _all_fields if format is None else _one_field(format.decode, field)
    if as_records:
        return lambda stream, id, parts: RedisEntry(stream, id.decode(), value(parts))
    return lambda stream, id, parts: value(parts)


def _all_fields(parts: list[bytes]) -> dict[str, str]:
    texts = [str(part, "utf-8") for part in parts]
    return dict(zip(texts[::2], texts[1::2]))


def _one_field(decode: Callable[[bytes], Any], field: str) -> Callable[[list[bytes]], Any]:
    name = field.encode()

    def value(parts: list[bytes]) -> Any:
        for n in range(0, len(parts), 2):
            if parts[n] == name:
                return decode(parts[n + 1])
        raise ValueError(f"it has no field {field!r}")

    return value


def encoder(format: Format[Any] | None, field: str) -> EncodeEntry:
    """The function from records to entries.

    >>> encoder(None, "")({"word": "to", "count": 3})
    [b'word', b'to', b'count', b'3']
    """
    if format is None:
        return _fields_of
    name, encode = field.encode(), format.encode
    return lambda record: [name, encode(record)]


def _fields_of(record: Any) -> list[bytes]:
    if not isinstance(record, Mapping):
        raise TypeError(f"a {type(record).__name__} has no fields")
    if not record:
        raise ValueError("an entry needs a field")
    parts = []
    for name, value in record.items():
        if not isinstance(name, str):
            raise TypeError(f"the name {name!r} is not a text")
        parts += [name.encode(), _bytes_of(name, value)]
    return parts


def _bytes_of(name: str, value: Any) -> bytes:
    match value:
        case str():
            return value.encode()
        case bytes():
            return value
        case bool() | None:
            raise TypeError(f"the value of {name!r} is {value!r}, for which Redis has no word")
        case int() | float():
            return repr(value).encode()
    raise TypeError(f"the value of {name!r} is a {type(value).__name__}, and not a text, a number or bytes")
