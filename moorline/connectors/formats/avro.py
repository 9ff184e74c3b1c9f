"""``mo.avro_format``: Avro, with one schema for all messages or with a schema registry. Needs ``moorline[avro]``.

without a registry   the bare record, written with exactly the schema that is given
with a registry      the number of the writer's schema, then the record; a schema that is given is the reader's, to
                     which records are resolved, and the one that records are written with
"""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Callable, Mapping
from typing import Any

from moorline.connectors.formats.base import Format
from moorline.connectors.formats.registry import HEADER_BYTES, Schema, SchemaRegistry, read_header, with_header
from moorline.errors import InvalidArgument
from moorline.model.options import checks_options


class AvroFormat(Format[dict[str, Any]]):
    """Bare records of one schema."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        fastavro = _fastavro()
        self._read: Callable[..., Any] = fastavro.schemaless_reader
        self._write: Callable[..., None] = fastavro.schemaless_writer
        self._parsed = _parsed(schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return AvroFormat, (self._schema,)

    def __repr__(self) -> str:
        return f"avro_format({_name(self._parsed)})"

    def decode(self, data: bytes, /) -> Any:
        file = io.BytesIO(data)
        return _whole(self._read(file, self._parsed), file, data)

    def encode(self, record: Any, /) -> bytes:
        file = io.BytesIO()
        self._write(file, self._parsed, record, strict_allow_default=True)
        return file.getvalue()


class RegisteredAvroFormat(Format[dict[str, Any]]):
    """Records behind the number of their schema."""

    def __init__(self, registry: SchemaRegistry, schema: Any, subject: str | None, register: bool) -> None:
        self._registry, self._schema, self._subject, self._register = registry, schema, subject, register
        fastavro = _fastavro()
        self._read: Callable[..., Any] = fastavro.schemaless_reader
        self._write: Callable[..., None] = fastavro.schemaless_writer
        self._parsed = None if schema is None else _parsed(schema)
        #: The writers' schemas, by number.
        self._writers: dict[int, Any] = {}
        self._number: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return RegisteredAvroFormat, (self._registry, self._schema, self._subject, self._register)

    def __repr__(self) -> str:
        return f"avro_format(registry={self._registry.url!r})"

    def check(self) -> None:
        """Does the registry answer, and know the schema that is written with?"""
        if self._subject is None:
            self._registry.subjects()
        elif not self._register:
            self._own_number()

    def decode(self, data: bytes, /) -> Any:
        number = read_header(data)
        writer = self._writers.get(number)
        if writer is None:
            writer = self._writers[number] = _parsed_with_references(self._registry.schema(number))
        file = io.BytesIO(data)
        file.seek(HEADER_BYTES)
        return _whole(self._read(file, writer, self._parsed), file, data)

    def encode(self, record: Any, /) -> bytes:
        if self._number is None:
            self._number = self._own_number()
        file = io.BytesIO()
        self._write(file, self._parsed, record, strict_allow_default=True)
        return with_header(self._number, file.getvalue())

    def _own_number(self) -> int:
        if self._schema is None or self._subject is None:
            advice = (
                "Records are written with schema=, which the registry knows under subject=, mostly '<topic>-value'."
            )
            raise InvalidArgument("avro_format", f"schema={self._schema}, subject={self._subject}", advice)
        text = self._schema if isinstance(self._schema, str) else json.dumps(self._schema)
        return self._registry.number_of(self._subject, "AVRO", text, register=self._register)


@checks_options()
def avro_format(
    schema: str | Mapping[str, Any] | list[Any] | None = None,
    *,
    registry: SchemaRegistry | None = None,
    subject: str | None = None,
    register: bool = False,
) -> Format[Any]:
    """Avro: dicts by the names of fields, with the logical types (dates, decimals, UUIDs) as Python has them.

    ``schema``, as JSON text or as parsed JSON: that of all messages. With a ``registry`` messages say which schema they
    were written with, and ``schema`` may be left out; if it is given, records come in its shape, by Avro's rules for
    schemas that have changed. To write with a registry, ``subject`` says where the schema is found in it, and
    ``register=True`` puts it there.

    >>> orders = avro_format({"type": "record", "name": "Order", "fields": [
    ...     {"name": "customer", "type": "string"}, {"name": "cents", "type": "long"}]})
    >>> data = orders.encode({"customer": "ada", "cents": 500})
    >>> data, orders.decode(data)
    (b'\\x06ada\\xe8\\x07', {'customer': 'ada', 'cents': 500})
    """
    if isinstance(schema, Mapping):
        schema = dict(schema)
    if registry is not None:
        if not isinstance(registry, SchemaRegistry):
            raise InvalidArgument("registry", registry, "Give one of mo.schema_registry(url).")
        return RegisteredAvroFormat(registry, schema, subject, register)
    if schema is None:
        raise InvalidArgument("schema", schema, "Give the schema of the messages, or the registry that has it.")
    if subject is not None or register:
        raise InvalidArgument("subject", subject, "Only a registry has subjects: give registry= as well.")
    return AvroFormat(schema)


def _fastavro() -> Any:
    try:
        return importlib.import_module("fastavro")
    except ImportError:
        raise InvalidArgument("avro_format", "no fastavro", "Install it: pip install 'moorline[avro]'.") from None


def _parsed(schema: Any, named: dict[str, Any] | None = None) -> Any:
    try:
        schema = json.loads(schema) if isinstance(schema, str) else schema
        return _fastavro().parse_schema(schema, named_schemas={} if named is None else named)
    except Exception as error:  # fastavro raises what it meets: KeyError, TypeError, its own
        raise InvalidArgument("schema", schema, f"It is no schema of Avro: {type(error).__name__}: {error}.") from None


def _parsed_with_references(schema: Schema) -> Any:
    """A schema of the registry, which may name others."""
    if schema.kind != "AVRO":
        raise ValueError(f"its schema in the registry is one of {schema.kind}, and not of Avro")
    named: dict[str, Any] = {}

    def add(references: tuple[Schema, ...]) -> None:
        for reference in references:
            add(reference.references)
            _parsed(reference.text, named)

    add(schema.references)
    return _parsed(schema.text, named)


def _whole(record: Any, file: io.BytesIO, data: bytes) -> Any:
    """A record that is all of its message. Bytes of another schema are often a record too, with something left over."""
    if file.tell() != len(data):
        raise ValueError(f"{len(data) - file.tell()} bytes are left over after the record: was it of another schema?")
    return record


def _name(parsed: Any) -> str:
    return str(parsed.get("name", parsed.get("type"))) if isinstance(parsed, dict) else str(parsed)
