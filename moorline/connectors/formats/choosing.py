"""Which format does a user mean by the one that a source or a sink was given?

"json"      any JSON value            json_format(type=...) for one that is checked
"text"      UTF-8
"bytes"     as they are
a function  for a source: from bytes; for a sink: to bytes
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from moorline.connectors.formats.base import Format
from moorline.connectors.formats.json import JsonFormat
from moorline.connectors.formats.plain import BytesFormat, FunctionFormat, TextFormat
from moorline.errors import InvalidArgument
from moorline.model.spelling import did_you_mean

FormatName = Literal["json", "text", "bytes"]

_NAMED: dict[str, Callable[[], Format[Any]]] = {
    "json": lambda: JsonFormat(None),
    "text": TextFormat,
    "bytes": BytesFormat,
}


def format_for_reading(format: Any, what: str = "format") -> Format[Any]:
    """The format that a source was given: one, the name of one, or a function from bytes.

    >>> format_for_reading("text").decode(b"caf\\xc3\\xa9"), format_for_reading(len).decode(b"abc")
    ('café', 3)
    """
    return _format(format, what) or FunctionFormat(decode=format)


def format_for_writing(format: Any, what: str = "format") -> Format[Any]:
    """The format that a sink was given: one, the name of one, or a function to bytes.

    >>> format_for_writing("json").encode({"n": 1}), format_for_writing(str.encode).encode("abc")
    (b'{"n":1}', b'abc')
    """
    return _format(format, what) or FunctionFormat(encode=format)


def _format(format: Any, what: str) -> Format[Any] | None:
    """None if it is a function."""
    if isinstance(format, Format):
        return format
    if isinstance(format, str) and format in _NAMED:
        return _NAMED[format]()
    if isinstance(format, type) and issubclass(format, Format):
        raise InvalidArgument(what, format, f"Give one of them: {format.__name__}().")
    if callable(format):
        return None
    meant = did_you_mean(format, _NAMED) if isinstance(format, str) else ""
    names = ", ".join(map(repr, _NAMED))
    raise InvalidArgument(what, format, f"It is {names}, a format such as mo.json_format(...), or a function.{meant}")
