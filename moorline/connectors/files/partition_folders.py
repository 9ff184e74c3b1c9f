"""Folders of partitions, as Hive, Spark and Arrow name them: ``day=2026-01-01/shop=a%2Fb/``.

A column that files are partitioned by is in the names of folders and not in the files. A value is written as text,
with what a name cannot have escaped as ``%2F``; no value is ``__HIVE_DEFAULT_PARTITION__``. An empty text would be read
as no value, so it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import pyarrow as pa

from moorline.connectors.delta.partitions import partition_text, partition_value

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
#: Those that Hive escapes, and Spark after it.
_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
#: A name of a file or folder has no more bytes.
_LONGEST = 255
_TYPES = (str, bool, int, float, Decimal, date, datetime, UUID)


class NoPartition(Exception):
    """A value cannot be the name of a folder; the text says why."""


def folder_of(column: str, value: Any) -> str:
    """The name of a partition's folder. Raises :class:`NoPartition`.

    >>> folder_of("shop", "a/b"), folder_of("day", date(2026, 1, 2)), folder_of("day", None)
    ('shop=a%2Fb', 'day=2026-01-02', 'day=__HIVE_DEFAULT_PARTITION__')
    """
    if isinstance(value, Enum):
        value = value.value
    if value is None:
        return f"{_escaped(column)}={NO_VALUE}"
    if not isinstance(value, _TYPES):
        raise NoPartition(f"its column {column!r} is a {type(value).__name__}, which is no name of a folder")
    text = partition_text(value) or ""
    if not text or text == NO_VALUE:
        raise NoPartition(f"its column {column!r} is {text!r}, which would be read as no value")
    try:
        name = f"{_escaped(column)}={_escaped(text)}"
        if len(name.encode()) <= _LONGEST:
            return name
    except UnicodeEncodeError:
        raise NoPartition(f"its column {column!r} has characters that are not Unicode") from None
    raise NoPartition(f"its column {column!r} is too long for the name of a folder")


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def columns_of(split: str, schema: pa.Schema | None) -> dict[str, Any]:
    """The columns that the folders of a file say. Texts, or with a schema values of its types.

    >>> columns_of("day=2026-01-02/shop=a%2Fb/part-0.csv", None)
    {'day': '2026-01-02', 'shop': 'a/b'}
    >>> columns_of("day=2026-01-02/part-0.csv", pa.schema([("day", pa.date32())]))
    {'day': datetime.date(2026, 1, 2)}
    """
    texts: dict[str, str | None] = {}
    for folder in split.split("/")[:-1]:
        name, equals, text = folder.partition("=")
        if equals and name:
            texts[unquote(name)] = None if text == NO_VALUE else unquote(text)
    if schema is None:
        return texts
    return {field.name: _value(texts, field) for field in schema}


def _value(texts: Mapping[str, str | None], field: pa.Field) -> Any:
    if field.name not in texts:
        raise NoPartition(f"no folder of it says what {field.name!r} is")
    try:
        return partition_value(texts[field.name], field.type)
    except (pa.ArrowException, ValueError) as error:
        raise NoPartition(f"{field.name}={texts[field.name]} is not {field.type}: {error}") from None


def without(row: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """A row without the columns that its folder says."""
    return {name: value for name, value in row.items() if name not in columns}
