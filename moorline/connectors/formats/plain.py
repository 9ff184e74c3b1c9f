"""Formats that need no library: bytes as they are, text, and functions of the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moorline.connectors.formats.base import Format


class BytesFormat(Format[bytes]):
    """Bytes as they are."""

    def __repr__(self) -> str:
        return "'bytes'"

    def decode(self, data: bytes, /) -> bytes:
        return data

    def encode(self, record: bytes, /) -> bytes:
        if not isinstance(record, (bytes, bytearray, memoryview)):
            raise TypeError(f"a record of format 'bytes' is bytes, and not {type(record).__name__}: {record!r:.80}")
        return bytes(record)


class TextFormat(Format[str]):
    """Text in UTF-8."""

    def __repr__(self) -> str:
        return "'text'"

    def decode(self, data: bytes, /) -> str:
        return str(data, "utf-8")

    def encode(self, record: str, /) -> bytes:
        if not isinstance(record, str):
            raise TypeError(f"a record of format 'text' is a str, and not {type(record).__name__}: {record!r:.80}")
        return record.encode()


class FunctionFormat(Format[Any]):
    """A function that decodes, or one that encodes."""

    def __init__(
        self, decode: Callable[[bytes], Any] | None = None, encode: Callable[[Any], bytes] | None = None
    ) -> None:
        self._name = getattr(decode or encode, "__qualname__", "a function")
        if decode is not None:
            self.decode = decode  # type: ignore[method-assign]
        if encode is not None:
            self.encode = encode  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return self._name
