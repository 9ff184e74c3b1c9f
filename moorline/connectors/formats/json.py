"""``mo.json_format``: JSON, of any shape or of a declared type, bare or behind the number of a schema in a registry.

What a JSON Schema says is not checked here: a declared type is, in the same step that decodes. The registry is asked
whether the schema that a message names is one of JSON at all, once for each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

import msgspec

from moorline.connectors.formats.base import Format
from moorline.connectors.formats.registry import HEADER_BYTES, SchemaRegistry, read_header, with_header
from moorline.errors import InvalidArgument
from moorline.model.options import checks_options

T = TypeVar("T")


class JsonFormat(Format[Any]):
    """See :func:`moorline.json_format`."""

    def __init__(self, type: Any) -> None:
        self.type = type
        self.decode: Callable[[bytes], Any] = msgspec.json.Decoder(Any if type is None else type).decode
        self.encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode

    def __reduce__(self) -> tuple[Any, ...]:
        return JsonFormat, (self.type,)

    def __repr__(self) -> str:
        return "'json'" if self.type is None else f"json_format({getattr(self.type, '__name__', self.type)})"

    def of_type(self, type: Any) -> JsonFormat:
        """The same, with records of a type."""
        return JsonFormat(type)


class RegisteredJsonFormat(Format[Any]):
    """JSON behind the number of its schema."""

    def __init__(self, registry: SchemaRegistry, type: Any, schema: Any, subject: str | None, register: bool) -> None:
        self._registry, self.type, self._schema = registry, type, schema
        self._subject, self._register = subject, register
        self._plain = JsonFormat(type)
        #: What stands before messages whose schema is one of JSON.
        self._accepted: set[bytes] = set()
        self._number: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return RegisteredJsonFormat, (self._registry, self.type, self._schema, self._subject, self._register)

    def __repr__(self) -> str:
        return f"json_format(registry={self._registry.url!r})"

    def of_type(self, type: Any) -> RegisteredJsonFormat:
        """The same, with records of a type."""
        return RegisteredJsonFormat(self._registry, type, self._schema, self._subject, self._register)

    def check(self) -> None:
        """Does the registry answer, and know the schema that is written with?"""
        if self._subject is None:
            self._registry.subjects()
        elif not self._register:
            self._own_number()

    def decode(self, data: bytes, /) -> Any:
        header = data[:HEADER_BYTES]
        if header not in self._accepted:
            kind = self._registry.schema(read_header(data)).kind
            if kind != "JSON":
                raise ValueError(f"its schema in the registry is one of {kind}, and not of JSON")
            self._accepted.add(header)
        return self._plain.decode(data[HEADER_BYTES:])

    def encode(self, record: Any, /) -> bytes:
        if self._number is None:
            self._number = self._own_number()
        return with_header(self._number, self._plain.encode(record))

    def _own_number(self) -> int:
        if self._subject is None or (self._schema is None and self.type is None):
            advice = "Records are written with schema=, or that of a type, which the registry knows under subject=."
            raise InvalidArgument("json_format", f"schema={self._schema}, subject={self._subject}", advice)
        schema = msgspec.json.schema(self.type) if self._schema is None else self._schema
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return self._registry.number_of(self._subject, "JSON", text, register=self._register)


@overload
def json_format(
    type: type[T],
    *,
    registry: SchemaRegistry | None = ...,
    schema: str | Mapping[str, Any] | None = ...,
    subject: str | None = ...,
    register: bool = ...,
) -> Format[T]: ...
@overload
def json_format(
    type: Any = None,
    *,
    registry: SchemaRegistry | None = ...,
    schema: str | Mapping[str, Any] | None = ...,
    subject: str | None = ...,
    register: bool = ...,
) -> Format[Any]: ...
@checks_options()
def json_format(
    type: Any = None,
    *,
    registry: SchemaRegistry | None = None,
    schema: str | Mapping[str, Any] | None = None,
    subject: str | None = None,
    register: bool = False,
) -> Format[Any]:
    """JSON in UTF-8: any value, or with ``type`` one that is checked while it is decoded.

    A type is a ``msgspec.Struct``, a dataclass, a TypedDict, or an annotation such as ``dict[str, int]``; a message
    that does not fit is a broken record, and says where. Records of these kinds can be written too. A NaN is written
    as ``null``, for which JSON has no other word.

    With a ``registry`` messages have the number of their schema before them. To write those, ``subject`` says where the
    schema is found in the registry, and ``register=True`` puts it there: ``schema``, a JSON Schema, or else that of
    ``type``. Messages are checked by ``type``, and not by a JSON Schema.

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
    if registry is not None and not isinstance(registry, SchemaRegistry):
        raise InvalidArgument("registry", registry, "Give one of mo.schema_registry(url).")
    if registry is None and (schema is not None or subject is not None or register):
        raise InvalidArgument("subject", subject, "Only a registry has subjects and schemas: give registry= as well.")
    if isinstance(schema, Mapping):
        schema = dict(schema)
    try:
        plain = JsonFormat(type)
        return plain if registry is None else RegisteredJsonFormat(registry, type, schema, subject, register)
    except TypeError as error:
        raise InvalidArgument("type", type, f"JSON cannot be decoded to it: {error}.") from None
