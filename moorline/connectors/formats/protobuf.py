"""``mo.protobuf_format``: Protobuf messages of a generated class, bare or behind a schema's number.

Needs ``moorline[protobuf]``. With a registry a message is preceded by the number of its schema, which is a file with
messages in it, and by the path of its message there:

    [0]            one byte: 0
    [2, 0]         the number of steps, and each step, as zigzag varints: 4 4 0

Protobuf needs no writer's schema to decode a message. It is fetched to tell whether the message is of the class at all:
the bytes of another one are hardly ever refused by themselves.
"""

from __future__ import annotations

import base64
import importlib
from typing import Any, TypeVar

from moorline.connectors.formats.base import Format
from moorline.connectors.formats.registry import HEADER_BYTES, SchemaRegistry, read_header, with_header
from moorline.errors import InvalidArgument
from moorline.model.options import checks_options

M = TypeVar("M")

#: Files that every registry and every compiler has.
_WELL_KNOWN = ("google/protobuf/", "google/type/", "confluent/")


class ProtobufFormat(Format[Any]):
    """Bare messages of one class."""

    def __init__(self, message: Any) -> None:
        self._message = message

    def __repr__(self) -> str:
        return f"protobuf_format({self._message.__name__})"

    def decode(self, data: bytes, /) -> Any:
        return self._message.FromString(data)

    def encode(self, record: Any, /) -> bytes:
        return _serialized(self._message, record)


class RegisteredProtobufFormat(Format[Any]):
    """Messages of one class, behind the number of their schema."""

    def __init__(self, registry: SchemaRegistry, message: Any, subject: str | None, register: bool) -> None:
        self._registry, self._message, self._subject, self._register = registry, message, subject, register
        #: Number and path before messages that are of the class.
        self._accepted: set[bytes] = set()
        self._header: bytes | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return RegisteredProtobufFormat, (self._registry, self._message, self._subject, self._register)

    def __repr__(self) -> str:
        return f"protobuf_format({self._message.__name__}, registry={self._registry.url!r})"

    def check(self) -> None:
        """Does the registry answer, and know the schema that is written with?"""
        if self._subject is None:
            self._registry.subjects()
        elif not self._register:
            self._own_header()

    def decode(self, data: bytes, /) -> Any:
        number = read_header(data)
        path, start = read_path(data, HEADER_BYTES)
        if data[:start] not in self._accepted:
            self._accept(number, path)
            self._accepted.add(data[:start])
        return self._message.FromString(data[start:])

    def encode(self, record: Any, /) -> bytes:
        if self._header is None:
            self._header = self._own_header()
        return self._header + _serialized(self._message, record)

    def _accept(self, number: int, path: list[int]) -> None:
        """Raise if the messages at a path in a schema are others than those of the class."""
        schema = self._registry.schema(number, serialized=True)
        if schema.kind != "PROTOBUF":
            raise ValueError(f"its schema in the registry is one of {schema.kind}, and not of Protobuf")
        found = name_at(_parsed_file(base64.b64decode(schema.text)), path)
        if found != self._message.DESCRIPTOR.full_name:
            raise ValueError(f"it is a message {found}, and not a {self._message.DESCRIPTOR.full_name}")

    def _own_header(self) -> bytes:
        if self._subject is None:
            advice = "Messages are written with a schema that the registry has: give subject=, mostly '<topic>-value'."
            raise InvalidArgument("subject", self._subject, advice)
        descriptor = self._message.DESCRIPTOR
        number = self._number_of(descriptor.file, self._subject)
        return with_header(number, path_bytes(path_to(descriptor)))

    def _number_of(self, file: Any, subject: str) -> int:
        references = [self._reference(dependency) for dependency in file.dependencies if not _is_well_known(dependency)]
        return self._registry.number_of(
            subject, "PROTOBUF", _file_text(file), register=self._register, references=references
        )

    def _reference(self, file: Any) -> dict[str, Any]:
        """A file that another imports stands in the registry under its own name."""
        self._number_of(file, file.name)
        references = [self._reference(dependency) for dependency in file.dependencies if not _is_well_known(dependency)]
        version = self._registry.version_of(file.name, "PROTOBUF", _file_text(file), references)
        return {"name": file.name, "subject": file.name, "version": version}


