"""``mo.read_postgres``: a table or a query of PostgreSQL as a source, as declared. Needs ``moorline[postgres]``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from moorline.api.functions.base import OutputTag
from moorline.api.sources import Source
from moorline.connectors.broken import checked_on_error
from moorline.connectors.postgres.address import checked_dsn, name_parts
from moorline.connectors.postgres.write import load
from moorline.connectors.row_changes import Change
from moorline.errors import InvalidArgument
from moorline.model.options import checks_options

_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}")


@checks_options()
def read_postgres(
    dsn: str,
    table: str | None = None,
    *,
    query: str | None = None,
    key: str | None = None,
    columns: Sequence[str] | None = None,
    splits: int = 16,
    page_rows: int = 5_000,
    on_error: Literal["fail", "skip"] | OutputTag = "fail",
    timeout: float = 60.0,
    patience: float = 60.0,
) -> Source[dict[str, Any]]:
    """Read the rows of a PostgreSQL table, or of a query, as dicts: all that are there, in parallel, and the end.

    ``key`` is the column whose ranges are the splits; the primary key, if it is left out. It must be unique and never
    null. Of a query or a view that cannot be known before: it is an error as soon as a key is found twice. Let there be
    an index on it. Each row is as it was when its page was read; :func:`moorline.read_postgres_changes` also tells what
    becomes of rows while they are read, and after.

    ``splits``: into how many ranges the keys are divided. ``page_rows``: rows that are fetched at a time. ``on_error``:
    what to do with a row that Python cannot hold, such as one with the date ``infinity``. ``timeout``: seconds for a
    page; ``patience``: for trying again while the server is away.

    >>> read_postgres("postgresql://me:secret@db.example/shop", "orders", key="id", columns=["id", "cents"])
    read_postgres('orders')
    """
    if (table is None) == (query is None):
        raise InvalidArgument("table and query", (table, query), "Give one of the two.")
    if query is not None and key is None:
        raise InvalidArgument("key", key, "Name the column of the query that tells rows apart.")
    if isinstance(columns, str) or (columns is not None and not columns):
        raise InvalidArgument("columns", columns, "Give a list of names, or leave it out.")
    for name, value in (("splits", splits), ("page_rows", page_rows)):
        if type(value) is not int or value < 1:
            raise InvalidArgument(name, value, "It is at least 1.")
    if timeout <= 0 or patience < 0:
        raise InvalidArgument("timeout and patience", (timeout, patience), "Give them in seconds.")
    sources = load("reading.source", "read_postgres")
    settings = sources.SourceSettings(
        load("connection", "read_postgres").Database(checked_dsn(dsn), timeout),
        () if table is None else name_parts(table),
        query,
        key,
        None if columns is None else tuple(columns),
        splits,
        page_rows,
        checked_on_error(on_error),
        patience,
    )
    source: Source[dict[str, Any]] = sources.PostgresSource(settings)
    return source


@checks_options()
def read_postgres_changes(
    dsn: str,
    tables: str | Sequence[str],
    *,
    slot: str,
    publication: str | None = None,
    snapshot: bool = True,
    retained: int = 3,
    on_schema_change: Literal["notice", "fail"] = "notice",
    on_error: Literal["fail", "skip"] | OutputTag = "fail",
    page_rows: int = 5_000,
    timeout: float = 60.0,
    patience: float = 60.0,
) -> Source[Change]:
    """Read the rows of PostgreSQL tables and then all of their changes, by logical replication: each exactly once.

    First come the rows that are there (``kind="read"``), then inserts, updates, deletes and truncates, in the order in
    which they were committed, without a gap and without a double between the two. ``snapshot=False`` leaves out the
    rows that are there.

    ``slot``: the name of the replication slot, which is made at the first start. It has one reader, and it keeps the
    server's log until it is read: a slot that nobody reads any more fills the disk and has to be dropped by hand.
    ``publication``: the one that has the tables; named like the slot, and made, if it is left out. ``retained``: for
    how many complete checkpoints the server keeps its log; at least as many as the job retains.

    ``on_schema_change``: warn or fail when columns of a table change. ``on_error``: what to do with a change that
    Python cannot hold, such as one with the date ``infinity``. ``page_rows``: rows that are fetched at a time at first.
    ``timeout``: seconds for an answer; ``patience``: for trying again while the server is away.

    >>> read_postgres_changes("postgresql://me:secret@db.example/shop", ["orders"], slot="totals").is_bounded
    False
    """
    names = [tables] if isinstance(tables, str) else list(tables)
    if not names or len(set(names)) < len(names):
        raise InvalidArgument("tables", tables, "Name each table once, at least one.")
    if not isinstance(slot, str) or not _SLOT_NAME.fullmatch(slot):
        raise InvalidArgument("slot", slot, "Use small letters, digits and _, at most 63.")
    if publication is not None and (not isinstance(publication, str) or not publication or "\0" in publication):
        raise InvalidArgument("publication", publication, "Give a name, or leave it out.")
    for name, value in (("retained", retained), ("page_rows", page_rows)):
        if type(value) is not int or value < 1:
            raise InvalidArgument(name, value, "It is at least 1.")
    if on_schema_change not in ("notice", "fail"):
        raise InvalidArgument("on_schema_change", on_schema_change, 'It is "notice" or "fail".')
    if timeout <= 0 or patience < 0:
        raise InvalidArgument("timeout and patience", (timeout, patience), "Give them in seconds.")
    changes = load("changes.source", "read_postgres_changes")
    settings = changes.ChangesSettings(
        load("connection", "read_postgres_changes").Database(checked_dsn(dsn), timeout),
        tuple(name_parts(name, "tables") for name in names),
        *(slot, publication or slot, snapshot, page_rows, on_schema_change, retained, patience),
    )
    source: Source[Change] = changes.PostgresChanges(settings, checked_on_error(on_error))
    return source
