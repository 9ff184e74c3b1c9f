"""``mo.write_iceberg``: a sink into an Iceberg table, as it is declared. Needs ``pip install moorline[iceberg]``."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from moorline.api.sinks import Sink
from moorline.errors import InvalidArgument
from moorline.model.options import checks_options


@checks_options()
def write_iceberg(
    table: str,
    *,
    catalog: str = "default",
    catalog_options: Mapping[str, str] | None = None,
    schema: pa.Schema | None = None,
    partition_by: str | Sequence[str] | None = None,
    patience: float = 60.0,
) -> Sink:
    """Append the records to the Iceberg table ``table``, exactly once: one snapshot of it for each checkpoint.

    Records are dicts, dataclasses, ``msgspec.Struct`` or namedtuples, as for :func:`moorline.write_files`. The columns
    are those of the table. If there is none, it is made before the job starts, with ``schema`` and ``partition_by``;
    if there is one, they must agree with it. ``schema`` may leave out columns that can be null.

    ``table`` is its name with its namespace, ``"shop.orders"``, in the catalog of PyIceberg that is called ``catalog``:
    its settings are those of PyIceberg's configuration on the driver together with ``catalog_options``. Workers and
    driver reach both the catalog and the table's files. ``partition_by`` names columns, or transforms of them:
    ``"day(at)"``, ``"bucket(16, customer)"``; also ``year``, ``month``, ``hour`` and ``truncate(width, column)``.
    ``patience``: seconds for which a commit is repeated while catalog or storage are away or other writers are quicker.

    >>> sink = write_iceberg(
    ...     "shop.totals",
    ...     catalog_options={"type": "sql", "uri": "sqlite:////data/catalog.db", "warehouse": "file:///data/tables"},
    ...     schema=pa.schema([("customer", pa.string()), ("at", pa.timestamp("us", "UTC"))]),
    ...     partition_by=["day(at)", "bucket(16, customer)"],
    ... )
    >>> sink.commits_on_driver
    True
    """
    if not isinstance(table, str) or not all(table.split(".")) or "." not in table:
        raise InvalidArgument("table", table, 'Give the name of a table with its namespace: "shop.orders".')
    if schema is not None and not (isinstance(schema, pa.Schema) and schema.names):
        raise InvalidArgument("schema", schema, "Give a pyarrow.Schema with columns.")
    if patience < 0:
        raise InvalidArgument("patience", patience, "Give it in seconds.")
    iceberg = _iceberg()
    given = [partition_by] if isinstance(partition_by, str) else partition_by
    partitions = None if given is None else [iceberg.parse_partition(text) for text in given]
    for partition in partitions or ():
        if schema is not None and partition.column not in schema.names:
            advice = f"The schema has the columns {', '.join(schema.names)}."
            raise InvalidArgument("partition_by", partition.column, advice)
    address = iceberg.TableAddress.resolve(table, catalog, dict(catalog_options or {}))
    sink: Sink = iceberg.IcebergSink(address, schema, partitions, patience)
    return sink


def _iceberg() -> Any:
    try:
        return importlib.import_module("moorline.connectors.iceberg.sink")
    except ImportError as error:
        if error.name and error.name.partition(".")[0] != "pyiceberg":
            raise
        advice = "Install it: pip install 'moorline[iceberg]'."
        raise InvalidArgument("write_iceberg", "no pyiceberg", advice) from None
