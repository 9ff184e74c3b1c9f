"""Does a table that is there agree with what a sink declares?"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from moorline.errors import InvalidArgument


def check_partitions(table: str, partition_by: list[str] | None, there: list[str]) -> None:
    """Raise if a table is partitioned in another way."""
    if partition_by is not None and partition_by != there:
        advice = f"The table {table} is partitioned by {there or 'nothing'}: leave it out, or write to another table."
        raise InvalidArgument("partition_by", partition_by, advice)


def check_columns(
    table: str, schema: pa.Schema | None, there: pa.Schema, as_stored: Callable[[pa.DataType], pa.DataType]
) -> None:
    """Raise if a table has not the columns that a sink writes, or must not be without others.

    ``as_stored``: a type as such a table has it.
    """
    if schema is None:
        return
    for column in schema:
        if column.name not in there.names:
            advice = f"The table {table} has the columns {there.names}: add the column to it, or leave it out."
            raise InvalidArgument("schema", column.name, advice)
        stored = there.field(column.name).type
        if stored != as_stored(column.type):
            advice = f"In the table {table} column {column.name!r} is {stored}."
            raise InvalidArgument("schema", f"{column.name}: {column.type}", advice)
    missing = _required(there, schema.names)
    if missing:
        raise InvalidArgument("schema", schema, f"The table {table} must not have nulls in {missing}: write them too.")


def _required(there: pa.Schema, written: Iterable[str]) -> list[str]:
    return [field.name for field in there if field.name not in written and not field.nullable]
