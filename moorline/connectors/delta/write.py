"""``mo.write_delta``: a sink into a Delta table, as it is declared. Needs ``pip install moorline[delta]``."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from moorline.api.sinks import Sink
from moorline.errors import InvalidArgument
from moorline.model.options import checks_options


@checks_options()
def write_delta(
    table: str | os.PathLike[str],
    *,
    schema: pa.Schema | None = None,
    partition_by: str | Sequence[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    patience: float = 60.0,
) -> Sink:
    """Append the records to the Delta table at ``table``, exactly once: one version of it for each checkpoint.

    Records are dicts, dataclasses, ``msgspec.Struct`` or namedtuples, as for :func:`moorline.write_files`. The columns
    are those of the table. If there is none, it is made before the job starts, with ``schema`` and ``partition_by``;
    if there is one, they must agree with it. ``schema`` may leave out columns that can be null.

    ``table`` is a path that all workers and the driver reach, or a URL such as ``s3://bucket/table`` with the
    ``storage_options`` of the deltalake library. ``patience``: seconds for which a commit is repeated while the storage
    is away or other writers are quicker.

    >>> import tempfile
    >>> sink = write_delta(tempfile.mkdtemp(), schema=pa.schema([("word", pa.string()), ("count", pa.int64())]))
    >>> sink.commits_on_driver
    True
    """
    uri = os.fspath(table)
    if not isinstance(uri, str) or not uri:
        raise InvalidArgument("table", table, "Give the path or the URL of a Delta table.")
    if schema is not None and not (isinstance(schema, pa.Schema) and schema.names):
        raise InvalidArgument("schema", schema, "Give a pyarrow.Schema with columns.")
    columns = [partition_by] if isinstance(partition_by, str) else None if partition_by is None else list(partition_by)
    names = columns or [] if schema is None else schema.names
    unknown = [column for column in columns or () if column not in names]
    if unknown:
        raise InvalidArgument("partition_by", unknown, f"The schema has the columns {', '.join(names)}.")
    if patience < 0:
        raise InvalidArgument("patience", patience, "Give it in seconds.")
    delta = _delta()
    location = delta.TableLocation(uri, dict(storage_options or {}))
    sink: Sink = delta.DeltaSink(location, schema, columns, patience)
    return sink


def _delta() -> Any:
    try:
        return importlib.import_module("moorline.connectors.delta.sink")
    except ImportError as error:
        if error.name and error.name.partition(".")[0] != "deltalake":
            raise
        raise InvalidArgument("write_delta", "no deltalake", "Install it: pip install 'moorline[delta]'.") from None
