"""State in PostgreSQL: how it is configured. What is done with the connection is in ``session.py``.

    <table>         one row per operator, state and key: the document (``state/external/documents.py``), and beside it
                    the key and the document in a form for people and for SQL
    <table>_marks   one row per writing subtask: how far it has come (``api/state/external.py``)

Both are created if they are not there. Needs ``pip install moorline[postgres]``.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass, field
from typing import Any

from moorline.api.state.external import ExternalStore, FreshStart, Owner, StoreSession, check_settings
from moorline.connectors.postgres.address import address_of
from moorline.errors import InvalidArgument
from moorline.model.options import checks_options

_TABLE = re.compile(r"[^\W\d]\w{0,49}(\.[^\W\d]\w{0,49})?", re.ASCII)


@dataclass(frozen=True)
class PostgresState(ExternalStore):
    """A table in PostgreSQL that keeps state. Made by :func:`postgres_state`."""

    #: May hold a password, so it is never shown.
    url: str = field(repr=False)
    table: str
    on_fresh_start: FreshStart = "error"
    readable: bool = True
    timeout: float = 10.0
    patience: float = 30.0
    cache_bytes: int = 32 << 20

    def __post_init__(self) -> None:
        check_settings(self)
        if not _TABLE.fullmatch(self.table):
            advice = "Use letters, digits and _, at most 50, with or without a schema before a dot."
            raise InvalidArgument("table for state", self.table, advice)
        if self.timeout <= 0 or self.patience < 0:
            raise InvalidArgument("timeout and patience", (self.timeout, self.patience), "Give them in seconds.")
        address_of(self.url)

    @property
    def wants_text(self) -> bool:  # type: ignore[override]
        return self.readable

    @property
    def label(self) -> str:
        return f"postgres.{self.table}"

    @property
    def where(self) -> str:
        return f"PostgreSQL table {self.table} at {address_of(self.url)}"

    def open(self, owner: Owner) -> StoreSession:
        session: StoreSession = _sessions().PostgresSession(self, owner)
        return session

    def forget(self, job: str, uid: str | None = None) -> None:
        _sessions().forget(self, job, uid)


@checks_options()
def postgres_state(
    url: str,
    *,
    table: str,
    on_fresh_start: FreshStart = "error",
    readable: bool = True,
    timeout: float = 10.0,
    patience: float = 30.0,
    cache_bytes: int = 32 << 20,
) -> PostgresState:
    """Keep a state in PostgreSQL: ``ValueState(int, store=postgres_state(url, table="counts"))``.

    >>> postgres_state("postgresql://me:secret@db.example/shop", table="counts").where
    'PostgreSQL table counts at db.example/shop'

    ``url`` is what libpq takes. Leave the password out of it if the workers have ``PGPASSWORD`` or a ``.pgpass``.
    ``readable``: keep keys and values as text and JSON too, for people and for SQL; it costs about as much again.
    ``timeout`` and ``patience`` are seconds: for one command, and for repeating it while the server is away.
    """
    return PostgresState(url, table, on_fresh_start, readable, timeout, patience, cache_bytes)


def _sessions() -> Any:
    try:
        return importlib.import_module("moorline.connectors.postgres.session")
    except ImportError as error:
        advice = f"It cannot be loaded ({error}): pip install 'moorline[postgres]' where the job and its workers run."
        raise InvalidArgument("state in PostgreSQL", "no psycopg", advice) from None
