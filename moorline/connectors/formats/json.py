"""``mo.json_format``: JSON, of any shape or of a declared type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec

from moorline.connectors.formats.base import Format
from moorline.errors import InvalidArgument
from moorline.model.options import checks_options

T = TypeVar("T")


class JsonFormat(Format[Any]):
    """See :func:`moorline.json_format`."""

    def __init__(self, type: Any) -> None:
        self._type = type
        self.decode: Callable[[bytes], Any] = msgspec.json.Decoder(Any if type is None else type).decode
        self.encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode

    def __reduce__(self) -> tuple[Any, ...]:
        return JsonFormat, (self._type,)

    def __repr__(self) -> str:
        return "'json'" if self._type is None else f"json_format({getattr(self._type, '__name__', self._type)})"


@overload
def json_format(type: type[T]) -> Format[T]: ...
@overload
def json_format(type: Any = None) -> Format[Any]: ...
@checks_options()
def json_format(type: Any = None) -> Format[Any]:
    """JSON in UTF-8: any value, or with ``type`` one that is checked while it is decoded.

    A type is a ``msgspec.Struct``, a dataclass, a TypedDict, or an annotation such as ``dict[str, int]``; a message
    that does not fit is a broken record, and says where. Records of these kinds can be written too. A NaN is written
    as ``null``, for which JSON has no other word.

    >>> import msgspec
    >>> class Order(msgspec.Struct, frozen=True):
    ...     customer: str
    ...     cents: int
    >>> orders = json_format(Order)
    >>> orders.decode(b'{"customer": "ada", "cents": 500}')
    Order(customer='ada', cents=500)
    >>> orders.decode(b'{"customer": "ada", "cents": "many"}')
    Traceback (most recent call last):
    msgspec.ValidationError: Expected `int`, got `str` - at `$.cents`
    """
    try:
        return JsonFormat(type)
    except TypeError as error:
        raise InvalidArgument("type", type, f"JSON cannot be decoded to it: {error}.") from None
