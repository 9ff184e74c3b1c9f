"""``mo.write_sql``: a sink into a table of any database that SQLAlchemy knows, as declared. Needs ``moorline[sql]``."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from moorline.api.sinks import Sink
from moorline.errors import InvalidArgument
from moorline.model.options import checks_options


@checks_options()
def write_sql(
    url: str,
    table: str,
    *,
    key: str | Sequence[str],
    columns: Sequence[str] | None = None,
    schema: str | None = None,
    marker_table: str | None = "moorline_markers",
    on_missing_markers: Literal["fail", "ignore"] = "fail",
    on_roll_back: Literal["fail", "repeat"] = "fail",
    engine_options: Mapping[str, Any] | None = None,
    patience: float = 60.0,
) -> Sink:
    """Put the records into a table of any database that SQLAlchemy knows, by ``key``: the last record of a key wins.

    Records are dicts, dataclasses, ``msgspec.Struct`` or namedtuples; ``mo.Delete(record)`` removes the row with its
    key. The table must have a unique index on the key. A column that a record lacks stays as it is, or gets its
    default. Route records of one key to one subtask (``key_by``): subtasks write in no order among each other.

    Rows become visible when their checkpoint is complete. With ``marker_table``, which is made if it is not there, that
    happens exactly once if the database has transactions. With ``marker_table=None`` a repeated commit writes the same
    rows again, which shows nowhere unless a worker that is half dead does it after newer ones.

    ``url`` is SQLAlchemy's, such as ``mysql+pymysql://host/shop``; it is shown nowhere. ``engine_options`` go to
    ``sqlalchemy.create_engine``. ``patience``: seconds for repeating a commit while the server is away; the job goes on
    meanwhile. For PostgreSQL :func:`moorline.write_postgres` is several times as fast.

    >>> write_sql("sqlite:////data/shop.db", "totals", key="customer")
    write_sql(table='totals')
    """
    keys = (key,) if isinstance(key, str) else tuple(key)
    names = None if columns is None else tuple(columns)
    if not keys:
        raise InvalidArgument("key", key, "Name the columns that tell rows apart.")
    if isinstance(columns, str) or (names is not None and not names):
        raise InvalidArgument("columns", columns, "Give a list of names, or leave it out.")
    if not isinstance(table, str) or not table:
        raise InvalidArgument("table", table, "Give the name of a table; that of its schema goes into schema=.")
    for option, value, choices in (
        ("on_missing_markers", on_missing_markers, ("fail", "ignore")),
        ("on_roll_back", on_roll_back, ("fail", "repeat")),
    ):
        if value not in choices:
            raise InvalidArgument(option, value, f"It is one of {', '.join(choices)}.")
    if patience < 0:
        raise InvalidArgument("patience", patience, "Give it in seconds.")
    sinks = _sinks()
    try:
        sinks.sa.make_url(url)
    except (sinks.sa.exc.ArgumentError, TypeError, ValueError):
        advice = "Give one that SQLAlchemy takes, such as mysql+pymysql://host/database."
        raise InvalidArgument("url of the database", "(not shown)", advice) from None
    target = sinks.SqlTarget(
        *(url, dict(engine_options or {}), table, schema, keys, names, marker_table, on_missing_markers, patience)
    )
    sink: Sink = sinks.SqlSink(target, on_roll_back)
    return sink


def _sinks() -> Any:
    try:
        return importlib.import_module("moorline.connectors.sql.sink")
    except ImportError as error:
        if error.name and error.name.partition(".")[0] != "sqlalchemy":
            raise
        raise InvalidArgument("write_sql", "no sqlalchemy", "Install it: pip install 'moorline[sql]'.") from None
