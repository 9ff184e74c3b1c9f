"""Connections to PostgreSQL: how they are made, which errors can pass, and what people may see of them.

All that Moorline does with PostgreSQL comes through here: state, sinks, sources, change data capture.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import psycopg

from moorline.connectors.postgres.address import address_of
from moorline.errors import StorageError

Connection = psycopg.Connection[tuple[Any, ...]]

#: For this transaction only: no wait is without end, neither ours nor that of others for us.
LIMITS = """
SELECT set_config('statement_timeout', %s, true), set_config('lock_timeout', %s, true),
    set_config('idle_in_transaction_session_timeout', %s, true)"""
#: Of the errors with a code: connection trouble, a server that stops or starts, too much going on, deadlocks, locks.
_TRANSIENT = ("08", "40", "53", "55", "57")
#: Everything that a call to the server may raise.
ERRORS = (psycopg.Error, OSError)


@dataclass(frozen=True)
class Database:
    """A database, and how long one command may take, in seconds."""

    #: May hold a password, so it is never shown.
    dsn: str = field(repr=False)
    timeout: float

    @property
    def address(self) -> str:
        return address_of(self.dsn)

    def connect(self, name: str, **options: Any) -> Connection:
        """A new connection, which commits each command by itself. ``name``: as the server lists it."""
        limit = max(2, round(self.timeout))  # libpq knows no less
        return psycopg.connect(
            self.dsn,
            autocommit=True,
            # A plan that was made while the table was small would stay; and poolers do not like it.
            prepare_threshold=None,
            connect_timeout=limit,
            tcp_user_timeout=1000 * limit,
            application_name=f"moorline {name}"[:60],
            client_encoding="UTF8",
            **options,
        )

    def text_of(self, error: BaseException) -> str:
        """The error's text without the password, should it be there."""
        text = " ".join(str(error).split()) or type(error).__name__
        try:
            password = psycopg.conninfo.conninfo_to_dict(self.dsn).get("password")
        except psycopg.Error:
            return "the url cannot be read"
        return text.replace(str(password), "***") if password else text

    def failure(self, path: str, operation: str, error: Exception) -> StorageError:
        """The error for what the server has refused, or has not answered."""
        can_pass = is_transient(error) and not is_refused(error)
        return StorageError(path, operation, self.text_of(error), can_pass)


def is_transient(error: BaseException) -> bool:
    """May it work when it is done again?

    A connection that was refused has no code, for whichever reason it was.
    """
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError, OSError)):
        code = getattr(error, "sqlstate", None)
        return code is None or code[:2] in _TRANSIENT
    # The latter: this process had no processor for so long that the server ended its transaction.
    return isinstance(error, (psycopg.errors.SerializationFailure, psycopg.errors.IdleInTransactionSessionTimeout))


def is_refused(error: BaseException) -> bool:
    """Has the server answered, and refused the connection for good? A wrong password is no outage.

    libpq gives the reason for a connection that was refused as text alone.
    """
    text = str(error)
    passing = ("the database system is", "too many", "remaining connection slots")
    is_answer = isinstance(error, psycopg.OperationalError) and error.sqlstate is None and "FATAL:" in text
    return is_answer and not any(words in text for words in passing)
