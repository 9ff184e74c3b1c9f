"""Values of columns that a Delta table is partitioned by: texts in its log, and none in its files."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from moorline.errors import InvalidArgument


def partition_text(value: Any) -> str | None:
    """A value as the log has it.

    >>> partition_text(True), partition_text(None), partition_text(7)
    ('true', None, '7')
    """
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case datetime():
            return (value.astimezone(UTC) if value.tzinfo else value).strftime("%Y-%m-%d %H:%M:%S.%f")
        case bytes():
            raise InvalidArgument("partition_by", value, "A table cannot be partitioned by bytes.")
    return str(value)


def partition_value(text: str | None, type: pa.DataType) -> Any:
    """The value of a column of this type.

    >>> partition_value("7", pa.int32()), partition_value("2026-01-02", pa.date32())
    (7, datetime.date(2026, 1, 2))
    """
    if text is None or (text == "" and not pa.types.is_string(type)):
        return None
    if pa.types.is_timestamp(type):
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if type.tz and moment.tzinfo is None else moment
    return pa.scalar(text).cast(type).as_py()