@checks_options()
def protobuf_format(
    message: type[M], *, registry: SchemaRegistry | None = None, subject: str | None = None, register: bool = False
) -> Format[M]:
    """Protobuf messages of a class that ``protoc`` has generated.

    With a ``registry`` messages have the number of their schema before them. To write those, ``subject`` says where the
    schema is found in the registry, and ``register=True`` puts it there.

    Records are objects of the class, which workers must be able to import.

    >>> from google.protobuf.wrappers_pb2 import Int64Value
    >>> numbers = protobuf_format(Int64Value)
    >>> numbers.encode(Int64Value(value=7)), numbers.decode(b"\\x08\\x07").value
    (b'\\x08\\x07', 7)
    """
    try:
        base = importlib.import_module("google.protobuf.message").Message
    except ImportError:
        raise InvalidArgument(
            "protobuf_format", "no protobuf", "Install it: pip install 'moorline[protobuf]'."
        ) from None
    if not (isinstance(message, type) and issubclass(message, base)):
        raise InvalidArgument("message", message, "Give a class that protoc has generated, such as orders_pb2.Order.")
    if registry is not None:
        if not isinstance(registry, SchemaRegistry):
            raise InvalidArgument("registry", registry, "Give one of mo.schema_registry(url).")
        return RegisteredProtobufFormat(registry, message, subject, register)
    if subject is not None or register:
        raise InvalidArgument("subject", subject, "Only a registry has subjects: give registry= as well.")
    return ProtobufFormat(message)


def read_path(data: bytes, start: int) -> tuple[list[int], int]:
    """The path of a message in its file, and where the message begins.

    >>> read_path(b"\\x00...", 0), read_path(b"\\x04\\x04\\x00...", 0)
    (([0], 1), ([2, 0], 3))
    """
    steps, start = _varint(data, start)
    if steps == 0:
        return [0], start
    if not 0 < steps <= 100:
        raise ValueError(f"it names no message: a path of {steps} steps")
    path = []
    for _ in range(steps):
        step, start = _varint(data, start)
        path.append(step)
    return path, start


def path_bytes(path: list[int]) -> bytes:
    """A path as it stands before a message.

    >>> path_bytes([0]), path_bytes([2, 0])
    (b'\\x00', b'\\x04\\x04\\x00')
    """
    return b"\0" if path == [0] else b"".join(map(_varint_bytes, [len(path), *path]))


def path_to(descriptor: Any) -> list[int]:
    """The path of a message in its file: its number among messages, and among those in the one that it stands in."""
    names = [descriptor.name]
    while descriptor.containing_type is not None:
        descriptor = descriptor.containing_type
        names.append(descriptor.name)
    path, messages = [], _parsed_file(descriptor.file.serialized_pb).message_type
    for name in reversed(names):
        path.append([message.name for message in messages].index(name))
        messages = messages[path[-1]].nested_type
    return path


def name_at(file: Any, path: list[int]) -> str:
    """The full name of the message at a path, in a file's descriptor."""
    names, messages = [file.package] if file.package else [], file.message_type
    for step in path:
        if not 0 <= step < len(messages):
            raise ValueError(f"its schema has no message at {path}")
        names.append(messages[step].name)
        messages = messages[step].nested_type
    return ".".join(names)


def _parsed_file(serialized: bytes) -> Any:
    return importlib.import_module("google.protobuf.descriptor_pb2").FileDescriptorProto.FromString(serialized)


def _serialized(message: Any, record: Any) -> bytes:
    if not isinstance(record, message):
        raise TypeError(f"a record is a {message.__name__}, and not {type(record).__name__}: {record!r:.80}")
    data: bytes = record.SerializeToString()
    return data


def _file_text(file: Any) -> str:
    return base64.b64encode(file.serialized_pb).decode()


def _is_well_known(file: Any) -> bool:
    return bool(file.name.startswith(_WELL_KNOWN))


def _varint(data: bytes, start: int) -> tuple[int, int]:
    """A zigzag varint, and what comes after it."""
    shift = value = 0
    while True:
        if start >= len(data) or shift > 28:
            raise ValueError("it ends in the middle of the path of its message")
        byte = data[start]
        value |= (byte & 0x7F) << shift
        start, shift = start + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), start


def _varint_bytes(number: int) -> bytes:
    value, written = number << 1, bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
