"""``mo.write_postgres``: a sink into a PostgreSQL table, as it is declared. Needs ``moorline[postgres]``."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Literal

from moorline.api.sinks import Sink
from moorline.connectors.postgres.address import checked_dsn, name_parts
from moorline.errors import InvalidArgument
from moorline.model.options import checks_options

_MODES = ("append", "upsert", "apply")


@checks_options()
def write_postgres(
    dsn: str,
    table: str,
    *,
    mode: Literal["append", "upsert", "apply"] = "append",
    key: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    marker_table: str = "moorline_markers",
    on_missing_markers: Literal["fail", "ignore"] = "fail",
    on_roll_back: Literal["fail", "repeat"] = "fail",
    timeout: float = 30.0,
    patience: float = 60.0,
) -> Sink:
    """Write the records to a PostgreSQL table, exactly once: rows and a marker in one transaction for each checkpoint.

    Records are dicts, dataclasses, ``msgspec.Struct`` or namedtuples. A column that a record lacks gets its default.

    ``mode="append"`` adds rows. ``"upsert"`` replaces the row with the same ``key``, for which the table must have a
    unique index; the last record of a key wins, and ``mo.Delete(record)`` removes the row. ``"apply"`` applies the
    changes that :func:`moorline.read_postgres_changes` gives, in the same way. Route records of one key to one subtask
    (``key_by``): subtasks write in no order among each other.

    ``dsn`` is what libpq takes; it is shown nowhere. ``columns``: the ones that records may have; all, if it is left
    out. ``marker_table`` is made if it is not there; all sinks of a database may share one. ``on_missing_markers``: if
    it is behind what was committed, fail, or go on. ``on_roll_back``: if the job has to go back past checkpoints that
    were committed, fail, or write those rows again. ``timeout``: seconds for one command; ``patience``: for repeating a
    commit while the server is away. The job goes on meanwhile.

    >>> write_postgres("postgresql://me:secret@db.example/shop", "totals", mode="upsert", key="customer")
    write_postgres(table='totals', mode='upsert')
    """
    keys = (key,) if isinstance(key, str) else tuple(key or ())
    names = None if columns is None else tuple(columns)
    if mode not in _MODES:
        raise InvalidArgument("mode", mode, f"It is one of {', '.join(_MODES)}.")
    if (mode == "append") == bool(keys):
        advice = "Rows are only added: leave it out." if keys else "Name the columns that tell rows apart."
        raise InvalidArgument("key", key, f"mode={mode!r}. {advice}")
    if isinstance(columns, str) or (names is not None and not names):
        raise InvalidArgument("columns", columns, "Give a list of names, or leave it out.")
    for option, value, choices in (
        ("on_missing_markers", on_missing_markers, ("fail", "ignore")),
        ("on_roll_back", on_roll_back, ("fail", "repeat")),
    ):
        if value not in choices:
            raise InvalidArgument(option, value, f"It is one of {', '.join(choices)}.")
    if timeout <= 0 or patience < 0:
        raise InvalidArgument("timeout and patience", (timeout, patience), "Give them in seconds.")
    sinks = load("writing.sink", "write_postgres")
    sink: Sink = sinks.make_sink(
        *(checked_dsn(dsn), name_parts(table), mode, keys, names, name_parts(marker_table, "marker_table")),
        *(on_missing_markers, on_roll_back, timeout, patience),
    )
    return sink


def load(module: str, function: str) -> Any:
    """A module of this folder that needs psycopg."""
    try:
        return importlib.import_module(f"moorline.connectors.postgres.{module}")
    except ImportError as error:
        if error.name and error.name.partition(".")[0] not in ("psycopg", "psycopg_binary", "psycopg_c"):
            raise
        raise InvalidArgument(function, "no psycopg", "Install it: pip install 'moorline[postgres]'.") from None
